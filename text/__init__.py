"""`treadle.text`: texts to vectors, scores and classes by one file, and chats to prompts.

    treadle.compile("all-MiniLM-L6-v2/").export_library("minilm.trdl")
    vectors = treadle.text.load("minilm.trdl").encode(["a sentence", "another one"])

`folder.py` reads a model's folder for `compile`, `models.py` is the door, `tokens.py` makes token numbers, `template.py` renders
chats, `grammar.py` constrains what a decoder writes, `confined.py` has the processes of these two. It needs the extra
`treadle[text]`: the packages tokenizers, and for chats jinja2; constraints need `treadle[grammar]`.
"""

from typing import TYPE_CHECKING

from ..formats.messages.names import lazily

if TYPE_CHECKING:
    from ..formats.text_model import TextModel
    from . import grammar
    from .models import Classifier, Encoder, Generator, Reranker, Texts, load

__all__ = ["Classifier", "Encoder", "Generator", "Reranker", "TextModel", "Texts", "grammar", "load"]

_HOMES = {
    "Classifier": ".models",
    "Encoder": ".models",
    "Generator": ".models",
    "Reranker": ".models",
    "TextModel": "..formats.text_model",
    "Texts": ".models",
    "grammar": ".grammar",
    "load": ".models",
}

__getattr__ = lazily(__name__, _HOMES)
