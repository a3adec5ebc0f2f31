"""Functions that the compiler makes of decoders: the step of a token, the loop of a text."""
