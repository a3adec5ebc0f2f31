"""The grammar of tensors on the command line, and the report on results that differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from treadle.formats.dtypes import DType
from treadle.formats.types import tensor
from treadle.tools.arguments import byte_count, match_names, mismatch, parse, seconds, spread
from treadle.tools.errors import UsageError


@pytest.mark.parametrize(
    ("text", "name", "dtype", "shape", "source"),
    [
        ("x=1x3x224x224xf32=@x.npy", "x", DType.float32, (1, 3, 224, 224), "@x.npy"),
        ("x=@x.npy", "x", None, None, "@x.npy"),
        ("@x.npy", None, None, None, "@x.npy"),
        ("@a=b.npy", None, None, None, "@a=b.npy"),
        ("x=@a=b.npy", "x", None, None, "@a=b.npy"),
        ("2x3xi64=random:7", None, DType.int64, (2, 3), "random:7"),
        ("gpu_0/data_0=0.5", "gpu_0/data_0", None, None, "0.5"),
        ("0.5", None, None, None, "0.5"),
        ("f64=1", None, DType.float64, (), "1"),
        ("x=bool=true", "x", DType.bool, (), "true"),
        ("x=3xfloat16=1,2,3", "x", DType.float16, (3,), "1,2,3"),
    ],
)
def test_parts(text: str, name: str | None, dtype: DType | None, shape: tuple | None, source: str) -> None:
    argument = parse(text)
    assert (argument.name, argument.dtype, argument.shape, argument.source) == (name, dtype, shape, source)


@pytest.mark.parametrize("text", ["", "x=", "x=2xf32=", "x=@"])
def test_a_value_is_needed(text: str) -> None:
    with pytest.raises(UsageError, match="a value is missing"):
        parse(text)


def test_one_number_fills_a_tensor() -> None:
    np.testing.assert_array_equal(parse("2x2xi32=7").load(), np.full((2, 2), 7, np.int32))


def test_numbers_are_elements() -> None:
    np.testing.assert_array_equal(parse("2x2xf32=1,2,3,4").load(), np.float32([[1, 2], [3, 4]]))


def test_the_program_says_what_the_argument_does_not() -> None:
    loaded = parse("x=0.5").load(tensor("float64", (2,)))
    np.testing.assert_array_equal(loaded, np.full(2, 0.5))


def test_elements_that_are_all_given_tell_how_many_there_are() -> None:
    np.testing.assert_array_equal(parse("x=1,2,3").load(tensor("float32", ("n",))), np.float32([1, 2, 3]))


def test_random_is_reproducible() -> None:
    a, b, c = (parse(f"2x3xf32=random:{seed}").load() for seed in (7, 7, 8))
    assert a.dtype == np.float32
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x=0.5", "no fixed shape"),
        ("x=2x3xf32=1,2,3,4", "4 elements for a tensor of shape"),
        ("x=2xi32=0.5", "invalid literal"),
        ("x=2xi8=300", "out of bounds"),
        ("x=2xbool=7", "not a truth value"),
        ("x=@nowhere.npy", "no file"),
        ("x=@" + "a" * 100_000, "no file"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(text).load(tensor("float32", ("n", 3)))


def test_a_file_that_is_no_array_is_told_for_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(
        UsageError, match=r"it is an image: a program takes its pixels, as an array; numpy\.save writes"
    ):
        parse(f"x=@{tmp_path}/x.npy").load()


def test_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3.0))
    x = parse(f"x=@{tmp_path}/x.npy")
    np.testing.assert_array_equal(x.load(tensor("float64", (3,))), np.arange(3.0))
    with pytest.raises(
        UsageError, match=r"holds float64 elements, but x is float32\[3\]; to convert them, write .*3xfloat32="
    ):
        x.load(tensor("float32", (3,)))
    assert parse(f"x=3xf32=@{tmp_path}/x.npy").load(tensor("float32", (3,))).dtype == np.float32
    with pytest.raises(UsageError, match=r"holds shape \[3\], but \[4\] is asked for"):
        parse(f"x=4xf64=@{tmp_path}/x.npy").load()


def test_pickles_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(UsageError, match="not a readable"):
        parse(f"@{tmp_path}/x.npy").load()


def test_names_are_optional_where_positions_tell() -> None:
    found = match_names([parse("b=1"), parse("2"), parse("3")], ["a", "b", "c"], "input")
    assert {name: argument.source for name, argument in found.items()} == {"b": "1", "a": "2", "c": "3"}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["d=1"], "no input 'd'; there is a, b"),
        (["a=1", "a=2"], "given twice"),
        (["1", "2", "3"], "3 inputs are given"),
    ],
)
def test_names_that_do_not_fit(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        match_names([parse(text) for text in texts], ["a", "b"], "input")


def test_equal_results_are_no_mismatch() -> None:
    x = np.float32([1, np.nan, np.inf])
    assert mismatch("y", x, x.copy(), 0, 0) == ""


def test_a_mismatch_says_where() -> None:
    actual, expected = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    actual[0, 1], actual[1, 2] = 0.5, -2
    text = mismatch("y", actual, expected, 1e-3, 1e-5)
    assert text == (
        "output 'y': 2 of 6 elements differ by more than rtol=0.001, atol=1e-05; the first at [0, 1], "
        "the worst at [1, 2]: expected 0.0, got -2.0"
    )


def test_types_must_agree() -> None:
    text = mismatch("y", np.zeros(2, np.float32), np.zeros(2), 1, 1)
    assert text == "output 'y': expected float64[2], got float32[2]"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("500000", 500_000),
        ("512M", 512 << 20),
        ("2GB", 2 << 30),
        ("1.5 GiB", 3 << 29),
        ("3k", 3072),
        ("1e9", None),
        ("-1", None),
        ("M", None),
        ("", None),
    ],
)
def test_numbers_of_bytes_may_have_a_unit(text, count):
    if count is None:
        with pytest.raises(ValueError, match="not a number of bytes"):
            byte_count(text)
    else:
        assert byte_count(text) == count


def test_an_npz_file_gives_each_input_the_array_of_its_name(tmp_path: Path) -> None:
    path = tmp_path / "feeds.npz"
    np.savez(path, x=np.float32([1, 2]), y=np.float32([3]))
    found = match_names(list(spread([parse(f"@{path}")])), ["y", "x"], "input")
    assert {name: argument.load().tolist() for name, argument in found.items()} == {"x": [1, 2], "y": [3]}
    assert parse(f"x=@{path}").load().tolist() == [1, 2]
    with pytest.raises(UsageError, match=r"feeds\.npz' holds x, y, and none is called 'z'"):
        parse(f"z=@{path}").load()
    alone = tmp_path / "alone.npz"
    np.savez(alone, np.float32([5]))
    assert parse(f"z=@{alone}").load().tolist() == [5]
    (tmp_path / "wrong.npz").write_bytes(b"nothing")
    with pytest.raises(UsageError, match=r"not a readable \.npz file"):
        list(spread([parse(f"@{tmp_path / 'wrong.npz'}")]))


@pytest.mark.parametrize(
    ("text", "count"),
    [("90", 90), ("1.5", 1.5), ("500ms", 0.5), ("2m", 120), (" 2 min", 120), ("1h", 3600), ("1e2", 100), ("s", None)],
)
def test_numbers_of_seconds_may_have_a_unit(text, count):
    if count is None:
        with pytest.raises(ValueError, match="could not convert"):
            seconds(text)
    else:
        assert seconds(text) == count


def test_texts_are_taken_as_they_stand() -> None:
    assert parse("s=a,b,c").load(tensor("string", (3,))).tolist() == ["a", "b", "c"]
    assert all(isinstance(each, str) for each in parse("s=random:1").load(tensor("string", (3,))))
