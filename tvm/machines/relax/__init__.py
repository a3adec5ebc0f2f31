"""The Relax VM and its builtins."""
