"""Importers of ai.onnx.ml."""
