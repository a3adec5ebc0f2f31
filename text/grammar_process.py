"""Says which tokens may come next by grammars, in a process that can do nothing else: `confined_process.py` runs this file.

Grammars come from clients, from anywhere. llguidance bounds the work of a step; some grammars of a few kilobytes still exhaust
its stack or its memory, which ends a process.
"""

import base64
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

_TEXTS = 256  # that are known at once; of others all tokens are sent anew
# The model decides how a text that the grammar forces is cut into tokens: only its own tokenizer would cut it as it was trained.
_OPTIONS = '\n%llguidance {"no_forcing": true}\n'
_EXCERPT = re.compile(r"\n *\d+ \||\n<")  # of the grammar, with what is put around it
_BOUNDS: dict[str, Any] = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
    "max_items_in_row": 2_000,
    "max_lexer_states": 20_000,  # of some 2 kB; llguidance's default is 250,000
    "max_grammar_size": 500_000,
    "precompute_large_lexemes": False,
    "verbose_errors": False,
}


class _Vocabulary(SimpleNamespace):
    """What llguidance takes for a tokenizer: the bytes of tokens, and which ones are special."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __call__(self, text: bytes) -> list[int]:  # where a grammar forces tokens, which `_OPTIONS` keep it from
        return []


def prepare() -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """The function that answers.

    Its first request has the vocabulary; the others the number of a text, its tokens since the last request and, where the text
    is new to this process, its grammar. The answer is a mask of bits, the lowest one first.
    """
    import llguidance

    bounds = llguidance.LLParserLimits(**_BOUNDS)
    vocabularies: list[Any] = []
    ends: list[int] = []
    texts: OrderedDict[int, Any] = OrderedDict()

    def grammar(regex: str = "", lark: str | None = None) -> str:
        text = f"start: /{llguidance.regex_to_lark(regex, '')}/" if lark is None else lark
        return json.dumps({"grammars": [{"lark_grammar": text + _OPTIONS}]})

    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        if "vocabulary" in request:
            ends.extend(request["ends"])
            pieces = [piece.encode("latin-1") for piece in request["vocabulary"]]
            tokens: Any = _Vocabulary(tokens=pieces, special_token_ids=request["special"], eos_token_id=ends[0])
            vocabularies.append(llguidance.LLTokenizer(tokens, eos_token=ends))
            return {}
        number = request["text"]
        if "grammar" in request:
            texts[number] = llguidance.LLMatcher(
                vocabularies[0], grammar(**request["grammar"]), log_level=0, limits=bounds
            )
            if len(texts) > _TEXTS:
                texts.popitem(last=False)
        elif number not in texts:
            return {"unknown": True}
        texts.move_to_end(number)
        matcher = texts[number]
        for token in request["tokens"]:
            if not (matcher.is_stopped() and token in ends):  # one that has ended may end again
                matcher.consume_token(token)
        mask = b"" if matcher.is_error() else matcher.compute_bitmask()
        if matcher.is_error():
            del texts[number]
            return {"error": _EXCERPT.split(matcher.get_error())[0][:500]}
        return {"mask": base64.b64encode(mask).decode()}

    return answer
