"""What notebooks show: short, and names of a hostile model are only text."""

import numpy as np
import treadle
from treadle import debug, function, named, op, var
from treadle.vm.report import NAME, Report

HOSTILE = "<script>alert('x')</script>"


def shown(value: object) -> str:
    html = value._repr_html_()  # type: ignore[attr-defined]
    assert html.startswith("<pre>")
    assert html.endswith("</pre>")
    inside = html[5:-6]
    assert "<" not in inside
    assert '"' not in inside
    return inside


def executable() -> treadle.Executable:
    x = var(HOSTILE, ("n", 4))
    return treadle.compile({HOSTILE: function([x], named(HOSTILE, op.exp(x)))}, progress=False)


def test_names_of_an_executable_are_escaped() -> None:
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;: float32[n, 4]" in shown(executable())


def test_names_in_reports_are_escaped() -> None:
    assert "&lt;script&gt;" in shown(Report([{NAME: HOSTILE}], {HOSTILE: {NAME: HOSTILE}}))
    made = executable()
    assert "&lt;script&gt;" in shown(debug.stats(made, [np.ones((2, 4), np.float32)], function=HOSTILE))
    other = treadle.compile(function([x := var("x", (4,))], x + 1), progress=False)
    assert "&lt;script&gt;" in shown(debug.diff(made, other))


def test_a_large_tensor_is_shown_in_few_lines() -> None:
    tensor = treadle.Tensor(np.zeros((300, 40, 40), np.float32))
    assert shown(tensor).startswith("float32[300, 40, 40] on cpu(0)\n")
    assert len(shown(tensor)) < 6000


def test_a_large_report_is_cut() -> None:
    html = shown(Report([{NAME: f"{number} " * 400} for number in range(500)], {}))
    assert html.count("\n") <= 60
    assert "more lines" in html
    assert len(html) < 20000
