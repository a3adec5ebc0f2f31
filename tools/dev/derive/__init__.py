"""Pages, stubs and lists that are derived from tables."""
