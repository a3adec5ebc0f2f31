"""`treadle.text`: texts to vectors, scores and classes by one file, and chats to prompts.

    treadle.compile("all-MiniLM-L6-v2/").export_library("minilm.trdl")
    vectors = treadle.text.load("minilm.trdl").encode(["a sentence", "another one"])

`folder.py` reads a model's folder for `compile`, `models.py` is the door, `tokens.py` makes token numbers, `template.py` renders
chats. It needs the extra `treadle[text]`: the packages tokenizers, and for chats jinja2.
"""

from typing import TYPE_CHECKING

from ..formats.messages.names import lazily

if TYPE_CHECKING:
    from ..formats.text_model import TextModel
    from .models import Classifier, Encoder, Generator, Reranker, Texts, load

__all__ = ["Classifier", "Encoder", "Generator", "Reranker", "TextModel", "Texts", "load"]

_HOMES = {
    "Classifier": ".models",
    "Encoder": ".models",
    "Generator": ".models",
    "Reranker": ".models",
    "TextModel": "..formats.text_model",
    "Texts": ".models",
    "load": ".models",
}

__getattr__ = lazily(__name__, _HOMES)
