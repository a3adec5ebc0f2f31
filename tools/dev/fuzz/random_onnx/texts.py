"""Steps of random graphs: texts."""

from __future__ import annotations

from .walk import WORDS, Dead, Walk, Ways, step


@step("StringConcat")
def _concat(w: Walk, op: str) -> None:
    x = w.tensor("string")
    w.add(op, [x, w.partner(x)])


@step("StringSplit")
def _split(w: Walk, op: str) -> None:
    ways: Ways = {"delimiter": w.one(None, "", " ", "b", "-", "  "), "maxsplit": w.one(None, 0, 1, 2)}
    w.add(op, [w.tensor("string", rank=(0, 1, 2))], 2, **ways)


@step("RegexFullMatch")
def _match(w: Walk, op: str) -> None:
    pattern = w.random.choice(
        (r"[a-z]+", r".*b.*", r"\d+", r"-?\d+(\.\d+)?", r"(?i)the", r"\w+\s*\w*", r"", r"a|b|ab c")
    )
    w.add(op, [w.tensor("string")], pattern=pattern)


@step("StringNormalizer")
def _normalise(w: Walk, op: str) -> None:
    shape = w.one((1,), (3,), (5,), (1, 4))
    ways: Ways = {
        "case_change_action": w.one(None, "NONE", "LOWER", "UPPER"),
        "locale": "C.UTF-8",  # onnxruntime refuses those that the system does not have
        "is_case_sensitive": w.one(None, 0, 1),
        "stopwords": w.random.sample(WORDS[1:], w.random.randrange(1, 4)) if w.chance(0.6) else None,
    }
    w.add(op, [w.tensor("string", shape)], **ways)


@step("TfIdfVectorizer")
def _count(w: Walk, op: str) -> None:
    """Pairs and single tokens of a pool, of texts or of integers."""
    is_text = w.chance(0.5)
    x = w.tensor("string" if is_text else w.one("int64", "int32"), rank=(1, 2))
    if 0 in x.shape:
        raise Dead("nothing to count in")
    singles, pairs = w.random.randrange(1, 4), w.random.randrange(3)
    every = list(WORDS[1:] if is_text else range(10))
    tokens = w.random.sample(every, singles)
    for first in w.random.sample(every, pairs):  # which of two equal pairs counts is not said
        tokens += [first, w.random.choice(every)]
    count = singles + pairs
    ways: Ways = {
        "mode": w.one("TF", "IDF", "TFIDF"),
        "min_gram_length": 1,
        "max_gram_length": 2 if pairs else 1,
        "max_skip_count": w.random.randrange(2) if pairs else 0,
        "ngram_counts": [0, singles] if pairs else [0],
        "ngram_indexes": w.random.sample(range(count), count),
        "weights": [float(each) for each in w.array("float32", (count,), 0)] if w.chance(0.5) else None,
        "pool_strings" if is_text else "pool_int64s": tokens,
    }
    w.add(op, [x], **ways)
