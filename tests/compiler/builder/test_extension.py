"""What users add: operators with kernels of their own, importers, passes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import DType, TensorType, op
from treadle.compiler import ir
from treadle.compiler.builder.extension import onnx_operator, operator
from treadle.compiler.operators import TABLE
from treadle.compiler.passes.placed import after, before
from treadle.compiler.passes.rewriting import Emitter
from treadle.compiler.targets.cpu.kernels.own import OWN
from treadle.compiler.targets.cpu.kernels.subscripts import Subscripts, Tensor, text_of
from treadle.formats.extensions import EXTENSIONS
from treadle.formats.messages.errors import (
    ArgumentError,
    CompileError,
    IndexOutOfRangeError,
    InferenceError,
    ModelError,
    UnsupportedOperatorError,
)
from treadle.vm.library import definition_key

prange = range  # what the kernels below share among threads


@pytest.fixture(autouse=True)
def as_before():
    """Operators that a test defines are gone after it."""
    yield
    for name in list(EXTENSIONS):
        del EXTENSIONS[name], TABLE[name]
        OWN.pop(name, None)


def run(call: Callable[..., Any], *arrays: np.ndarray, threads: int = 1) -> Any:
    """The results of an operator on arrays of symbolic sizes, from a compiled program."""
    params = [
        treadle.var(f"x{number}", tuple(f"d{number}_{axis}" for axis in range(array.ndim)), array.dtype)
        for number, array in enumerate(arrays)
    ]
    executable = treadle.compile(treadle.Module(main=treadle.function(params, call(*params))), progress=False)
    before = treadle.get_num_threads()
    treadle.set_num_threads(threads)
    try:
        return treadle.VirtualMachine(executable)["main"](*arrays)
    finally:
        treadle.set_num_threads(before)


def same(x: TensorType, *_: TensorType) -> TensorType:
    return x


# ---- operators ----


def test_an_operator_without_a_kernel_is_called_by_its_reference():
    double = operator("double_of", infer=same, reference=lambda x: x + x)
    x = np.arange(6, dtype="f").reshape(2, 3)
    np.testing.assert_array_equal(run(double, x).numpy(), x + x)
    assert treadle.op.double_of.__name__ == "double_of"


def _rotated(x: np.ndarray, by: np.ndarray, *, scale: float = 1.0, steps: tuple[int, ...] = (1, 0)) -> np.ndarray:
    rows = np.arange(x.shape[0])[:, None]
    columns = (np.arange(x.shape[1]) + by[:, None] * steps[0] + steps[1]) % x.shape[1]
    return (x[rows, columns] * np.float32(scale)).astype(x.dtype)


def _rotated_kernel(x, by, out, *, scale, steps):
    """Rows, each rotated by a number of places."""
    width: int = x.shape[-1]
    for row in prange(len(x)):
        first = by[row] * steps[0] + steps[1]  # a name that texts of kernels have, too
        for part in range(width):
            out[row, part] = x[row, (part + first) % width] * float32(scale)  # noqa: F821  (a name of kernels)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4000, 17), (0, 3)])
def test_a_kernel_gives_what_the_reference_gives(shape: tuple[int, int], threads: int):
    rotated = operator("rotated", infer=same, reference=_rotated, kernel=_rotated_kernel)
    rng = np.random.default_rng(3)
    x = rng.standard_normal(shape).astype("f")
    by = rng.integers(0, 9, shape[0])
    found = run(lambda x, by: rotated(x, by, scale=0.5, steps=(2, 1)), x, by, threads=threads).numpy()
    np.testing.assert_array_equal(found, _rotated(x, by, scale=0.5, steps=(2, 1)))


def _steps(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By NumPy: where a row first goes down; whether an element is greater than the one before it, or the first."""
    rises = np.concatenate([np.ones_like(x[:, :1], bool), x[:, 1:] > x[:, :-1]], axis=1)
    falls = np.concatenate([~rises, np.ones_like(rises[:, :1])], axis=1)
    return falls.argmax(axis=1), rises


def _steps_kernel(x, fall, rises):
    for row in range(x.shape[0]):
        place = 1
        while place < x.shape[1] and x[row, place] > x[row, place - 1]:
            place += 1
        fall[row] = place
        for i in range(x.shape[1]):
            rises[row, i] = i == 0 or x[row, i] > x[row, i - 1]


def _types_of_steps(x: TensorType) -> tuple[TensorType, TensorType]:
    return TensorType(DType.int64, x.shape[:1]), TensorType(DType.bool, x.shape)


