"""Other servers, around onnxruntime, for `treadle bench throughput`.

Each is a program that runs in an environment of its own, which has neither Treadle nor the other server.
"""
