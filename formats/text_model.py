"""What stands between texts and a model's tensors: the section `text` of an executable.

`text/folder.py` reads it from a model's folder, `text/loading.py` makes of it what computes. The machine does not look at it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .codec import Binary, Codec, Converted, Integer, Scalar, Text, record, row
from .codec import Sequence as List
from .limits import CHAT_TEMPLATE_BYTES, TEXT_ENTRIES, TOKENIZER_BYTES
from .messages.errors import FormatError

EMBED, SCORE, CLASSIFY, GENERATE = TASKS = ("embed", "score", "classify", "generate")
POOLINGS = ("mean", "mean_sqrt_len_tokens", "weightedmean", "cls", "max", "lasttoken")  # sentence-transformers' names
ACTIVATIONS = ("identity", "sigmoid", "softmax")
MAX_TOKENS = 1 << 24


@dataclass(frozen=True)
class TextModel:
    """A tokenizer, and what becomes of a model's result. `output` names the result of "main" that is taken."""

    task: str
    tokenizer: bytes  # tokenizer.json
    max_tokens: int  # of a text, with those that the tokenizer adds; 0: no bound
    output: str = ""
    pooling: tuple[str, ...] = ()  # of the vectors of tokens, concatenated; none: the result has a row for each text
    normalize: bool = False  # to length 1
    activation: str = "identity"  # of scores, or of classes
    labels: tuple[str, ...] = ()  # of classes
    prompts: tuple[tuple[str, str], ...] = ()  # names, and what stands before texts
    template: str = ""  # of a chat, for Jinja
    tokens: tuple[tuple[str, str], ...] = ()  # names of special tokens, such as pad_token, and their texts
    stops: tuple[int, ...] = ()  # tokens that end what is generated

    def __str__(self) -> str:
        shown = [self.task, f"at most {self.max_tokens} tokens" if self.max_tokens else "any number of tokens"]
        shown += [f"pooling {'+'.join(self.pooling)}"] if self.pooling else []
        return ", ".join([*shown, *["normalised"] * self.normalize, *["a chat template"] * bool(self.template)])

    def __repr__(self) -> str:
        return f"<TextModel: {self}>"


def _one_of(name: str, values: tuple[str, ...]) -> Codec:
    def check(value: str) -> str:
        if value not in values:
            raise FormatError(f"expected one of {', '.join(values)}")
        return value

    return Converted(name, Text(64), check, check)


_TEXT = Text()
_PAIRS = List(row("entry", name=_TEXT, value=_TEXT), TEXT_ENTRIES)
TEXT_MODEL = List(
    record(
        TextModel,
        task=_one_of("task", TASKS),
        tokenizer=Binary(TOKENIZER_BYTES),
        max_tokens=Integer(0, MAX_TOKENS),
        output=_TEXT,
        pooling=List(_one_of("pooling", POOLINGS), len(POOLINGS)),
        normalize=Scalar(bool),
        activation=_one_of("activation", ACTIVATIONS),
        labels=List(_TEXT, TEXT_ENTRIES),
        prompts=_PAIRS,
        template=Text(CHAT_TEMPLATE_BYTES),
        tokens=_PAIRS,
        stops=List(Integer(0, (1 << 32) - 1), TEXT_ENTRIES),
    ),
    1,
)
