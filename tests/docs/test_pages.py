"""The blocks of README.md and docs/ run as they stand there, and print what stands there."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from treadle.tools.dev.derive import pages

OF_THEIR_OWN = {
    "docs/debugging.md": "tests/debug/test_page.py",
    "docs/serving.md": "tests/cluster/test_serving_page.py",
    "docs/tvm.md": "tests/tvm/test_docs.py",
}


@pytest.mark.parametrize("page", [page for page in pages.PAGES if page not in OF_THEIR_OWN])
def test_what_a_page_shows_is_what_its_blocks_print(page: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "treadle.tools.dev.derive.pages", "--check", page],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, (
        f"run python -m treadle.tools.dev.derive.pages {page}\n{done.stdout}{done.stderr[-5000:]}"
    )


def test_a_server_of_a_page_takes_a_free_port() -> None:
    for name in ("uvicorn", "starlette", "grpc", "prometheus_client"):
        pytest.importorskip(name)
    with socket.create_server(("127.0.0.1", 0)) as other, pages.reading() as run:
        port = other.getsockname()[1]
        text = f"""```console
$ mkdir models
$ treadle serve models/ --http-port {port} --grpc-port -1 &
$ curl -s -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{port}/v2/health/live
200
```"""
        assert run.page(text) == text


@pytest.mark.parametrize("test", OF_THEIR_OWN.values())
def test_other_pages_have_tests_of_their_own(test: str) -> None:
    assert (Path(__file__).parents[2] / test).exists()


@pytest.mark.parametrize("page", pages.PAGES)
def test_each_block_says_what_it_is(page: str) -> None:
    fences = re.findall(r"^```(.*)$", (pages.ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) % 2 == 0
    assert all(fences[::2])
    assert not any(fences[1::2])


def row(text: str) -> list[str]:
    """The cells of a table's row: of what is measured, the medians."""
    return [re.sub(r"\*\*(.+)\*\* \(.*\)", r"\1", cell.strip()) for cell in text.strip("|").split("|")]


def test_the_front_page_has_figures_of_the_benchmarks_with_their_date_and_machine() -> None:
    front = " ".join((pages.ROOT / "README.md").read_text(encoding="utf-8").split())
    measured = (pages.ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    table = re.findall(r"^\|.*\|$", (pages.ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    shown = [row(each) for each in table if len(row(each)) == 5 and row(each)[1][0].isdigit()]
    one_thread = measured.split("\n## ")[1]
    assert one_thread.startswith("1 thread\n")
    known = {row(each)[0]: row(each)[:5] for each in re.findall(r"^\|.*\|$", one_thread, re.MULTILINE)}
    assert len(shown) == 6
    assert shown == [known[each[0]] for each in shown]
    date, processor = re.findall(r"^- date: (.*)\n- processor: (.*),", measured, re.MULTILINE)[0]
    assert date in front
    assert processor in front
    for name, version in re.findall(r"(onnxruntime|openvino) ([\d.]+\d)", measured.split("\n## ")[0]):
        assert f"{name} {version}" in front.replace("OpenVINO", "openvino")
    assert [each in front for each in re.findall(r"geometric mean (\S+) over 27", measured)] == [True, True]


def test_the_front_page_lists_the_extras() -> None:
    text = (pages.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.findall(
        r"^([\w-]+) = \[", text.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0], re.M
    )
    listed = re.findall(
        r"`([\w-]+)`", "".join(re.findall(r"^\| (`.*?) \|", (pages.ROOT / "README.md").read_text(), re.M))
    )
    ours = {"dev", "bench", "fuzz"}
    assert sorted(listed) == sorted(each for each in extras if each not in ours and not each.endswith("-test"))


def read(text: str) -> str:
    with pages.reading() as run:
        return run.page(text)


def test_what_python_prints_stands_behind_it() -> None:
    page = "```python\nx = {}\n```\n\n```text\nold\n```\n\n```python\nprint(x)\n```\n\n```text\n{}\n```\n"
    now = read(page.format("2", "1"))
    assert now == page.format("2", "2").replace("old\n", "")
    assert pages.difference("page", page.format("2", "1"), now) != ""  # `old` is not printed


def test_numbers_may_differ_and_words_may_not() -> None:
    assert pages.difference("page", "took 1.5 ms, x   y", "took 820 µs, x y") == ""
    assert pages.difference("page", "took 1.5 ms", "took no time") != ""
    assert pages.difference("page", "for 7b57855bc15d52e2", "for e609003183dbaaaa") == ""


def test_lines_left_out_stay_so() -> None:
    page = "```console\n$ printf 'a\\nb\\nc\\nd\\n'\na\n…\nd\n```\n"
    assert read(page) == page


def test_an_error_that_is_shown_is_compared_and_others_end_the_page() -> None:
    page = "```python\n1 / 0\n```\n\n```text\nZeroDivisionError: division by zero\n```\n"
    assert read(page) == page
    with pytest.raises(ZeroDivisionError):
        read("```python\n1 / 0\n```\n")


def test_a_block_that_needs_a_package_is_left_alone_without_it() -> None:
    page = "<!-- needs: no_such_package -->\n```python\n1 / 0\n```\n"
    assert read(page) == page


def test_hidden_code_makes_what_a_reader_has() -> None:
    page = '<!-- hidden:\nopen("a.txt", "w").write("b")\n-->\n```console\n$ cat a.txt\n```\n'
    assert "$ cat a.txt\nb\n```" in read(page)
