"""`make demo`: Treadle's main job on real input, from a model file to predictions in another process.

Compiles the digits model, saves one file, starts a new process that loads it, and classifies there images that the model has
not been trained on.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..formats.messages.errors import TreadleError
from ..native import processes
from . import digits

_SHOWN = 5
_REQUIRED_ACCURACY = 0.97
_BYTECODE_LINES = 16


@contextmanager
def _step(what: str) -> Iterator[None]:
    """Prints what is done, and how long it took."""
    print(f"\n▸ {what}", flush=True)
    start = time.perf_counter()
    yield
    print(f"  {time.perf_counter() - start:.2f} s", flush=True)


def main() -> int:
    from .. import compile

    digits.require_images()  # the new process would miss them after all the work
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "digits.trdl")
        with _step(f"compile {digits.MODEL.name} ({digits.MODEL.stat().st_size / 1e3:.0f} kB of ONNX)"):
            executable = compile(digits.MODEL)
        with _step("save it as one file"):
            executable.export_library(path)
            print(f"  {path.name}: {path.stat().st_size / 1e3:.0f} kB")
        print("\n▸ what is in it\n")
        print(_indented(executable.stats))
        print("\n▸ the first lines of its bytecode\n")
        print("\n".join(_indented(executable.bytecode).splitlines()[:_BYTECODE_LINES]))
        with _step("load it in a new process, and classify the held-out images"):
            return processes.run(processes.module(__spec__.name), path).returncode


def classify(path: Path) -> int:
    """The work of the new process. Exits with 1 if the accuracy is too low."""
    start = time.perf_counter()
    from .. import VirtualMachine, load

    machine = VirtualMachine(load(path))
    loaded = time.perf_counter()
    _, held_out = digits.load_split()
    ready = time.perf_counter()
    probabilities = machine["main"](held_out.images).numpy()
    done = time.perf_counter()

    predictions = probabilities.argmax(axis=1)
    accuracy = float((predictions == held_out.labels).mean())
    wrong = np.flatnonzero(predictions != held_out.labels)
    print(f"  import, load, verify and link: {loaded - start:.2f} s; read the images: {ready - loaded:.2f} s")
    print(f"  {len(predictions)} images in {(done - ready) * 1e3:.1f} ms")
    print(f"  accuracy {accuracy:.2%}: {len(wrong)} of {len(predictions)} are wrong\n")
    shown = [*range(_SHOWN - 1), *wrong[:1]]  # some that are right, and one that is not
    _show(held_out, shown, predictions, probabilities)
    return 0 if accuracy >= _REQUIRED_ACCURACY else 1


def _show(data: digits.Digits, shown: list[int], predictions: np.ndarray, probabilities: np.ndarray) -> None:
    """Digits side by side, the predictions below them."""
    for lines in zip(*(digits.picture(data.images[i]) for i in shown), strict=True):
        print("  " + "  ".join(lines))
    captions = (
        f"{predictions[i]} ({probabilities[i].max():.0%})"
        + (f", is {data.labels[i]}" if predictions[i] != data.labels[i] else "")
        for i in shown
    )
    print("  " + "  ".join(f"{caption:16}" for caption in captions))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


if __name__ == "__main__":
    try:
        sys.exit(classify(Path(sys.argv[1])) if len(sys.argv) > 1 else main())
    except TreadleError as error:
        sys.exit(f"  {error}")
