"""Templates of convolutions and other operators that slide windows over images."""
