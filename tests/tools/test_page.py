"""The page of `treadle inspect`: what is in it, that names of a model are text there, and, in a browser, its clicks and keys."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import Module, TensorType, function, global_function, if_, named, op, var, while_loop
from treadle.debug.subject import Subject, subject
from treadle.formats.pictures.graph import drawn
from treadle.formats.pictures.program import graphs
from treadle.tools import digits
from treadle.tools.cli import main
from treadle.tools.page.align import aligned
from treadle.tools.page.gather import beside, seen
from treadle.tools.page.page import written

from ..timing import soon

HOSTILE = "</script><img src=x onerror=\"document.title='hurt'\">'&<!--\u2028]]>"


@pytest.fixture(scope="module")
def program() -> treadle.Executable:
    """Functions that call one another and themselves, a loop, and a hostile name."""
    number, block = TensorType("int64"), TensorType("float32", (8, 8))
    weights = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    x, n, depth = var(HOSTILE, block), var("n", number), var("depth", number)
    tree = global_function("tree")
    branch = op.relu(tree(x * 0.5, depth - 1))
    trees = function([x, depth], if_(depth <= 0, named(HOSTILE, op.tanh(x @ weights)), branch), result_type=block)
    steps = while_loop(lambda i, v: i < n, lambda i, v: (i + 1, op.sin(v)), [n * 0, tree(x, depth)])
    return treadle.compile(Module(main=function([x, n, depth], steps[1]), tree=trees), progress=False)


def feeds() -> dict[str, Any]:
    return {HOSTILE: np.ones((8, 8), np.float32), "n": np.int64(3), "depth": np.int64(2)}


@pytest.fixture(scope="module")
def text(program) -> str:
    return written([seen(HOSTILE, Subject(program), feeds())], [])


class Markup(HTMLParser):
    """The elements of a page, and its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.held: dict[str, str] = {}
        self.policy, self._inside = "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.add(tag)
        self.attributes |= found.keys()
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"] or ""
        self._inside = found.get("id") or tag if tag in ("script", "style") else ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.held[self._inside] = self.held.get(self._inside, "") + data

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


def facts_of(text: str, name: str = "facts") -> Any:
    """What the script reads."""
    return json.loads(gzip.decompress(base64.b64decode(Markup(text).held[name])))


def test_the_page_is_alone_and_runs_its_own_script_only(text):
    found = Markup(text)
    for name in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(found.held[name].encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in found.policy
    assert found.policy.startswith("default-src 'none'")
    assert not found.tags & {"img", "link", "iframe", "object", "embed", "a", "form"}
    assert not found.attributes & {"style", "src", "href", "action"}
    assert not [name for name in found.attributes if name.startswith("on")]
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}


def test_names_of_a_model_are_text(text):
    found = Markup(text)
    assert "img" not in found.tags
    assert HOSTILE not in text
    facts = facts_of(text)
    assert facts["programs"][0]["name"] == HOSTILE
    assert HOSTILE in json.dumps(
        [node["label"] for node in facts["programs"][0]["nodes"].values()], ensure_ascii=False
    ).replace('\\"', '"')


def test_names_like_that_of_the_arrow_stay():
    x = var("x#arrow", TensorType("float32", (2,)))
    executable = treadle.compile(function([x], op.relu(x)), embed_native=False, progress=False)
    found = drawn(graphs(executable), "arrow1")
    assert ">x#arrow<" in found
    assert 'marker-end="url(#arrow1)"' in found


def test_facts_name_functions_kernels_and_times(text):
    facts = facts_of(text)
    (found,) = facts["programs"]
    assert {each["kind"] for each in found["nodes"].values()} - facts["kinds"].keys() == {"input"}
    assert [each["name"] for each in found["functions"]] == ["main", "tree"]
    timed = [line for each in found["functions"] for line in each["code"] if line[6]]
    assert {line[1] for line in timed} == {"call"}
    (texts,) = facts_of(text, "texts")
    assert all(each["python"].startswith("def kernel(") for each in texts.values())
    assert any("define" in each["llvm"] for each in texts.values())


def test_a_program_that_cannot_be_called_is_shown_all_the_same(program):
    text = written([seen("program", Subject(program), None, why="no --input for 'x'")], [])
    assert "There is no timeline: no --input for &#x27;x&#x27;." in text
    assert "<svg" in text