def test_what_a_condition_guards_is_not_looked_at():
    """An index that Python would not evaluate is not checked, nor read."""
    steps = operator("steps", infer=_types_of_steps, reference=_steps, kernel=_steps_kernel)
    x = np.random.default_rng(1).integers(0, 3, (50, 6)).astype("i4").cumsum(axis=1)
    fall, rises = run(steps, x)
    expected = _steps(x)
    np.testing.assert_array_equal(fall.numpy(), expected[0])
    np.testing.assert_array_equal(rises.numpy(), expected[1])


def _smoothed(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    left, right = np.roll(wide, 1), np.roll(wide, -1)
    left[0], right[-1] = 0, wide[-1] ** 2
    return np.maximum(left + right + np.exp(-np.abs(wide)), 0.25).astype(x.dtype)


def _smoothed_kernel(x, out):
    n = x.size
    for i in range(n):
        left = float(x[i - 1]) if i > 0 else 0.0
        right = float(x[i + 1]) if 0 <= i + 1 < n else float(x[-1]) ** 2.0
        out[i] = left
        out[i] += right
        if x.ndim == 1:
            out[i] = max(left + right + np.exp(-abs(float(x[i]))), 0.25)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_choices_and_functions(dtype: str):
    smoothed = operator("smoothed", infer=same, reference=_smoothed, kernel=_smoothed_kernel)
    x = np.random.default_rng(2).standard_normal(100).astype(dtype)
    found = run(smoothed, x).numpy()
    np.testing.assert_allclose(found, _smoothed(x), rtol=1e-3 if dtype == "float16" else 1e-6)


def _picked_kernel(x, places, out):
    for i in range(places.shape[0]):
        out[i] = x[places[i]]


@pytest.mark.parametrize("place", [-1, 4, 1 << 40, -(1 << 63)])
def test_an_index_outside_a_tensor_is_an_error(place: int):
    picked = operator("picked", infer=places_of, reference=np.take, kernel=_picked_kernel, inputs="x places")
    x = np.arange(4, dtype="f")
    np.testing.assert_array_equal(run(picked, x, np.array([3, 0])).numpy(), x[[3, 0]])
    with pytest.raises(IndexOutOfRangeError):
        run(picked, x, np.array([0, place]))


CHECKED = {  # loops, and which indices in them are looked at
    "for i in range(x.shape[0]): y = x[i]": "",
    "for i in range(x.shape[0]):\n    for j in range(i + 1, len(x)): y = x[i] + x[j]": "",
    "for i in range(z.shape[0]): y = x[i] + z[i]": "i",
    "for i in range(x.shape[0]): y = x[i - 1]": "v1",
    "for i in range(x.shape[0]):\n    y = x[i]\n    i += 1": "i",
    "for i in range(x.shape[0]):\n    for i in range(9): y = x[i]": "i",
    "for i in range(-1, x.shape[0]): y = x[i]": "i",
    "for i in range(z.shape[0] - 5, x.shape[0]): y = x[i]": "i",
    f"for i in range(z.shape[0]):\n    for j in range({2**31} + i, len(x)): y = x[j]": "j",
    "for i in range(x.shape[0], 0, -1): y = x[i]": "i",
    "for i in range(0, x.shape[0], 2): y = x[i]": "i",
    "for i in range(x.shape[0]): pass\ny = x[i]": "i",
    "while True: y = x[i]": "i",
}


@pytest.mark.parametrize("text", CHECKED)
def test_indices_that_loops_make_of_sizes_need_no_check(text: str):
    tree = ast.parse(f"def kernel(x, z):\n{textwrap.indent(text, '    ')}").body[0]
    assert isinstance(tree, ast.FunctionDef)
    tensors = {name: Tensor(name, (f"{name}_0",), DType.float32, False) for name in ("x", "z")}
    lines = text_of(Subscripts("test", tree, tensors, {}).statements(tree.body))
    assert re.findall(r"if (\w+) < 0 or \1 >= x_0:", "\n".join(lines)) == CHECKED[text].split()


def places_of(x: TensorType, places: TensorType) -> TensorType:
    return TensorType(x.dtype, places.shape)


REFUSED = {
    "x = 1": "x is a parameter",
    "return 3": "writes its results into the outputs",
    "x[0] = 1.0": "an input is not written to",
    "out[0, 0] = 1.0": "expected 1 indices",
    "out[0:2] = 1.0": "expected 1 indices",
    "y = [1, 2]": "kernels know no List",
    "y = open(1)": "kernels know no open",
    "y = x": "x is a tensor",
    "y = 'a'": "'a' is not a number",
    "import os": "kernels know no Import",
    "y = x.shape[2]": "expected an index from -1 to 0",
    "y = np.zeros": "np.zeros is not known",
    "for i in x: pass": "a for loop is over a range",
    "with x: pass": "kernels know no With",
    "y = (lambda: 1)()": "kernels know no such call",
    "out[0] = 1.0\nfor i in prange(3): pass": "elements are written in the loop over prange alone",
    "for i in prange(3): return": "a loop over prange cannot be left",
    "for i in prange(3): pass\nout[0] = 1.0": "a loop over prange is the last statement",
    "3 + 4": "an expression whose value nobody uses",
    "y = x[0]\ny = 1.0": "y is float32, and cannot become float64",
    "out[0] = min(x[0], 1.0)": "minimum",
    "s = 0\nfor i in range(3):\n    s += x[i]": "s is int64, and cannot become float64",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_kernel_of_what_kernels_do_not_know_is_refused(tmp_path: Path, text: str, monkeypatch: Any):
    (tmp_path / "refused_kernel.py").write_text("def kernel(x, out):\n" + textwrap.indent(text, "    ") + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "refused_kernel", raising=False)
    import refused_kernel

    refused = operator("refused", infer=same, reference=lambda x: x, kernel=refused_kernel.kernel)
    with pytest.raises(
        CompileError,
        match=r"operator 'refused': line \d+ of its kernel(: | cannot be compiled: )",
    ) as caught:
        run(refused, np.ones(3, "f"))
    assert REFUSED[text] in str(caught.value)
    if "cannot be compiled" in str(caught.value):
        assert f"line {1 + len(text.splitlines())} of its kernel" in str(caught.value)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "add"}, "Treadle has an operator of that name"),
    ({"name": "no name"}, "is not a name"),
    ({"reference": 5}, "expected a function of arrays"),
    ({"infer": 5}, "expected a function of types"),
    ({"infer": "float32[3]"}, "expected the type of a function of tensors"),
    ({"version": 0}, "a number from 1 on"),
    ({"reference": lambda x, *, mode=None: x}, "attribute 'mode': expected bool"),
    ({"kernel": lambda x, out: None}, "made by def"),
    ({"kernel": lambda *x: None}, "made by def"),
    ({"kernel": _rotated_kernel}, "which is not an attribute"),
    ({"reference": lambda: 1}, "names of its inputs"),
    ({"infer": "float32[n] -> float32[n]"}, "operator 'wrong': infer: line 1, column 12.*\n.*\n.*\nwrite it as"),
    ({"infer": "fn(float32[n]) -> float32[n]", "reference": lambda x, beta=1.0: x}, "for each of x, beta; .* behind"),
    ({"infer": "fn(float32[n], float32[n]) -> float32[n]"}, "does not have an input for each of x; "),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_definition_that_cannot_be_says_why(number: int):
    change, message = WRONG[number]
    good: dict[str, Any] = {"name": "wrong", "infer": same, "reference": lambda x: x}
    with pytest.raises(CompileError, match=message):
        operator(**(good | change))


