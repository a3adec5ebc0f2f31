"""The import of ONNX models."""
