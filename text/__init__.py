"""`treadle.text`: texts to vectors, scores and classes by one file, prompts and chats to answers.

    treadle.compile("all-MiniLM-L6-v2/").export_library("minilm.trdl")
    vectors = treadle.text.load("minilm.trdl").encode(["a sentence", "another one"])

`folder.py` reads a model's folder for `compile`, `loading.py` is the door, `tokens.py` makes token numbers, `template.py` renders
chats, `models.py` has encoders and what is like them, `generator.py` answers: `pieces.py` makes text of tokens, `replies.py`
thoughts and calls of tools of text; `grammar.py` constrains what is written, `confined.py` has the processes of templates and
grammars. It needs the extra `treadle[text]`: the packages tokenizers, and for chats jinja2; constraints need `treadle[grammar]`.
"""

from typing import TYPE_CHECKING

from ..formats.messages.names import lazily

if TYPE_CHECKING:
    from ..formats.text_model import TextModel
    from . import grammar
    from .generator import Answer, Chat, Generator
    from .loading import load, resume
    from .models import Classifier, Encoder, Reranker, Texts

__all__ = [
    "Answer",
    "Chat",
    "Classifier",
    "Encoder",
    "Generator",
    "Reranker",
    "TextModel",
    "Texts",
    "grammar",
    "load",
    "resume",
]

_HOMES = {
    "Answer": ".generator",
    "Chat": ".generator",
    "Classifier": ".models",
    "Encoder": ".models",
    "Generator": ".generator",
    "Reranker": ".models",
    "TextModel": "..formats.text_model",
    "Texts": ".models",
    "grammar": ".grammar",
    "load": ".loading",
    "resume": ".loading",
}

__getattr__ = lazily(__name__, _HOMES)