def test_what_infer_and_reference_do_wrong_is_said_with_the_operators_name():
    x = np.ones(3, "f")
    for infer, error in ((lambda x: 5, "gave 5"), (lambda x: x.nothing, "raised AttributeError")):
        with pytest.raises(InferenceError, match=f"wrong: its infer {error}"):
            run(operator("wrong", infer=infer, reference=lambda x: x), x)
    with pytest.raises(treadle.TreadleError, match="wrong"):
        run(operator("wrong", infer=same, reference=lambda x: x.astype("f8")), x)
    with pytest.raises(
        treadle.TreadleError, match=r"wrong: its reference raised ZeroDivisionError: .* \(test_exten.*:\d+\)"
    ):
        run(operator("wrong", infer=same, reference=lambda x: 1 // 0), x)
    with pytest.raises(treadle.TreadleError, match=r"wrong: its reference gave None; expected an array"):
        run(operator("wrong", infer=same, reference=lambda x: None), x)
    halves = operator("wrong", infer="fn(float32[n, 3], float32[3]) -> float32[n]", reference=lambda x, y: x @ y)
    with pytest.raises(InferenceError, match=r"expected float32\[n, 3\] \(here float32\[2, 3\]\), got float32\[2, 4\]"):
        halves(np.ones((2, 4), "f"), np.ones(3, "f"))
    with pytest.raises(InferenceError, match=r"expected float32\[n, 3\], got float32\[2\]"):
        halves(np.ones(2, "f"), np.ones(3, "f"))
    with pytest.raises(InferenceError, match="expected float32"):
        run(operator("wrong", infer="fn(float32[n, n]) -> float32[n]", reference=lambda x: x[0]), np.ones((2, 3), "f"))


SCALE, LIMIT = 3.0, np.float32(5)


def test_a_kernel_knows_the_numbers_around_it():
    offset = 2

    def scaled(x, out):
        for i in range(len(x)):
            out[i] = min(x[i], LIMIT) * SCALE + offset

    made = operator("around", infer=same, reference=lambda x: np.minimum(x, 5) * 3 + 2, kernel=scaled)
    assert run(made, np.float32([1, 9])).tolist() == [5, 17]
    offset = 4
    assert run(made, np.float32([1, 9])).tolist() == [5, 17]  # as it was defined
    made = operator("around", infer=same, reference=lambda x: np.minimum(x, 5) * 3 + 4, kernel=scaled)
    assert run(made, np.float32([1, 9])).tolist() == [7, 19]


def _twice_kernel(x, out):
    for i in range(x.shape[0]):
        out[i] = x[i] + x[i]


def _thrice_kernel(x, out):
    for i in range(x.shape[0]):
        out[i] = x[i] + x[i] + x[i]


def test_an_operator_that_is_defined_again_gets_its_new_kernel():
    x = np.arange(3, dtype="f")
    keys = set()
    for kernel, factor in ((_twice_kernel, 2), (_thrice_kernel, 3), (_twice_kernel, 2)):
        made = operator("manifold", infer=same, reference=lambda x: x, kernel=kernel)
        np.testing.assert_array_equal(run(made, x).numpy(), factor * x)
        param = treadle.var("x", (3,))
        program = treadle.compile(treadle.Module(main=treadle.function([param], made(param)))).program
        keys.add(definition_key(program.primitives[0].definition, "x86"))
    assert len(keys) == 2


OPERATORS = """
import treadle
for name in ("tripled", "halved"):
    treadle.operator(name, infer=lambda x: x, reference={"tripled": lambda x: x * 3, "halved": lambda x: x / 2}[name], version=2)
"""


def test_an_executable_names_every_operator_that_is_not_there(tmp_path: Path):
    (tmp_path / "my_operators.py").write_text(OPERATORS)
    compiling = """
    import my_operators, treadle
    x = treadle.var("x", (3,))
    module = treadle.Module(main=treadle.function([x], treadle.op.halved(treadle.op.tripled(x))))
    treadle.compile(module).export_library("a.trdl")
    """
    running = "import numpy, treadle; print(treadle.VirtualMachine(treadle.load('a.trdl'))['main'](numpy.ones(3, 'f')))"

    def python(text: str) -> subprocess.CompletedProcess:
        text = f"import sys; sys.path.insert(0, '.')\n{textwrap.dedent(text)}"
        # -B: bytecode kept of a file that is written twice within a second passes for that of the second
        return subprocess.run([sys.executable, "-B", "-c", text], cwd=tmp_path, capture_output=True, text=True)

    assert python(compiling).returncode == 0
    missing = python(running).stderr
    assert (
        "halved (version 2 of my_operators), tripled (version 2 of my_operators); import my_operators before" in missing
    )
    source = "import treadle; treadle.load('a.trdl').lib.get_source(treadle.load('a.trdl').lib.names[0])"
    assert "; import my_operators before it is run" in python(source).stderr
    assert "1.5" in python(f"import my_operators; {running}").stdout
    (tmp_path / "my_operators.py").write_text(OPERATORS.replace("version=2", "version=3"))
    assert (
        "halved (version 2 of my_operators; here is version 3 of my_operators)"
        in python(f"import my_operators; {running}").stderr
    )


# ---- importers ----


def model(*inputs: str, **attributes: Any) -> Any:
    onnx = pytest.importorskip("onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    values = [helper.make_tensor_value_info(name, floats, ["n", 4]) for name in inputs if name]
    nodes = [helper.make_node("MyGelu", inputs, ["y"], domain="my.domain", name="gelu_3", **attributes)]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("y", floats, ["n", 4])])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 2)]
    return helper.make_model(graph, opset_imports=imports)


