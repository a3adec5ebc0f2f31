"""The debugger as an editor sees it: messages of the Debug Adapter Protocol over a socket and over a process's streams, each held
against the protocol's own schema."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import (
    DType,
    Module,
    TensorType,
    data_type,
    for_loop,
    function,
    global_function,
    match_,
    op,
    var,
    while_loop,
)
from treadle.debug.debugger.wire import MOST_BODY_BYTES
from treadle.vm.machine import VirtualMachine
from treadle.vm.values import DataValue

from ...package import ROOT
from .dap_client import Client, Refused

HERE = Path(__file__)
List = data_type("DapList = Nil | Cons(float32[2], DapList)")
VECTOR = TensorType(DType.of("float32"), (2,))
X = np.array([1, 2, 3, 0.6], np.float32)


def below(i: Any, s: Any) -> Any:
    lower = s * 2.0 - 1.0
    return op.sqrt(lower)


LINE = below.__code__.co_firstlineno + 1  # of `lower`


@pytest.fixture(scope="module")
def executable() -> Any:
    items, total, x, y, z = var("items", List()), global_function("total"), var("x", (4,)), var("y", ()), var("z", (4,))
    clauses = {List.Nil: np.zeros(2, np.float32), List.Cons: lambda head, rest: head + total(rest)}
    forever = while_loop(lambda v: op.greater(v, -1.0), lambda v: v * 1.0, [y])
    module = Module(
        main=function([x], for_loop(20, below, [x])[0]),
        total=function([items], match_(items, clauses), result_type=VECTOR),
        endless=function([y], forever),
        taken=function([z], op.take(z, op.cast(z, dtype="int64"), axis=0)),
    )
    return treadle.compile(module, entry=["main", "total", "endless", "taken"], progress=False)


@pytest.fixture(scope="module")
def machine(executable: Any) -> VirtualMachine:
    return VirtualMachine(executable)


@pytest.fixture(scope="module")
def check() -> Callable[[dict[str, Any]], None]:
    """Holds a message against the schema that debugpy ships."""
    import debugpy
    import jsonschema

    folder = Path(debugpy.__file__).parent / "_vendored" / "pydevd" / "_pydevd_bundle" / "_debug_adapter"
    schema = json.loads((folder / "debugProtocol.json").read_text(encoding="utf-8"))
    definitions = schema["definitions"]
    validators: dict[str, Any] = {}

    def name(message: dict[str, Any]) -> str:
        word = message.get("command") or message.get("event")
        word = word[0].upper() + word[1:]
        if message["type"] == "response" and not message["success"]:
            return "ErrorResponse"
        return word + message["type"].capitalize()

    def checked(message: dict[str, Any]) -> None:
        which = name(message)
        if which in ("LaunchRequest", "AttachRequest"):
            return  # their arguments are the adapter's own
        assert which in definitions, which
        if which not in validators:
            validators[which] = jsonschema.Draft4Validator({"definitions": definitions, **definitions[which]})
        errors = [f"{which}: {each.json_path}: {each.message}" for each in validators[which].iter_errors(message)]
        assert errors == []

    return checked


class Attached:
    """A client that is attached to this process, and calls that are made beside it."""

    def __init__(self, check: Any) -> None:
        self.listening = treadle.debug.listen(0)
        self.socket = socket.create_connection(("127.0.0.1", self.listening.port))
        self.client = Client(self.socket, self.socket.makefile("wb"), check)
        self.results: list[Any] = []

    def configure(self) -> None:
        self.client.ask("configurationDone")
        assert self.listening.wait_for_client(60)

    def call(self, *call: Any) -> threading.Thread:
        """`machine.call(…)` in a thread of its own, which puts the result, or the error, into `results`."""
        made, args = call[0], call[1:]

        def run() -> None:
            try:
                self.results.append(made(*args))
            except Exception as error:
                self.results.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


@pytest.fixture
def attached(check: Any) -> Iterator[Attached]:
    made = Attached(check)
    yield made
    made.client.close()
    made.listening.close()


def test_a_call_stops_goes_on_and_back(attached: Attached, machine: VirtualMachine) -> None:
    client = attached.client
    client.begin("attach")
    asked = [{"line": LINE, "condition": "iteration > 0"}, {"line": LINE + 1, "hitCondition": "> 1"}, {"line": 100_000}]
    unset = client.ask("setBreakpoints", source={"path": str(HERE)}, breakpoints=asked)["breakpoints"]
    assert [each["verified"] for each in unset] == [False] * 3
    attached.configure()
    thread = attached.call(machine["main"], X)
    assert [client.event("breakpoint")["breakpoint"]["verified"] for _ in asked] == [True, True, False]
    first = client.stopped()
    assert first["reason"] == "breakpoint"
    (frame,) = client.frames()
    assert frame["source"]["path"] == str(HERE)
    assert (frame["line"], frame["name"].rpartition(", ")[2]) == (LINE, "iteration 1")
    client.go("continue")
    assert client.frames()[0]["name"].endswith("iteration 2")
    assert client.go("reverseContinue")["reason"] == "breakpoint"
    assert client.frames()[0]["name"].endswith("iteration 1")
    assert client.go("reverseContinue")["reason"] == "entry"
    for motion in ("next", "stepIn", "next", "stepBack"):
        assert client.go(motion)["reason"] == "step"
    client.ask("setBreakpoints", source={"path": str(HERE)}, breakpoints=[])
    client.ask("continue", threadId=1)
    thread.join(60)
    np.testing.assert_array_equal(attached.results[0], machine["main"](X))


def test_registers_are_tensors_whose_elements_come_by_pages(attached: Attached, machine: VirtualMachine) -> None:
    client = attached.client
    client.begin("attach", stopOnEntry=True)
    attached.configure()
    thread = attached.call(machine["main"], X)
    client.stopped()
    found = client.registers()
    r0 = found["r0"]
    assert (r0["type"], r0["indexedVariables"], r0["namedVariables"]) == ("float32[4]", 4, 2)
    page = client.children(r0["variablesReference"], filter="indexed", start=1, count=2)
    assert [(each["name"], each["value"]) for each in page] == [("[1]", "2.0"), ("[2]", "3.0")]
    statistics, origin = client.children(r0["variablesReference"], filter="named")
    values = {each["name"]: each["value"] for each in client.children(statistics["variablesReference"])}
    assert (values["size"], values["greatest"]) == ("4", "3.0")
    assert client.children(origin["variablesReference"])[0]["value"] == "argument x"
    assert origin["presentationHint"]["lazy"]
    made = client.ask("evaluate", expression="max(abs(r0)) * 2", frameId=1)
    assert made["result"] == "6.0"
    with pytest.raises(Refused, match="there is no function 'open'"):
        client.ask("evaluate", expression="open('x')", frameId=1)
    client.ask("setVariable", variablesReference=r0["variablesReference"], name="[3]", value="2")
    changed = client.ask(
        "setVariable", variablesReference=found[""]["variablesReference"], name="r0", value="r0 * 2 - 1"
    )
    assert changed["value"] == "[1., 3., 5., 3.]"
    with pytest.raises(Refused, match="there is no element"):
        client.ask("setVariable", variablesReference=r0["variablesReference"], name="9" * 5000, value="2")
    with pytest.raises(Refused, match="there is no function 'exec'"):
        client.ask("setVariable", variablesReference=found[""]["variablesReference"], name="r0", value="exec(1)")
    client.ask("continue", threadId=1)
    thread.join(60)
    np.testing.assert_array_equal(attached.results[0], machine["main"](np.array([1, 3, 5, 3], np.float32)))
    with pytest.raises(Refused, match="no call is debugged now"):
        client.children(r0["variablesReference"])


def test_a_register_is_watched_and_nan_stops(attached: Attached, machine: VirtualMachine) -> None:
    client = attached.client
    client.begin("attach", stopOnEntry=True, stopOnExit=True)
    client.ask("setExceptionBreakpoints", filters=["nan", "error"])
    attached.configure()
    thread = attached.call(machine["main"], X)
    client.stopped()
    stop = client.go("continue")
    assert stop["reason"] == "exception"
    assert "nan" in stop["text"]
    info = client.ask("exceptionInfo", threadId=1)
    assert (info["exceptionId"], client.frames()[0]["name"].rpartition(", ")[2]) == ("NaN", "iteration 1")
    client.ask("setExceptionBreakpoints", filters=[])
    scope = client.registers()[""]["variablesReference"]
    data = client.ask("dataBreakpointInfo", variablesReference=scope, name="r0")
    assert data["accessTypes"] == ["write", "read"]
    assert client.ask("dataBreakpointInfo", variablesReference=scope, name="i0")["dataId"] is None
    set_ = client.ask("setDataBreakpoints", breakpoints=[{"dataId": data["dataId"], "hitCondition": "2"}])
    assert set_["breakpoints"][0]["verified"]
    stops = [client.go("continue") for _ in range(2)]
    assert [each["reason"] for each in stops] == ["data breakpoint", "exit"]
    assert client.frames() == []
    assert client.go("reverseContinue")["reason"] == "data breakpoint"
    client.ask("setDataBreakpoints", breakpoints=[])
    assert client.go("continue")["reason"] == "exit"
    client.ask("continue", threadId=1)
    thread.join(60)
    assert np.isnan(attached.results[0].numpy()).any()


def test_an_error_is_looked_at_before_the_program_gets_it(attached: Attached, machine: VirtualMachine) -> None:
    client = attached.client
    client.begin("attach")
    attached.configure()
    thread = attached.call(machine["taken"], np.array([0, 1, 9, 2], np.float32))
    stop = client.stopped()
    assert (stop["reason"], "index 9 is out of range" in stop["text"]) == ("exception", True)
    assert client.ask("exceptionInfo", threadId=1)["exceptionId"] == "IndexOutOfRangeError"
    assert client.go("stepBack")["reason"] == "step"
    assert client.go("continue")["reason"] == "exception"
    client.ask("continue", threadId=1)
    thread.join(60)
    assert "index 9" in str(attached.results[0])
    budget = attached.call(lambda: machine.call("main", [X], max_steps=30))
    assert "more than 30 steps" in client.stopped()["text"]
    client.ask("continue", threadId=1)
    budget.join(60)
    assert isinstance(attached.results[1], treadle.errors.BudgetExceededError)


def test_code_is_disassembled_and_stopped_at_by_address(attached: Attached, machine: VirtualMachine) -> None:
    client = attached.client
    client.begin("attach", stopOnEntry=True)
    attached.configure()
    thread = attached.call(machine["total"], DataValue("Cons", ([1, 1], DataValue("Cons", ([2, 2], DataValue("Nil"))))))
    client.stopped()
    (frame,) = client.frames()
    at = frame["instructionPointerReference"]
    shown = client.ask("disassemble", memoryReference=at, instructionOffset=-100, instructionCount=200)["instructions"]
    here = next(n for n, each in enumerate(shown) if each["address"] == at and "symbol" in each)
    assert shown[here]["symbol"] == "total+0"
    assert len(shown) == 200
    assert shown[0]["presentationHint"] == "invalid"
    invoke = next(
        each for each in shown if each["instruction"].startswith("invoke") and each["symbol"].startswith("total")
    )
    stands = client.ask(
        "setInstructionBreakpoints",
        breakpoints=[{"instructionReference": invoke["address"]}, {"instructionReference": "0x1"}],
    )
    assert [each["verified"] for each in stands["breakpoints"]] == [True, False]
    assert client.go("continue")["reason"] == "breakpoint"
    assert client.frames()[0]["instructionPointerReference"] == invoke["address"]
    (items,) = [each for each in client.registers().values() if each.get("type", "").startswith("DapList")][:1]
    fields = client.children(items["variablesReference"])
    assert fields[0]["value"] == "[2., 2.]"  # of the rest, which the call is of
    client.ask("setInstructionBreakpoints", breakpoints=[])
    client.go("next", granularity="instruction")
    assert len(client.frames()) == 1
    client.go("stepBack", granularity="instruction")
    client.go("stepIn", granularity="instruction")
    assert [each["name"] for each in client.frames()] == ["total", "total"]
    assert client.ask("stackTrace", threadId=1, startFrame=1, levels=1)["stackFrames"][0]["id"] == 2
    assert "r1" in client.registers(2)
    client.go("stepOut")
    assert len(client.frames()) == 1
    client.ask("continue", threadId=1)
    thread.join(60)
    assert attached.results[0].numpy().tolist() == [3, 3]


def test_a_call_that_runs_is_paused_and_given_other_breakpoints(attached: Attached, machine: VirtualMachine) -> None:
    client = attached.client
    client.begin("attach")
    attached.configure()
    attached.call(lambda: machine.call("endless", [1.0]))
    client.ask("threads")
    client.ask(
        "setFunctionBreakpoints",
        breakpoints=[{"name": "greater", "logMessage": "at {iteration}: {r0 + 1}", "hitCondition": "% 1000"}],
    )
    assert re.fullmatch(r"at \d+: 2\.0\n", client.event("output")["output"])
    with pytest.raises(Refused, match="the call is running"):
        client.ask("evaluate", expression="r0", frameId=1)
    client.ask("setFunctionBreakpoints", breakpoints=[])
    assert client.go("pause")["reason"] == "pause"
    assert client.frames()
    client.ask("setFunctionBreakpoints", breakpoints=[{"name": "iteration 3"}])
    assert client.go("reverseContinue")["reason"] == "function breakpoint"
    assert client.frames()[0]["name"].endswith("iteration 3")
    assert client.go("restart")["reason"] == "entry"


def test_a_client_that_goes_leaves_the_call_to_itself(attached: Attached, machine: VirtualMachine) -> None:
    attached.client.begin("attach", stopOnEntry=True)
    attached.configure()
    thread = attached.call(machine["main"], X)
    attached.client.stopped()
    # another thread's call, and one that begins meanwhile, are nobody's business
    assert machine["main"](np.ones(4, np.float32)).numpy().tolist() == [1] * 4
    attached.socket.shutdown(socket.SHUT_RDWR)
    thread.join(60)
    assert np.isnan(attached.results[0].numpy()).any()
    while machine._calls.hooked is not None:
        time.sleep(0.01)
    other = socket.create_connection(("127.0.0.1", attached.listening.port))
    client = Client(other, other.makefile("wb"))
    client.begin("attach")
    client.close()
    other.close()


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "expected a header"),
        (b"Content-Length: 99999999\r\n\r\n", f"at most {MOST_BODY_BYTES} are read"),
        (b"Content-Length: -1\r\n\r\n", "at most"),
        (b"Content-Length: 1\r\nX-Other: 1\r\n\r\n1", "expected a header"),
        (b"\r\n\r\n", "expected a header"),
        (b"a" * 5000, "expected a header"),
        (b"Content-Length: 9\r\n\r\n{" + b" " * 8, "not JSON"),
        (b"Content-Length: 100000\r\n\r\n" + b"[" * 100_000, "not JSON"),
        (b"Content-Length: 2\r\n\r\n\xff\xfe", "not JSON"),
        (b"Content-Length: 2\r\n\r\n[]", "expected a request"),
        (b'Content-Length: 30\r\n\r\n{"type":"request","seq":"one"} ', "expected a request"),
    ],
)
def test_what_is_no_request_is_refused(attached: Attached, sent: bytes, answer: str) -> None:
    attached.socket.sendall(sent)
    attached.socket.shutdown(socket.SHUT_WR)
    attached.socket.settimeout(60)
    received = b"".join(iter(lambda: attached.socket.recv(1 << 16), b""))
    assert answer in received.decode()


def test_requests_that_make_no_sense_are_answered(attached: Attached, machine: VirtualMachine) -> None:
    """Each with values of other types, numbers that do not exist, before a call and in one; the connection stays."""
    client = attached.client
    client._check = None
    client.begin("attach", stopOnEntry=True)
    source, big = {"path": str(HERE)}, 1 << 70
    calls: list[tuple[str, dict[str, Any]]] = [
        ("noSuchRequest", {}),
        ("__init__", {}),
        ("launch", {"program": "x"}),
        ("setBreakpoints", {"source": 3}),
        ("setBreakpoints", {"source": source, "breakpoints": [{"line": "one"}]}),
        ("setBreakpoints", {"source": source, "breakpoints": [3]}),
        ("setBreakpoints", {"source": source, "breakpoints": [{"line": 1}] * 1001}),
        ("setExceptionBreakpoints", {"filters": ["all", {}]}),
        ("setInstructionBreakpoints", {"breakpoints": [{"instructionReference": "here"}]}),
        ("evaluate", {"expression": "r" + "9" * 5000, "frameId": 1}),
        ("evaluate", {"expression": "(" * 5000, "frameId": 1}),
        ("evaluate", {"expression": "r0", "frameId": big}),
        ("stackTrace", {"startFrame": "a"}),
        ("scopes", {"frameId": -5}),
        ("variables", {"variablesReference": big}),
        ("setVariable", {"variablesReference": 1, "name": {}, "value": 1}),
        ("source", {"sourceReference": -1}),
        ("source", {"source": []}),
        ("disassemble", {"memoryReference": "0x0", "instructionCount": big}),
        ("dataBreakpointInfo", {"name": 1}),
        ("exceptionInfo", {}),
    ]
    for each, arguments in calls:
        with pytest.raises(Refused):
            client.ask(each, **arguments)
    attached.configure()
    thread = attached.call(machine["main"], X)
    client.stopped()
    for each, arguments in calls:
        with pytest.raises(Refused):
            client.ask(each, **arguments)
    wrong = [
        client.ask(
            "setFunctionBreakpoints",
            breakpoints=[
                {"name": "nothing"},
                {"name": "main", "condition": "__import__('os')"},
                {"name": "main+" + "9" * 5000},
                {"name": f"{HERE.name}:" + "9" * 5000},
            ],
        ),
        client.ask(
            "setDataBreakpoints",
            breakpoints=[{"dataId": "main"}, {"dataId": "main:r" + "1" * 5000}, {"dataId": "x:r0"}],
        ),
        client.ask("setBreakpoints", source={"sourceReference": 1}, breakpoints=[{"line": -3}, {"line": big}]),
        client.ask("setInstructionBreakpoints", breakpoints=[{"instructionReference": "f" * 5000}]),
        client.ask("setBreakpoints", source=source, breakpoints=[{"line": LINE, "hitCondition": "often"}]),
    ]
    assert [point["verified"] for each in wrong for point in each["breakpoints"]] == [False] * 11
    client.ask("disassemble", memoryReference=f"{big:#x}", instructionOffset=-big, instructionCount=2)
    client.ask("continue", threadId=1)
    thread.join(60)


def test_a_port_is_a_number_and_free(attached: Attached) -> None:
    for port in ("5679", -1, 1 << 16, True):
        with pytest.raises(treadle.errors.ArgumentError, match="listen: port: expected a number from 0 to 65535"):
            treadle.debug.listen(port)  # type: ignore[arg-type]
    with pytest.raises(treadle.errors.ExecutionError, match="cannot be listened on"):
        treadle.debug.listen(attached.listening.port)
    with treadle.debug.listen(0) as alone:
        assert not alone.wait_for_client(0.01)


# ---- launched ----


class Launched:
    def __init__(self, check: Any, *arguments: str) -> None:
        command = [sys.executable, "-m", "treadle", "debug", "--dap", *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.client = Client(self.process.stdout, self.process.stdin, check)  # type: ignore[arg-type]


@pytest.fixture
def launched(check: Any) -> Iterator[Launched]:
    made = Launched(check)
    yield made
    made.client.close()
    assert made.process.wait(60) == 0


SCRIPT = """
import sys
import numpy as np
import treadle
from treadle import Module, function, op, var

