"""Names that other tools have lead to what has that meaning here."""

import functools
import importlib
import inspect
import re

import numpy as np
import pytest
import treadle
import treadle.debug
from treadle.formats.messages import elsewhere
from treadle.formats.messages.errors import ArgumentError, UnknownAttributeError, UnknownNameError
from treadle.formats.messages.names import near
from treadle.tools import cli

X = treadle.var("x", (2,))
MODULE = treadle.Module(main=treadle.function([X], X))
EXECUTABLE = treadle.compile(MODULE, progress=False)
MACHINE = treadle.VirtualMachine(EXECUTABLE)
OWNERS = {
    "treadle": treadle,
    "Executable": EXECUTABLE,
    "VirtualMachine": MACHINE,
    "op": treadle.op,
    "Module": MODULE,
    "Expression": X + 1,
    "debug": treadle.debug,
    "Tensor": treadle.Tensor(np.ones(2, np.float32)),
}
ROWS = [(kind, name, meant) for kind, names in elsewhere._MEANT.items() for name, meant in names.items()]
ATTRIBUTES = [row for row in ROWS if row[0] != "command"]


@pytest.mark.parametrize(("kind", "name", "meant"), ATTRIBUTES, ids=[f"{kind}.{name}" for kind, name, _ in ATTRIBUTES])
def test_a_name_of_another_tool_says_what_has_that_meaning(kind: str, name: str, meant: str) -> None:
    # of the package itself, whichever of its parts have been imported
    ask = treadle.__getattr__ if kind == "treadle" else functools.partial(getattr, OWNERS[kind])
    with pytest.raises(
        (UnknownAttributeError, UnknownNameError), match=f"no (attribute|operator) '{name}'; {re.escape(meant)}"
    ):
        ask(name)


@pytest.mark.parametrize(("package", "name", "meant"), [("cluster", "Handel", "Handle"), ("text", "laod", "load")])
def test_packages_that_list_their_names_suggest_them(package: str, name: str, meant: str) -> None:
    with pytest.raises(
        UnknownAttributeError, match=f"'treadle.{package}' has no attribute '{name}'; did you mean {meant}"
    ):
        getattr(importlib.import_module(f"treadle.{package}"), name)


CALLED = {
    "compile": treadle.compile,
    "generate": treadle.generate,
    "VirtualMachine": treadle.VirtualMachine,
    "VirtualMachine.call": MACHINE.call,
}
PARAMETERS = [(name, each, meant) for name, rows in elsewhere._PARAMETERS.items() for each, meant in rows.items()]


@pytest.mark.parametrize(("function", "name", "meant"), PARAMETERS, ids=[f"{each[0]}-{each[1]}" for each in PARAMETERS])
def test_a_parameter_of_another_tool_says_what_has_that_meaning(function: str, name: str, meant: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(f"{function}: '{name}' is not a parameter; {meant}")):
        CALLED[function](**{name: 1})


def test_what_is_advised_is_there() -> None:
    owners = {
        "executable": EXECUTABLE,
        "machine": MACHINE,
        "tensor": OWNERS["Tensor"],
        "treadle": treadle,
        "op": treadle.op,
        "Module": MODULE,
    }
    named = {found for _, _, meant in ROWS for found in re.findall(r"\b(\w+)\.(\w+)", meant) if found[0] in owners}
    assert len(named) > 15
    for owner, name in named - {("treadle", "tvm")}:  # a package, which is imported by its name
        assert hasattr(owners[owner], name), f"{owner}.{name}"
    for name, parameters in {found for _, _, meant in ROWS for found in re.findall(r"\bop\.(\w+)\((.*?)\)", meant)}:
        for parameter in re.findall(r"(\w+)=", parameters):
            assert parameter in inspect.signature(getattr(treadle.op, name)).parameters, name


def test_an_element_type_is_no_attribute_of_the_package() -> None:
    with pytest.raises(UnknownAttributeError, match=r"named as NumPy's are: 'float32', or treadle\.DType\.float32"):
        treadle.float32  # noqa: B018


def test_an_executable_says_what_runs_it() -> None:
    for wrong in (lambda: EXECUTABLE["main"], lambda: EXECUTABLE(np.ones(2))):
        with pytest.raises(ArgumentError, match=r"an executable is data; treadle\.VirtualMachine\(executable\)\["):
            wrong()
    assert list(EXECUTABLE) == ["main"]
    assert "main" in EXECUTABLE
    assert "mian" not in EXECUTABLE


def test_a_machine_is_called_as_its_main_function() -> None:
    assert MACHINE(np.ones(2, np.float32)).tolist() == MACHINE(x=[1.0, 1.0]).tolist() == [1, 1]


def test_commands_that_are_advised_are_there() -> None:
    commands = cli._commands(cli._parser())
    for command, options in {found for _, _, meant in ROWS for found in re.findall(r"`treadle (\w+)([^`]*)`", meant)}:
        for option in re.findall(r"--[\w-]+", options):
            assert option in commands[command]._option_string_actions, f"{command} {option}"
        assert command in commands
    assert not commands.keys() & elsewhere._MEANT["command"].keys()
    assert "`treadle nonfinite FILE` finds where NaNs begin" in cli._no_command("nan", commands)


def test_words_of_other_tools_are_known_among_parameters_and_options() -> None:
    assert near("timeout", ["max_seconds", "args"]) == "; did you mean max_seconds?"
    assert near("timeout", ["args"]) == ""
    assert near("-O3", ["-o", "--opt-level"]) == "; did you mean --opt-level?"
    with pytest.raises(ArgumentError, match="'timeout' is not a parameter; did you mean max_seconds"):
        MACHINE.call("main", [np.ones(2, np.float32)], timeout=1)


def test_an_operator_is_no_attribute_of_an_expression() -> None:
    with pytest.raises(UnknownAttributeError, match=r"op\.exp\(x\) is the operator"):
        (X + 1).exp()
