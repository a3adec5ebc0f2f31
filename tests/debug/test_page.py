"""What docs/debugging.md shows is what its commands print."""

from treadle.tools.planted import PAGE, page, without_numbers


def test_the_page_shows_what_its_commands_print() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert without_numbers(page(text)) == without_numbers(text), "run python -m treadle.tools.planted"
