"""Targets of the compiler, a folder each."""
