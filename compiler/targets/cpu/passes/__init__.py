"""The CPU's passes: algorithms, and layouts of tensors."""