x = var("x", (2,))
y = op.exp(x)
module = Module(main=function([x], y))
machine = treadle.VirtualMachine(treadle.compile(module, progress=False))
print(machine(np.zeros(2, np.float32)), sys.argv[1:])
sys.exit(3)
"""


def test_a_script_is_launched(launched: Launched, tmp_path: Path) -> None:
    client, script = launched.client, tmp_path / "script.py"
    script.write_text(SCRIPT)
    client.ask("initialize", adapterID="treadle")
    with pytest.raises(Refused, match="launch: expected"):
        client.ask("launch")
    with pytest.raises(Refused, match="no_such"):
        client.ask("launch", program=str(tmp_path / "no_such.trdl"))
    client.ask("launch", program=str(script), args=["a", "b"])
    client.event("initialized")
    client.ask("setBreakpoints", source={"path": str(script)}, breakpoints=[{"line": 8}])
    client.ask("configurationDone")
    assert client.stopped()["reason"] == "breakpoint"
    assert client.frames()[0]["line"] == 8
    client.ask("continue", threadId=1)
    said = client.event("output")["output"]
    while "['a', 'b']" not in said:
        said += client.event("output")["output"]
    assert client.event("exited")["exitCode"] == 3
    client.event("terminated")
    client.ask("disconnect")


@pytest.mark.thorough
def test_a_model_is_launched_over_a_socket(executable: Any, check: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.trdl"
    executable.export_library(path)
    command = [sys.executable, "-m", "treadle", "debug", "--dap", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        port = int(next(line for line in process.stderr if "listening on" in line).rpartition(":")[2])
        for function, ends in (("main", True), ("endless", False)):
            with socket.create_connection(("127.0.0.1", port)) as made:
                client = Client(made, made.makefile("wb"), check)
                client.begin(
                    "launch", program=str(path), args=["--function", function, "--input", "1,2,3,0.6" if ends else "1"]
                )
                client.ask("setFunctionBreakpoints", breakpoints=[{"name": "multiply_subtract_sqrt"}] if ends else [])
                client.ask("configurationDone")
                if ends:
                    assert client.stopped()["reason"] == "function breakpoint"
                    client.ask("setFunctionBreakpoints", breakpoints=[])
                    client.ask("continue", threadId=1)
                    assert "float32[4]" in client.event("output")["output"]
                    assert client.event("exited")["exitCode"] == 0
                else:
                    time.sleep(0.2)  # the call runs when its client goes: the next one is served
    finally:
        process.terminate()
        process.wait(60)


def test_what_the_page_says_of_editors_is_so(executable: Any, check: Any, tmp_path: Path) -> None:
    """The extension's command is an adapter, and `launch.json` launches with it; all editors are given the same."""
    page = (ROOT / "docs" / "debugging.md").read_text(encoding="utf-8")
    manifest, launch = [json.loads(each) for each in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    (debugger,) = manifest["contributes"]["debuggers"]
    assert debugger["args"] == ["-m", "treadle", "debug", "--dap"]
    assert page.count('"-m", "treadle", "debug", "--dap"') == 2  # VS Code's and Neovim's
    assert '("-m" "treadle" "debug" "--dap")' in page
    executable.export_library(tmp_path / "loop.trdl")
    model, script, process = launch["configurations"]
    for each in (model, script, process):
        known = debugger["configurationAttributes"][each["request"]]["properties"]
        assert set(each) <= {*known, "name", "type", "request", "debugServer"}
    launched = Launched(check)
    client = launched.client
    client.begin("launch", **{**model, "program": model["program"].replace("${workspaceFolder}", str(tmp_path))})
    client.ask("configurationDone")
    assert client.stopped()["reason"] == "entry"
    client.ask("terminate")
    client.event("terminated")
    client.close()
    assert launched.process.wait(60) == 0


def test_a_model_of_nodes_shows_their_names(attached: Attached, tmp_path: Path) -> None:
    """A program that is not of Python has no lines: what is shown is a text of its nodes, which can be stopped in."""
    onnx = pytest.importorskip("onnx")
    nodes = [
        onnx.helper.make_node("Exp", ["x"], ["e"], name="first"),
        onnx.helper.make_node("Softmax", ["e"], ["y"], name="second"),
    ]
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "xy"]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:]), opset_imports=[onnx.helper.make_opsetid("", 17)]
    )
    machine = VirtualMachine(treadle.compile(model, progress=False))
    client = attached.client
    client.begin("attach", stopOnEntry=True)
    attached.configure()
    thread = attached.call(machine["main"], np.zeros((2, 3), np.float32))
    client.stopped()
    client.go("next")
    source = client.frames()[0]["source"]
    text = client.ask("source", source=source, sourceReference=source["sourceReference"])["content"].splitlines()
    assert any("first" in line for line in text)
    assert source["name"] in ("main.nodes", "main.bytecode")
    points = client.ask("setBreakpoints", source=source, breakpoints=[{"line": 2}, {"line": 900}])["breakpoints"]
    assert [each["verified"] for each in points] == [True, False]
    client.ask("setBreakpoints", source=source, breakpoints=[])
    client.ask("continue", threadId=1)
    thread.join(60)
