"""Importers of ONNX's operators."""
