"""Templates that move elements and compute nothing."""