def test_kernels_that_do_the_same_model_nodes_are_aligned():
    x = var("x", (4, 4))
    made = named("second", op.exp(named("first", op.sqrt(x))))
    fused, apart = (
        graphs(treadle.compile(Module(main=function([x], made)), opt_level=level, progress=False, embed_native=False))
        for level in (2, 0)
    )
    (group,) = aligned([fused, apart])
    assert [len(members) for members in group.members] == [1, 2]


def test_programs_are_compared_side_by_side(program):
    x = var("x", (8, 8))
    weights = np.eye(8, dtype=np.float32)
    right, wrong = (
        treadle.compile(Module(main=function([x], named("product", x @ each))), progress=False)
        for each in (weights, weights * 1.5)
    )
    values = {"x": np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)}
    both = [seen(name, Subject(each), values) for name, each in (("wrong", wrong), ("right", right))]
    found = beside(both[0], values, right, "right")
    assert found.first is not None
    text = written(both, [found], "compare")
    assert "wrong beside right" in text
    assert "differs from" in text
    facts = facts_of(text)
    (node,) = (each for each in facts["programs"][0]["nodes"].values() if each.get("first"))
    assert node["error"] > 1
    assert len(facts["aligned"]) == 1


def test_what_narrow_numbers_cost_is_shown_at_their_kernels():
    pytest.importorskip("onnxruntime")
    of = subject(digits.MODEL, precision="bfloat16")
    values = {"images": np.random.default_rng(0).random((2, 1, 8, 8), np.float32)}
    first = seen("digits", of, values)
    found = beside(first, values, None)
    assert {error.text.partition(" dB")[1] for error in found.errors.values()} == {" dB"}
    assert all(0.01 <= error.grade <= 100 for error in found.errors.values())
    assert "≥ 50 dB" in facts_of(written([first], [found]))["ends"]


# ---- the commands ----


_TRACE = "--trace x.html: the name must end with .json or .pftrace; --html x.html writes that"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("profile none.onnx --trace x.html", _TRACE),
        ("profile none.onnx --flame x.json", "--flame x.json: the name must end with .svg; --trace x.json writes that"),
        ("profile none.onnx --html x.htm", "--html x.htm: the name must end with .html"),
        ("compare none.onnx --html x", "--html x: the name must end with .html"),
        ("inspect none.onnx -o x.pdf", "--output x.pdf: the name must end with .html"),
    ],
)
def test_a_wrong_ending_is_refused_before_the_model_is_read(arguments, said, capsys):
    assert main(arguments.split()) == 2
    assert said in capsys.readouterr().err


def test_the_commands_write_pages(tmp_path, capsys):
    x = var("x", ("n", 8))
    file = tmp_path / "model.trdl"
    treadle.compile(Module(main=function([x], op.exp(x))), progress=False).export_library(file)
    outputs = [tmp_path / name for name in ("inspect.html", "profile.html", "flame.svg", "compare.html")]
    assert main(["inspect", str(file), "-o", str(outputs[0]), "--against", "reference"]) == 0
    assert main(["profile", str(file), "--html", str(outputs[1]), "--flame", str(outputs[2])]) == 0
    assert main(["compare", str(file), "--html", str(outputs[3])]) == 0
    starts = [re.search(r'data-start="(\w+)"', path.read_text()) for path in outputs]
    assert [found and found[1] for found in starts] == ["compare", "time", None, "compare"]
    assert outputs[2].read_text().startswith("<svg")
    assert "inspect.html: " in capsys.readouterr().err


@pytest.mark.thorough
def test_a_thousand_nodes_take_seconds_and_few_bytes(tmp_path):
    x = treadle.var("x", (4, 4))
    made = x
    for number in range(500):
        made = named(f"node{number}", op.permute_dims(op.exp(made), axes=(1, 0)))
    executable = treadle.compile(Module(main=function([x], made)), opt_level=0, progress=False)
    with soon(20):
        text = written([seen("long", Subject(executable), {"x": np.zeros((4, 4), np.float32)})], [])
    assert text.count('class="node"') > 900
    assert len(text) < 5_000_000


# ---- in a browser ----


