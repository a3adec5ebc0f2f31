"""Programs as ONNX files."""
