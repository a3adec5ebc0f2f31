"""Paths in nested objects."""

import itertools

import pytest
from treadle.tvm.runtime import ObjectPath, ObjectPathPair, object_path

ROOT = ObjectPath.root()
FOO = ROOT.attr("foo")
PATHS = [
    ROOT,
    ObjectPath.root("base"),
    FOO,
    ROOT.attr("bar"),
    ROOT.attr(None),
    ROOT.array_index(3),
    ROOT.array_index(4),
    ROOT.missing_array_element(3),
    ROOT.map_value("foo"),
    ROOT.map_value(3),
    ROOT.missing_map_entry(),
    FOO.missing_map_entry(),
    FOO.array_index(2).map_value("k"),
]
TEXTS = ["<root>", "base", "<root>.foo", "<root>.bar", "<root>.<unknown attribute>", "<root>[3]", "<root>[4]"]
TEXTS += ["<root>[<missing element #3>]", '<root>["foo"]', "<root>[3]", "<root>[<missing entry>]"]
TEXTS += ["<root>.foo[<missing entry>]", '<root>.foo[2]["k"]']


@pytest.mark.parametrize(("path", "text"), list(zip(PATHS, TEXTS, strict=True)))
def test_text(path: ObjectPath, text: str) -> None:
    assert str(path) == text


def test_paths_are_equal_where_their_steps_are() -> None:
    for (i, a), (j, b) in itertools.product(enumerate(PATHS), repeat=2):
        assert (a == b) == (i == j)
    assert ObjectPath.root().attr("foo") == FOO
    assert len({FOO, ObjectPath.root().attr("foo")}) == 1


def test_each_step_has_its_kind_length_and_parent() -> None:
    path = FOO.array_index(5)
    assert isinstance(path, object_path.ArrayIndexPath)
    assert isinstance(path.parent, object_path.AttributeAccessPath)
    assert (len(path), len(FOO), len(ROOT)) == (3, 2, 1)
    assert path.parent == FOO
    assert ROOT.parent is None


def test_prefixes() -> None:
    path = FOO.array_index(5)
    assert [path.get_prefix(n) for n in (1, 2, 3)] == [ROOT, FOO, path]
    for length, message in ((0, "at least 1"), (4, "longer than the path itself")):
        with pytest.raises(IndexError, match=message):
            path.get_prefix(length)
    assert [p.is_prefix_of(path) for p in (ROOT, FOO, path, ROOT.attr("bar"), path.attr("x"))] == [1, 1, 1, 0, 0]


def test_pairs() -> None:
    pair = ObjectPathPair(ROOT, FOO)
    assert (pair.lhs_path, pair.rhs_path) == (ROOT, FOO)
