"""Hostile ONNX models: sound ones, and how they are changed. `fuzz/models.py` compiles what comes of it."""
