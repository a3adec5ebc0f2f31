"""The handwritten digits of scikit-learn, split once and for all into images to train on and images held out.

`dev/train_digits.py` trains on the first part alone, so that `demo.py` classifies images that the model has never seen.
"""

import importlib.util
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..formats.messages.errors import TreadleError

MODEL = Path(__file__).parent / "models" / "digits.onnx"
HELD_OUT = 360
_SPLIT_SEED = 7
_SHADES = " .:-=+*%@"


class Digits(NamedTuple):
    """Images float32[count, 1, 8, 8] in 0 … 1, and the digits int64[count] that they show."""

    images: np.ndarray
    labels: np.ndarray


def require_images() -> None:
    """Raises TreadleError where scikit-learn, which has them, is missing."""
    if importlib.util.find_spec("sklearn") is None:
        raise TreadleError('the images of digits are scikit-learn\'s: pip install "treadle[demo]"')


def load_split() -> tuple[Digits, Digits]:
    """The images to train on, and the `HELD_OUT` others. Raises TreadleError as `require_images`."""
    require_images()
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(data.target))
    images = (data.images[order] / 16).astype(np.float32)[:, np.newaxis]
    labels = data.target[order].astype(np.int64)
    return Digits(images[:-HELD_OUT], labels[:-HELD_OUT]), Digits(images[-HELD_OUT:], labels[-HELD_OUT:])


def picture(image: np.ndarray) -> list[str]:
    """An image as lines of text, two characters a pixel."""
    shades = np.asarray(list(_SHADES))[(image.reshape(8, 8) * (len(_SHADES) - 1)).round().astype(int)]
    return ["".join(shade * 2 for shade in row) for row in shades]
