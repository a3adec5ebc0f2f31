"""Kernels: their convention, the table of templates, and the templates of no other family."""
