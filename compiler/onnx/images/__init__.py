"""Importers of operators on images."""
