"""Templates of convolutions and of what else slides windows over images."""
