"""A server of executables: the Open Inference Protocol over HTTP and gRPC (`treadle serve`).

    treadle serve models/ --http-port 8000 --grpc-port 8001

`service.py` is what both transports stand on: it knows models, checks requests and answers them. It needs the extra
`treadle[serve]`; nothing else of Treadle imports this folder.
"""
