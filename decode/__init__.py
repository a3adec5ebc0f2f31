"""Generation: loops of decoders, and caches of keys, values and states."""
