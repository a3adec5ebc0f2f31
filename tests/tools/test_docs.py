from treadle.tools.dev.derive import docs, stale


def test_pages_derived_from_tables_are_fresh() -> None:
    assert stale(docs.texts()) == "", "run python -m treadle.tools.dev.derive.docs"