def _my_gelu(x, bias=None, *, scale=1.0):
    x = x if bias is None else x + bias
    return x * op.sigmoid(1.702 * scale * x)


def test_an_importer_of_a_node_of_ones_own():
    from treadle.compiler.onnx.table import importers_of

    onnx_operator("MyGelu", domain="my.domain")(_my_gelu)
    try:
        x = np.random.default_rng(0).standard_normal((3, 4)).astype("f")
        for inputs, scale in ((("x",), 1.0), (("x", "b"), 0.5)):
            machine = treadle.VirtualMachine(treadle.compile(model(*inputs, scale=scale), progress=False))
            z = x * len(inputs)
            expected = z / (1 + np.exp(-1.702 * scale * z))
            np.testing.assert_allclose(machine["main"](*[x] * len(inputs)).numpy(), expected, rtol=1e-5)
        with pytest.raises(UnsupportedOperatorError, match="attribute 'mode' is not supported"):
            treadle.compile(model("x", mode=3))
        onnx_operator("MyGelu", domain="my.domain", since=2)(lambda x: treadle.if_(op.sum(x) > 0.0, x, -x))
        with pytest.raises(UnsupportedOperatorError, match="operators alone are supported"):
            treadle.compile(model("x"))
        for wrong, message in (
            (lambda x: None, "its importer gave None"),
            (lambda x: 1 // 0, r"its importer raised ZeroDivisionError: .* \(test_extension.py:\d+\)"),
            (lambda x: x.numpy(), "its importer raised AttributeError"),
        ):
            onnx_operator("MyGelu", domain="my.domain", since=2)(wrong)
            with pytest.raises(CompileError, match=message) as caught:
                treadle.compile(model("x"))
            assert caught.value.node == "gelu_3"
        with pytest.raises(ModelError, match="MyGelu: the node has 2 inputs, the operator takes x"):
            treadle.compile(model("x", "y0"))
        onnx_operator("MyGellu", domain="my.domain")(_my_gelu)
        importers_of("my.domain", "MyGelu").clear()
        with pytest.raises(UnsupportedOperatorError, match=r"no importer of this operator; .*; did you mean MyGellu\?"):
            treadle.compile(model("x"))
    finally:
        importers_of("my.domain", "MyGellu").clear()
        importers_of("my.domain", "MyGelu").clear()


# ---- passes ----


@dataclass(frozen=True)
class TanhIsIdentity:
    """Puts its operand in place of tanh."""

    name: str = "tanh_is_identity"

    def __call__(self, module: ir.Module) -> ir.Module:
        class Rewrite(Emitter):
            def binding(self, binding: ir.Binding) -> Any:
                binding = self.with_new_operands(binding)
                if isinstance(binding.value, ir.OperatorCall) and binding.value.operator == "tanh":
                    self.atoms[binding.var] = binding.value.args[0]
                    return ()
                return (binding,)

        return Rewrite(module).run()


def test_a_pass_of_ones_own_runs_where_it_is_placed(capsys: Any):
    x = treadle.var("x", (3,))
    module = treadle.Module(main=treadle.function([x], op.tanh(x) * 2.0))
    values = np.arange(3, dtype="f")
    for place in (after("fold_constants", TanhIsIdentity()), before("simplify", TanhIsIdentity())):
        executable = treadle.compile(module, passes=[place], print_after=["tanh_is_identity"], progress=False)
        np.testing.assert_array_equal(treadle.VirtualMachine(executable)["main"](values).numpy(), values * 2)
        assert "# after tanh_is_identity" in capsys.readouterr().out


@dataclass(frozen=True)
class Broken:
    result: Any
    name: str = "broken"

    def __call__(self, module: ir.Module) -> Any:
        return self.result(module)


def _unnamed(module: ir.Module) -> Any:
    return module.nothing


@pytest.mark.parametrize(
    ("placed", "message"),
    [
        (lambda: after("no_such_pass", TanhIsIdentity()), "beside 'no_such_pass', which does not run; these do: infer_types"),
        (lambda: after("fuse", Broken(lambda module: None)), "the pass 'broken': expected a Module, got NoneType"),
        (lambda: after("simplify", Broken(lambda module: replace(module, functions={}))), r"broken': the .* no function 'main',"),
        (lambda: after("fuse", Broken(lambda module: module.nothing)), "the pass 'broken' raised AttributeError"),
        (lambda: after("fuse", _unnamed), r"the pass '_unnamed' raised AttributeError: .* \(test_extension.py:\d+\)"),
        (lambda: after("fuze", TanhIsIdentity()), r"name_shapes, devices, fuse; did you mean fuse\?"),
        (lambda: TanhIsIdentity(), "expected what treadle.after and treadle.before give"),
    ],
)  # fmt: skip
def test_a_pass_that_is_wrong_is_named(placed: Callable[[], Any], message: str):
    x = treadle.var("x", (3,))
    with pytest.raises(CompileError, match=message):
        treadle.compile(treadle.Module(main=treadle.function([x], op.tanh(x))), passes=[placed()], progress=False)


def test_what_is_no_pass_cannot_be_placed():
    for wrong in (TanhIsIdentity, 5, lambda module: module):
        with pytest.raises(ArgumentError, match="expected a pass"):
            after("fuse", wrong)  # type: ignore[arg-type]
