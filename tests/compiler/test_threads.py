"""Eight threads call one machine on a convolutional network: each gets the bits that one thread alone gets."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import treadle
from treadle import tools

DIGITS = Path(tools.__file__).parent / "models" / "digits.onnx"


def test_eight_threads_get_the_bits_of_one() -> None:
    executable = treadle.compile(DIGITS, progress=False)
    classify = treadle.VirtualMachine(executable)["main"]
    batches = [np.random.default_rng(seed).standard_normal((5, 1, 8, 8)).astype(np.float32) for seed in range(8)]
    alone = [classify(batch).numpy() for batch in batches]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda turn: classify(batches[turn % 8]).numpy(), range(400)))
    for turn, result in enumerate(together):
        np.testing.assert_array_equal(result, alone[turn % 8])
