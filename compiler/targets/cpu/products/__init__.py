"""Templates of matrix products."""
