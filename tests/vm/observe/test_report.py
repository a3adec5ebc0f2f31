"""Reports: as a table, as CSV and JSON, and what a machine's profile says."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.formats.messages.errors import FormatError
from treadle.vm.observe.report import Count, Duration, Percent, Ratio, Report


def call(name: str, microseconds: float, percent: float, count: int = 1, **more: object) -> dict:
    metrics = {"Duration (us)": Duration(microseconds), "Percent": Percent(percent), "Count": Count(count)}
    return {"Name": name, **metrics, "Device": "cpu0", **more}


CALLS = [
    call("b", 1000.5, 25.0, R=Ratio(2.0)),
    call("a", 2500.25, 60.0, count=2),
    call("b", 10.0, 0.5, R=Ratio(4.0)),
]
REPORT = Report(
    CALLS,
    {"cpu0": {"Duration (us)": Duration(4000.0), "Count": Count(1), "Device": "cpu0"}},
    {"Executor": "VM", "Number of threads": Count(2)},
)

TABLE = """\
Name        Duration (us)  Percent  Device  Count     R  
a                2,500.25    60.00    cpu0      2        
b                1,010.50    25.50    cpu0      2  3.00  
----------                                               
Sum              3,510.75    85.50              4        
Total            4,000.00             cpu0      1        

Configuration
-------------
Executor: VM
Number of threads: 2
"""  # noqa: W291

metrics = st.one_of(
    st.text(),
    st.integers(0, 1 << 60).map(Count),
    st.floats(allow_nan=False, allow_infinity=False).flatmap(
        lambda x: st.sampled_from([Duration(x), Percent(x), Ratio(x)])
    ),
)
tables = st.dictionaries(st.text(max_size=5), metrics, max_size=4)
reports = st.builds(
    Report, st.lists(tables, max_size=4), st.dictionaries(st.text(max_size=5), tables, max_size=2), tables
)


def test_a_table_adds_up_calls_of_one_kernel() -> None:
    assert str(REPORT) == REPORT.table() == TABLE


def test_a_tables_flags() -> None:
    rows = REPORT.table(sort=False, aggregate=False, col_sums=False).split("\n\n")[0].splitlines()
    assert [row.split()[0] for row in rows] == ["Name", "b", "a", "b"]
    rows = REPORT.table(aggregate=False, col_sums=False).split("\n\n")[0].splitlines()
    assert [row.split()[0] for row in rows] == ["Name", "a", "b", "b"]


def test_calls_of_a_name_with_other_shapes_or_hashes_are_others() -> None:
    calls = [{"Name": "a", "Count": Count(1), "Argument Shapes": shape} for shape in ("float32[1]", "float32[2]")]
    calls += [{"Name": "a", "Count": Count(1), "Hash": text} for text in ("1", "1", "2")]
    lines = Report(calls, {}, {}).table(col_sums=False).split("\n\n")[0].splitlines()
    assert len(lines) == 1 + 2 + 2


def test_csv_is_read_by_others() -> None:
    report = Report([{"Name": 'say "hi", you\nthere', "Count": Count(1)}, {"Duration (us)": Duration(0.1)}], {}, {})
    rows = list(csv.reader(io.StringIO(report.csv())))
    assert rows == [["Count", "Duration (us)", "Name"], ["1", "", 'say "hi", you\nthere'], ["", "0.1", ""]]


def test_json_is_tvms() -> None:
    parsed = json.loads(REPORT.json())
    assert set(parsed) == {"calls", "device_metrics", "configuration"}
    assert parsed["calls"][0] == {
        "Name": {"string": "b"},
        "Duration (us)": {"microseconds": 1000.5},
        "Percent": {"percent": 25.0},
        "Device": {"string": "cpu0"},
        "Count": {"count": 1},
        "R": {"ratio": 2.0},
    }


@given(reports)
def test_json_comes_back(report: Report) -> None:
    again = Report.from_json(report.json())
    assert (again.calls, again.device_metrics, again.configuration) == (
        report.calls,
        report.device_metrics,
        report.configuration,
    )
    assert again.table() == report.table()
    assert len(list(csv.reader(io.StringIO(report.csv(), newline="")))) >= (1 if report.calls else 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "an object for a report"),
        ('{"calls": {}}', "a list for calls"),
        ('{"calls": [{"x": {"furlongs": 1}}]}', "Cannot parse metric of type"),
        ('{"calls": [{"x": 1}]}', "Cannot parse metric of type"),
        ('{"calls": [{"x": {"count": "1"}}]}', "count is not"),
        ('{"device_metrics": 3}', "an object for device_metrics"),
        ('{"configuration": []}', "an object for metrics"),
    ],
)
def test_what_is_no_report_is_refused(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Report.from_json(text)


def test_names_can_be_changed() -> None:
    assert [call["Name"] for call in REPORT.renamed({"a": "VM::A"}).calls] == ["b", "VM::A", "b"]


def test_an_empty_report() -> None:
    assert Report([], {}, {}).csv() == "\n"
    assert "Configuration" in str(Report([], {}, {}))
