"""Modules, registered functions, and their export to libraries and object files."""
