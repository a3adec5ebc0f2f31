"""What the compiler makes code for: each target is a folder. The rest of the compiler imports `base.py` and `choice.py` alone."""
