"""The graph executor, and graph JSON as programs of the machine and back."""
