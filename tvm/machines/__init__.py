"""TVM's two virtual machines."""
