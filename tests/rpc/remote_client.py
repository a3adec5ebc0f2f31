"""A client in a process of its own: it keeps a large tensor at the server, says so, and waits to be killed."""

import sys
import time

import numpy as np
import treadle

device = treadle.remote(sys.argv[1])
machine = treadle.VirtualMachine(treadle.load(sys.argv[2]), device=device)
kept = machine["main"](np.ones((100_000, 8), np.float32))
print(kept.shape, flush=True)
time.sleep(600)