@pytest.fixture
def opened(page: Any, text: str, tmp_path: Path) -> Iterator[Any]:
    """The page in a browser, which must tell of no error to the end."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    file = tmp_path / "report.html"
    file.write_text(text, encoding="utf-8")
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]", timeout=30_000)
    yield page
    assert errors == []
    assert page.title() == f"{HOSTILE}: Treadle"


def test_a_hostile_name_hurts_nobody(opened):
    for tab in opened.locator("nav button").all():
        tab.click()
    assert opened.locator("img").count() == 0
    assert HOSTILE[:9] in opened.locator("header .program").inner_text()


def test_nodes_are_found_coloured_and_described(opened):
    opened.keyboard.press("/")
    opened.keyboard.type("tanh")
    assert opened.locator("#found").inner_text() == "1 found"
    opened.keyboard.press("Enter")
    side = opened.locator("aside")
    assert "tanh" in side.locator("h2").inner_text()
    assert "matmul_packed, tanh" in side.inner_text()
    for mode in ("seconds", "memory", "precision", "error", "kind"):
        opened.locator("#mode").select_option(mode)
        assert opened.locator(".legend").inner_text()
    opened.locator("#query").fill("")
    node = opened.locator(".views .node", has_text="sin").first
    node.click()
    assert side.locator("h2").inner_text() == "sin"
    assert "time of a call" in side.inner_text()


def test_a_node_leads_to_its_code_and_kernel(opened):
    opened.locator("nav [data-tab=graph]").click()
    opened.locator(".views .node", has_text="sin").first.click()
    opened.locator("aside button", has_text="Bytecode").click()
    assert "sin" in opened.locator("#tab-code .line.picked").text_content()
    opened.keyboard.press("k")
    opened.locator("#tab-kernels .text", has_text="def kernel").wait_for(timeout=30_000)
    opened.locator("[data-form=asm]").click()
    opened.locator("#tab-kernels .text", has_text=".section").wait_for(timeout=30_000)
    opened.locator("#tab-kernels .list button", has_text="tanh").click()
    assert "tanh" in opened.locator("#tab-kernels .head").inner_text()


def test_keys_move_along_edges_and_through_the_page(opened):
    opened.keyboard.press("2")
    assert opened.locator("nav [aria-selected=true]").inner_text() == "Graph"
    opened.locator(".views .node", has_text="tanh").first.click()
    opened.locator(".views .of").first.focus()
    opened.keyboard.press("ArrowDown")
    assert opened.locator("aside h2").inner_text() == "result"
    opened.keyboard.press("ArrowUp")
    assert "tanh" in opened.locator("aside h2").inner_text()
    opened.keyboard.press("Escape")
    assert opened.locator("aside h2").inner_text() == "Nothing is selected"
    opened.keyboard.press("Enter")
    assert opened.locator("aside .chip").first.inner_text() == "input"
    opened.keyboard.press("?")
    assert opened.locator("dialog").is_visible()
    opened.keyboard.press("?")
    before = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    opened.keyboard.press("t")
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_the_graph_is_zoomed_and_moved(opened):
    opened.locator("nav [data-tab=graph]").click()
    svg = opened.locator(".views svg")
    first = svg.get_attribute("viewBox")
    opened.mouse.move(500, 400)
    opened.mouse.wheel(0, -300)
    opened.wait_for_function(
        "before => document.querySelector('.views svg').getAttribute('viewBox') !== before", arg=first
    )
    zoomed = svg.get_attribute("viewBox")
    opened.mouse.down()
    opened.mouse.move(560, 450, steps=4)
    opened.mouse.up()
    assert svg.get_attribute("viewBox").split()[2:] == zoomed.split()[2:]
    assert svg.get_attribute("viewBox") != zoomed


def test_times_are_zoomed_and_tables_are_sorted(opened):
    opened.locator("nav [data-tab=time]").click()
    bar = opened.locator("svg.flame .mark", has_text="tree").first
    width = bar.bounding_box()["width"]
    bar.click()
    assert bar.bounding_box()["width"] >= width
    opened.locator("svg.flame").dblclick(position={"x": 5, "y": 5})
    labels = opened.locator("svg.timeline > text")
    before = labels.all_text_contents()
    box = opened.locator("svg.timeline").bounding_box()
    opened.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    opened.mouse.wheel(0, -600)
    opened.wait_for_function(
        "before => [...document.querySelectorAll('svg.timeline > text')].map(each => each.textContent).join() !== before",
        arg=",".join(before),
    )
    opened.locator("nav [data-tab=roofline]").click()
    head = opened.locator("#tab-roofline th", has_text="primitive")
    head.click()
    names = opened.locator("#tab-roofline td:nth-child(7)").all_inner_texts()
    assert names == sorted(names, key=str.lower, reverse=True)


def test_pages_fit_from_1280_pixels_on(opened):
    for width in (1280, 1920):
        opened.set_viewport_size({"width": width, "height": 900})
        for tab in opened.locator("nav button").all():
            tab.click()
            assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
