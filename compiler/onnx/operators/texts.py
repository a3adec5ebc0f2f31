"""Importers of the operators on texts, TfIdfVectorizer among them, and on the bytes of images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ...operators.regular_expressions import pattern_problem
from ..ml.scores import only
from ..ort.floats import DOMAIN as RUNTIME
from ..table import importer
from ..values import GraphBuilder, UnsupportedError, Value


@importer("StringConcat")
def _string_concat(g: GraphBuilder, x: Value, y: Value) -> Value:
    return g.broadcast("concat_texts", x, y)


@importer("StringSplit")
def _string_split(g: GraphBuilder, x: Value, *, delimiter: str = "", maxsplit: int | None = None) -> tuple[Value, ...]:
    return g.ops("split_texts", x, delimiter=delimiter, most=maxsplit)


@importer("ImageDecoder")
def _image_decoder(g: GraphBuilder, encoded: Value, *, pixel_format: str = "RGB") -> Value:
    return g.op("decode_image", encoded, pixel_format=pixel_format)


@importer("StringNormalizer")
def _string_normalizer(
    g: GraphBuilder,
    x: Value,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",
    stopwords: Sequence[str] = (),
) -> Value:
    """Cases are Unicode's, whatever the `locale`."""
    if x.rank == 2:
        x = g.checked(x, (1, x.shape[1]))
    words = g.constant(list(stopwords), DType.string)
    case = case_change_action.lower()
    return g.op("normalize_texts", x, words, case=case, is_case_sensitive=bool(is_case_sensitive))


@importer("RegexFullMatch")
def _regex_full_match(g: GraphBuilder, x: Value, *, pattern: str = "") -> Value:
    return g.op("match_texts", x, expression=pattern)


@importer("Tokenizer", domain=RUNTIME)
def _tokenizer(
    g: GraphBuilder,
    x: Value,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] = (),
    tokenexp: str = "",
) -> Value:
    """Converters of scikit-learn's text pipelines write it."""
    if x.rank not in (1, 2) or mincharnum < 1 or bool(separators) == bool(tokenexp):
        raise ModelError(
            f"expected texts of one or two axes, mincharnum of 1 or more, and either separators or tokenexp, "
            f"got {x.type}, {mincharnum}, {list(separators)[:9]} and {tokenexp[:60]!r}"
        )
    by_characters = tokenexp == "." or list(separators) == [""]
    if by_characters and mincharnum > 1:
        raise ModelError(f"mincharnum is {mincharnum}, but tokens are characters")
    expressions = [] if by_characters else list(separators) or [tokenexp]
    for each in expressions:
        if problem := pattern_problem(each):
            raise ModelError(problem)
    return g.op(
        "tokenize_texts",
        x,
        g.constant(expressions, DType.string),
        between=bool(separators),
        least=mincharnum,
        marks=bool(mark),
        pad=pad_value,
    )


@importer("MurmurHash3", domain=RUNTIME)
def _murmur_hash(g: GraphBuilder, x: Value, *, positive: int = 1, seed: int = 0) -> Value:
    if not x.dtype.is_string:
        raise UnsupportedError(f"hashes of {x.type}, which is not text")
    hashes = g.op("hash_texts", x, seed=seed)
    return g.op("bitcast", hashes, dtype=DType.uint32) if positive else hashes


@importer("TfIdfVectorizer")
def _tf_idf_vectorizer(
    g: GraphBuilder,
    x: Value,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None,
    pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
) -> Value:
    pool = g.constant(only("tokens", int64s=pool_int64s, strings=pool_strings))
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ModelError(f"mode is {mode!r}; there are TF, IDF and TFIDF")
    if not 0 < min_gram_length <= max_gram_length or max_skip_count < 0:
        raise ModelError(f"n-grams of {min_gram_length} to {max_gram_length} tokens, {max_skip_count} of them skipped")
    _check_pool(ngram_counts, ngram_indexes, pool.type.nbytes // pool.dtype.itemsize)
    columns = max(ngram_indexes) + 1
    if x.dtype is DType.int32:
        x = g.op("cast", x, dtype=DType.int64)
    counts = g.op(
        "count_ngrams",
        x,
        pool,
        g.constant(np.array(ngram_indexes, np.int64)),
        begins=tuple(ngram_counts),
        least=min_gram_length,
        most=max_gram_length,
        skips=max_skip_count,
        columns=columns,
    )
    if mode == "IDF":
        counts = g.op("cast", g.op("greater", counts, g.constant(0, DType.float32)), dtype=DType.float32)
    if mode == "TF" or not weights:
        return counts
    if len(weights) != len(ngram_indexes):
        raise ModelError(f"there are {len(weights)} weights for {len(ngram_indexes)} n-grams")
    return g.op("multiply", counts, g.constant(_by_column(weights, ngram_indexes, columns)))


def _check_pool(counts: Sequence[int], indexes: Sequence[int], size: int) -> None:
    """Raises ModelError where the n-grams of a pool and their columns do not agree."""
    ends = [*counts[1:], size]
    if not counts or counts[0] != 0 or any(not begin <= end <= size for begin, end in zip(counts, ends, strict=True)):
        raise ModelError(f"ngram_counts {list(counts)[:20]} are not places in a pool of {size} tokens, in order")
    grams = sum((end - begin) // length for length, (begin, end) in enumerate(zip(counts, ends, strict=True), 1))
    if len(indexes) != grams or min(indexes, default=0) < 0 or max(indexes, default=0) > 1 << 24:
        raise ModelError(f"ngram_indexes are {len(indexes)} columns, for {grams} n-grams")


def _by_column(weights: Sequence[float], indexes: Sequence[int], columns: int) -> np.ndarray:
    """The weight of each column's n-gram: the standard has them in the order of the pool."""
    array = np.zeros(columns, np.float32)
    array[list(indexes)] = weights
    return array
