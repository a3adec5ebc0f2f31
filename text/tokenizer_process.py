"""Makes tokens of texts, in a process that can do nothing else: `confined_process.py` runs this file.

Tokenizers come with models, from anywhere: some have expressions that backtrack, or normalisers that double a text forty times.
"""

import base64
import os
from array import array
from collections.abc import Callable, Mapping
from typing import Any

_THREADS = 8  # each takes address space


def prepare() -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """The function that answers. Its first request has the tokenizer; each of the others is of one kind in `answers`."""
    os.environ.setdefault("RAYON_NUM_THREADS", str(min(_THREADS, os.cpu_count() or 1)))
    import tokenizers

    made: tokenizers.Tokenizer

    def read(tokenizer: str, most: int) -> dict[str, Any]:
        nonlocal made
        made = tokenizers.Tokenizer.from_str(tokenizer)
        made.no_padding()
        made.no_truncation()
        if most:
            made.enable_truncation(most)
        added = [[number, each.content, each.special] for number, each in made.get_added_tokens_decoder().items()]
        decoder = None if made.decoder is None else made.decoder.__getstate__().decode()
        return {"size": made.get_vocab_size(), "added": added, "decoder": decoder}

    def encode(texts: list[Any], special: bool) -> dict[str, Any]:
        ids, kinds, ends = array("I"), array("I"), []
        given = [text if isinstance(text, str) else tuple(text) for text in texts]
        for each in made.encode_batch_fast(given, add_special_tokens=special):
            ids.extend(each.ids)
            kinds.extend(each.type_ids)
            ends.append(len(ids))
        return {"ends": ends, "ids": _printed(ids), "kinds": _printed(kinds) if any(kinds) else ""}

    def names(start: int, count: int) -> dict[str, Any]:
        return {"names": [made.id_to_token(number) for number in range(start, start + count)]}

    answers: dict[str, Callable[..., dict[str, Any]]] = {
        "read": read,
        "encode": encode,
        "names": names,
        "number": lambda name: {"number": made.token_to_id(name)},
        "count": lambda: {"count": max(made.get_vocab().values(), default=-1) + 1},
        "decode": lambda ids, skip: {"text": made.decode(ids, skip_special_tokens=skip)},
    }

    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return answers[request["what"]](*request["of"])
        except BaseException as error:
            if type(error).__name__ == "PanicException":  # of Rust's, which is no Exception
                raise ValueError(error) from None
            raise

    return answer


def _printed(numbers: "array[int]") -> str:
    return base64.b64encode(numbers.tobytes()).decode()
