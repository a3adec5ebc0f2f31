"""What notebooks show: tables, short, and names of a hostile model are only text."""

from html.parser import HTMLParser

import numpy as np
import treadle
from treadle import debug, function, named, op, var
from treadle.vm.observe.report import NAME, Report

HOSTILE = "<script>alert('x')</script>"
_TAGS = {"br", "details", "div", "pre", "strong", "summary", "table", "td", "th", "tr"}
_ATTRIBUTES = {("style", "text-align:left"), ("style", "text-align:right"), ("colspan", ""), ("open", None)}
_OF_PICTURES = {"svg", "defs", "marker", "g", "path", "rect", "circle", "text", "title"}


class Shown(HTMLParser):
    """The tables and the text of what is shown. Refuses tags and attributes that tables have no need of."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.text, self.pictures, self._open = "", 0, list[str]()
        self.feed(value._repr_html_())  # type: ignore[attr-defined]
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _TAGS | _OF_PICTURES
        if tag in _OF_PICTURES:
            self.pictures += tag == "svg"
            assert not [
                name for name, value in attrs if name.startswith("on") or name in ("style", "href", "xlink:href")
            ]
            self._open.append(tag)
            return
        assert {(name, "" if name == "colspan" else value) for name, value in attrs} <= _ATTRIBUTES
        if tag != "br":
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open and self._open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def executable(name: str = HOSTILE) -> treadle.Executable:
    x = var(name, ("n", 4))
    return treadle.compile({name: function([x], named(name, op.exp(x)))}, progress=False)


def test_an_executable_and_a_machine_show_their_ports() -> None:
    made = executable("main")
    rows = [["function", "", "name", "type"], ["main", "in", "main", "float32[n, 4]"]]
    shown = Shown(made)
    assert shown.rows[:3] == [*rows, ["", "out", "main", "float32[n, 4]"]]
    assert ["primitives", "1"] in shown.rows
    assert Shown(treadle.VirtualMachine(made)).rows == shown.rows[:3]


def test_names_of_an_executable_are_text() -> None:
    assert Shown(executable()).rows[1] == [HOSTILE, "in", HOSTILE, "float32[n, 4]"]


def test_names_in_reports_are_text() -> None:
    assert HOSTILE in Shown(Report([{NAME: HOSTILE}], {HOSTILE: {NAME: HOSTILE}})).text
    made = executable()
    feeds = [np.ones((2, 4), np.float32)]
    assert HOSTILE in Shown(debug.stats(made, feeds, function=HOSTILE)).text
    assert HOSTILE in Shown(debug.compare(made, feeds, against="reference", function=HOSTILE)).text
    other = treadle.compile(function([x := var("x", (4,))], x + 1), progress=False)
    assert HOSTILE in Shown(debug.diff(made, other)).text


def test_a_profile_shows_a_row_for_each_kernel() -> None:
    made = executable("main")
    head, *rows = Shown(treadle.VirtualMachine(made).profile("main", np.ones((2, 4), np.float32))).rows
    kernel = dict(zip(head, next(row for row in rows if row[0] == "exp"), strict=True))
    assert kernel["Node"] == "main"
    assert kernel["Count"] == "1"


def test_a_small_matrix_is_a_table() -> None:
    shown = Shown(treadle.Tensor(np.array([[0.5, 1e-9], [np.nan, 3]], np.float32)))
    assert shown.text.startswith("float32[2, 2] on cpu(0)")
    assert shown.rows == [["0", "1"], ["0.5", "1e-09"], ["nan", "3"]]
    assert Shown(treadle.Tensor(np.array([HOSTILE], object))).rows[1] == [HOSTILE]


def test_a_large_tensor_is_shown_in_few_lines() -> None:
    array = np.zeros((300, 40, 40), np.float32)
    array[0, 0, 0], array[0, 0, 1] = np.inf, 4
    shown = Shown(treadle.Tensor(array))
    assert shown.text.startswith("float32[300, 40, 40] on cpu(0): 0 … 4, mean 8.33335e-06, 1 not finite")
    assert len(shown.text) < 6000


def test_several_results_are_shown_by_name() -> None:
    x = var("x", (2,))
    machine = treadle.VirtualMachine(treadle.compile(function([x], treadle.tuple_(op.sin(x), op.cos(x)))))
    shown = Shown(machine["main"](np.zeros(2, np.float32)))
    assert [row for row in shown.rows if row[0] != "0" or row[1] != "1"] == [["0", "0"], ["1", "1"]]
    assert "sin" in shown.text
    assert "cos" in shown.text


def test_a_large_report_is_cut() -> None:
    shown = Shown(Report([{NAME: f"{number} " * 400} for number in range(500)], {}))
    assert len(shown.rows) == 62
    assert shown.rows[-1] == ["… 442 more rows"]
    assert len(shown.text) < 20000


def test_pictures_are_shown_where_there_is_something_to_draw() -> None:
    made = executable("main")
    machine = treadle.VirtualMachine(made)
    values = np.ones((40, 4), np.float32)
    assert Shown(made).pictures == 1  # the graph
    assert Shown(machine["main"](values)).pictures == 1  # a histogram
    assert Shown(machine.profile("main", values)).pictures == 1
    assert Shown(debug.stats(made, [values])).pictures == 1
    assert Shown(treadle.Tensor(np.ones((), np.float32))).pictures == 0


def test_a_module_shows_its_text() -> None:
    x = var(HOSTILE, ("n", 4))
    shown = Shown(treadle.Module(main=function([x], op.exp(x))))
    assert "func @main" in shown.text
    assert HOSTILE in shown.text
