"""The verifier, layer by layer."""
