from treadle.tools.dev.derive import docs


def test_pages_derived_from_tables_are_fresh() -> None:
    assert docs.stale() == "", "run python -m treadle.tools.dev.derive.docs"
