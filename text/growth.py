"""How much longer the parts of a tokenizer can make a text: one from anywhere may double it forty times.

`tokens.py` asks before the library computes anything: memory that it does not get ends the process.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

from ..formats.messages.errors import FormatError

MOST = 1 << 12  # times; XLM-R's normaliser can make 400 bytes of one
_STEPS = 64  # in one part; some add a character to each, which is not counted
_ADDED = 1024  # tokens, by a post-processor
_FOLDED = 11  # ﷺ, of 3 bytes, has 33 in the forms NFKC and NFKD
_KINDS = {"ByteLevel": 2, "NFKC": _FOLDED, "NFKD": _FOLDED, "BertNormalizer": 2, "BPEDecoder": 2, "NFD": 3, "NFC": 3}


def growth(name: str, part: Any) -> int:
    """The bytes that a part of the library's tokenizer makes of one, at most. Raises FormatError for more than MOST."""
    if part is None:
        return 1
    found = _of(json.loads(part.__getstate__()))
    if found > MOST:
        raise FormatError(
            f"the tokenizer's {name} may make a text {found} times as long; expected at most {MOST} times"
        )
    return found


def _of(step: Mapping[str, Any]) -> int:
    kind = step["type"]
    if kind == "Sequence":
        inner = next(value for value in step.values() if isinstance(value, list))
        return math.prod(map(_of, inner)) if len(inner) <= _STEPS else MOST + 1
    if kind == "Replace":
        pattern, content = step["pattern"], len(step["content"].encode())
        replaced = len(pattern.get("String", "").encode())
        # an expression may match nothing, everywhere
        return max(1, -(-content // replaced)) if replaced else content + 1
    if kind == "Prepend":
        return 1 if len(step["prepend"]) <= _STEPS else MOST + 1
    if kind == "Metaspace":
        return len(step["replacement"].encode())
    if kind == "Precompiled":
        data = base64.b64decode(step["precompiled_charsmap"])
        return max(map(len, data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")), default=1) or 1
    if kind == "TemplateProcessing":
        return _template(step)
    return _KINDS.get(kind, 1)


def _template(step: Mapping[str, Any]) -> int:
    """How often a template has a text."""
    ids = {name: len(each["ids"]) for name, each in step["special_tokens"].items()}
    times = 1
    for form, texts in (("single", 1), ("pair", 2)):
        special = [each["SpecialToken"]["id"] for each in step[form] if "SpecialToken" in each]
        if sum(ids.get(name, 0) for name in special) > _ADDED:
            return MOST + 1
        times = max(times, -(-(len(step[form]) - len(special)) // texts))
    return times
