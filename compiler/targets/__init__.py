"""What the compiler makes code for. Each target is a folder."""
