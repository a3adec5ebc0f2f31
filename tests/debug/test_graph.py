"""Graphs for viewers: every value has the makers that it may have, whichever way the control goes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import treadle
from treadle.formats.messages.errors import ArgumentError, MissingFileError, UnknownFunctionError
from treadle.formats.pictures.program import graphs
from treadle.tools.cli import main


@pytest.fixture(scope="module")
def branching() -> treadle.Executable:
    x, is_large = treadle.var("x", (2, 3)), treadle.var("is_large", (), "bool")
    way = treadle.if_(is_large, treadle.op.exp(x), treadle.op.sin(x))
    main = treadle.function([x, is_large], treadle.op.add(way, x))
    return treadle.compile(treadle.Module(main=main), progress=False)


def test_a_value_has_a_maker_of_each_branch(branching):
    (graph,) = graphs(branching)
    makers = {node.operators: node.inputs for node in graph.nodes if node.operators}
    named = {i: node.operators for i, node in enumerate(graph.nodes)}
    sources = [{named.get(node, "x") for node, _ in each} for each in makers[("add",)]]
    assert sources == [{("exp",), ("sin",)}, {"x"}]


def test_netron_is_given_values_that_are_made(branching, tmp_path):
    path = tmp_path / "model.netron"
    treadle.debug.save_graph(branching, path)
    assert path.read_text().startswith('{"signature": "netron:')  # by which Netron knows it
    (module,) = json.loads(path.read_text())["modules"]
    made = {
        value
        for part in [*module["inputs"], *(o for n in module["nodes"] for o in n["outputs"])]
        for value in part["value"]
    }
    read = {
        value
        for part in [*module["outputs"], *(i for n in module["nodes"] for i in n["inputs"])]
        for value in part["value"]
    }
    assert read <= made == {argument["name"] for argument in module["arguments"]}
    shaped = next(each for each in module["arguments"] if each["name"] == "%x")
    assert shaped["type"] == {"dataType": "float32", "shape": {"dimensions": [2, 3]}}


def test_netron_opens_it_by_its_name(branching, tmp_path):
    netron = pytest.importorskip("netron")
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node.js")
    treadle.debug.save_graph(branching, tmp_path / "model.netron")
    command = [node, Path(__file__).with_name("netron.mjs"), Path(netron.__file__).parent, tmp_path / "model.netron"]
    opened = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)
    assert opened["format"] == "Treadle"
    (module,) = opened["modules"]
    assert [node["type"] for node in module["nodes"]] == ["exp", "sin", "add", "ret"]
    assert next(node for node in module["nodes"] if node["type"] == "add")["inputs"] == [2, 1]


def test_model_explorer_is_given_edges_between_nodes(branching, tmp_path):
    path = tmp_path / "model.explorer.json"
    treadle.debug.save_graph(branching, path, function="main")
    (graph,) = json.loads(path.read_text())["graphs"]
    outputs = {node["id"]: {each["id"] for each in node["outputsMetadata"]} for node in graph["nodes"]}
    edges = [edge for node in graph["nodes"] for edge in node.get("incomingEdges", ())]
    assert edges
    assert all(edge["sourceNodeOutputId"] in outputs[edge["sourceNodeId"]] for edge in edges)
    assert {"exp", "sin", "add"} <= {node["label"] for node in graph["nodes"]}


def test_what_cannot_be_written_is_named(branching, tmp_path):
    with pytest.raises(ArgumentError, match=r"ends in neither \.netron \(Netron\) nor \.explorer\.json"):
        treadle.debug.save_graph(branching, tmp_path / "model.json")
    with pytest.raises(MissingFileError, match=r"none\.trdl cannot be read"):
        treadle.debug.save_graph("none.trdl", tmp_path / "model.netron")
    with pytest.raises(ArgumentError, match=r"save_graph: .*, got an int"):
        treadle.debug.save_graph(3, tmp_path / "model.netron")
    with pytest.raises(UnknownFunctionError, match="mian"):
        treadle.debug.save_graph(branching, tmp_path / "model.netron", function="mian")


def test_the_command_writes_the_graph_of_a_file(branching, tmp_path, capsys):
    branching.export_library(tmp_path / "model.trdl")
    out = tmp_path / "model.explorer.json"
    assert main(["graph", str(tmp_path / "model.trdl"), "-o", str(out)]) == 0
    assert json.loads(out.read_text())["graphs"][0]["id"] == "main"
    assert str(out) in capsys.readouterr().err
    assert main(["graph", str(tmp_path / "model.trdl"), "-o", str(tmp_path / "model.json")]) != 0
