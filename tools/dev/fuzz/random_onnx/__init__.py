"""Random ONNX graphs: `walk.py` grows them by the steps of the other modules, and `judges.py` says what they give."""
