"""TVMScript of Relax: what is read, what is printed, what is refused, and that a text builds to what its module does."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import treadle
import treadle.tvm as tvm
from treadle.errors import CompileError, ParseError
from treadle.tools.dev import zoo
from treadle.tvm import relax
from treadle.tvm.script import ir as I
from treadle.tvm.script import relax as R
from treadle.tvm.script import tir as T
from treadle.tvm.script.reader import ScriptError, TirError

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
X = np.array([[1, -2, 3, 4], [4, 5, -6, 7]], np.float32)

MODULE = """
# from tvm.script import ir as I
# from tvm.script import tir as T
# from tvm.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), dtype="float32"), c: R.Tensor((), dtype="bool")) -> R.Tensor(("n", 4), dtype="float32"):
        n = T.int64()
        cls = Module
        with R.dataflow():
            lv: R.Tensor((n, 4), dtype="float32") = R.nn.relu(x)
            gv: R.Tensor((n, 4), dtype="float32") = R.add(lv, R.const(1.0, "float32"))
            R.output(gv)
        if c:
            y: R.Tensor((n, 4), dtype="float32") = R.multiply(gv, gv)
        else:
            y: R.Tensor((n, 4), dtype="float32") = cls.twice(gv)
        return y

    @R.function(private=True)
    def twice(x: R.Tensor(("m", 4), dtype="float32")) -> R.Tensor(("m", 4), dtype="float32"):
        m = T.int64()
        y: R.Tensor((m, 4), dtype="float32") = R.add(x, x)
        return y
"""


def run(module: Any, *args: Any, name: str = "main") -> Any:
    return relax.VirtualMachine(relax.build(module), tvm.cpu())[name](*args)


def test_a_text_is_read_printed_as_it_was_and_run() -> None:
    module = tvm.script.from_source(MODULE)
    assert module.script() == MODULE.strip()
    relued = np.maximum(X, 0) + 1
    np.testing.assert_array_equal(run(module, X, np.array(True)).numpy(), relued**2)
    np.testing.assert_array_equal(run(module, X, np.array(False)).numpy(), relued * 2)
    assert relax.analysis.well_formed(module)
    np.testing.assert_array_equal(treadle.VirtualMachine(treadle.compile(module))["main"](X, True), relued**2)
    with pytest.raises(TypeError, match="got one of Relax"):
        tvm.relay.build(module)


def test_a_class_and_a_function_are_read_from_their_source() -> None:
    scale = 3.0

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            return R.multiply(x, R.const(scale, "float32"))

    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        y = R.multiply(x, R.const(3, "float32"))
        return y

    tvm.ir.assert_structural_equal(Module["main"], main)
    np.testing.assert_array_equal(run(main, X).numpy(), X * 3)


def test_nested_functions_closures_and_casts_run() -> None:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(dtype="float32", ndim=2)):
        n = T.int64()
        z = R.match_cast(y, R.Tensor((n, 4), "float32"))

        @R.function
        def add(a: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            return R.add(a, x)

        return add(z)

    np.testing.assert_array_equal(run(main, X, X).numpy(), X * 2)
    with pytest.raises(ValueError, match="shape"):
        run(main, X, X[:1])


def test_shapes_numbers_objects_and_registered_functions_run_on_the_relax_machine(capsys: Any) -> None:
    tvm.register_func("test.script.negative", lambda x: tvm.nd.array(-x.numpy()), override=True)

    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor(dtype="float32"), s: R.Shape(["n"])) -> R.Object:
            n, m = T.int64(), T.int64()
            y = R.match_cast(x, R.Tensor((m, n), "float32"))
            z = R.call_packed("test.script.negative", y, sinfo_args=R.Tensor)
            R.print(R.shape([n + 1, m * 2]), format="sizes {}")
            if n % 2 == 0:  # noqa: SIM108
                out = R.add(z, R.const(1, "float32"))
            else:
                out = R.add(z, z)
            return (out, R.shape([n * m]), R.prim_value(m))

    out, shape, number = run(Module, tvm.nd.array(X), tvm.runtime.ShapeTuple([4]))
    np.testing.assert_array_equal(out.numpy(), 1 - X)
    assert (list(shape), number) == ([8], 2)
    assert capsys.readouterr().out == "sizes [5, 4]\n"
    with pytest.raises(RuntimeError, match="match_cast"):
        run(Module, tvm.nd.array(X), tvm.runtime.ShapeTuple([5]))


def test_a_program_of_the_relax_machine_is_exported_and_loaded(tmp_path: Path) -> None:
    @R.function
    def main(x: R.Tensor(dtype="float32"), w: R.Tensor((4,), "float32")):
        return R.nn.softmax(R.multiply(x, w), axis=-1)

    weight = np.arange(4, dtype=np.float32)
    relax.build(main, params={"w": weight}).export_library(tmp_path / "main.tar")
    vm = relax.VirtualMachine(tvm.runtime.load_module(tmp_path / "main.tar"), tvm.cpu())
    for x in (X, X[0]):
        made = np.exp(x * weight - (x * weight).max(-1, keepdims=True))
        np.testing.assert_allclose(vm["main"](tvm.nd.array(x)).numpy(), made / made.sum(-1, keepdims=True), rtol=1e-4)


def test_closures_of_the_module_run() -> None:
    @I.ir_module
    class Module:
        @R.function
        def inner(x: R.Tensor((2, 4), "float32"), env: R.Tensor((2, 4), "float32")):
            return R.subtract(x, env)

        @R.function
        def main(x: R.Tensor((2, 4), "float32"), y: R.Tensor((2, 4), "float32")):
            closure = R.make_closure(Module.inner, (x,))
            return R.invoke_pure_closure(closure, (y,), sinfo_args=R.Tensor((2, 4), "float32"))

    np.testing.assert_array_equal(run(Module, X, X * 3).numpy(), X * 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("y = z = x", "line 4, column 5: a = b = c is not allowed"),
        ("y = R.nonsense(x)", "line 4, column 9: R has no nonsense"),
        ("y = R.add(x, undefined)", "line 4, column 18: the name undefined is not defined"),
        ("y = R.permute_dims(x, [0, 0])", "line 4, column 9: relax.permute_dims"),
        ("y = __import__('os').system('true')", "the name __import__ is not defined"),
        ("y = R.add.__globals__", "names that begin with _ are not looked at"),
        ("y = (lambda: x)()", "is not an expression of TVMScript"),
        ("y = [a for a in x]", "is not an expression of TVMScript"),
        ("y = open('/etc/passwd')", "the name open is not defined"),
        ("y = R.const(9 ** 9 ** 9)", "a number that is too large"),
        ("while x:\n        pass", "is not a statement of TVMScript"),
        ("y: R.Shape = x", "the value is R.Tensor"),
        ("R.add(x, x)", "only calls without a result stand alone"),
    ],
)
def test_what_is_wrong_is_told_with_line_and_column_and_nothing_is_executed(line: str, message: str) -> None:
    text = f'@R.function\n\ndef main(x: R.Tensor(("n", 4), "float32")):\n    {line}\n    return x\n'
    with pytest.raises(ScriptError, match=message.replace("(", r"\(").replace(")", r"\)")):
        tvm.script.from_source(text)


@pytest.mark.parametrize(
    "text", ["", "x = 1", "import os", "@R.function\ndef f(x): return x", "def f(: pass", "(" * 300]
)
def test_texts_that_are_no_programs_are_refused(text: str) -> None:
    with pytest.raises(ParseError, match="line"):
        tvm.script.from_source(text)


def test_functions_of_tir_are_refused_by_name_and_line() -> None:
    text = """
    @I.ir_module
    class Module:
        @T.prim_func
        def kernel(x: T.handle):
            T.evaluate(0)
    """
    with pytest.raises(TirError, match=r"line 5, column 5: T\.prim_func kernel"):
        tvm.script.from_source(text)
    call = '@R.function\ndef f(x: R.Tensor((2,), "float32")):\n    return R.call_tir("k", x, R.Tensor((2,), "float32"))'
    with pytest.raises(TirError, match=r"line 3, column 12: call_tir"):
        tvm.script.from_source(call)
    with pytest.raises(AttributeError, match="emit_te calls a function of TIR"):
        relax.BlockBuilder().emit_te(lambda: None)


def test_syntax_prints_alone_with_what_it_mentions() -> None:
    x = relax.Var("x", relax.TensorStructInfo(("n", 4)))
    assert str(relax.op.sum(x, axis=1)) == textwrap.dedent("""\
        n = T.int64()
        x: R.Tensor((n, 4), dtype="float32")
        R.sum(x, axis=[1], keepdims=False)""")
    assert str(relax.FuncStructInfo([relax.ObjectStructInfo()], relax.ShapeStructInfo(ndim=2))) == (
        "R.Callable((R.Object,), R.Shape(ndim=2), True)"
    )
    assert tvm.script.from_source("R.Tensor((2, 3), 'int8')") == relax.TensorStructInfo((2, 3), "int8")


def test_syntax_is_json_and_compared_by_structure() -> None:
    module = tvm.script.from_source(MODULE)
    other = tvm.script.from_source(
        MODULE.replace("lv", "other").replace('"n"', '"rows"').replace(" n ", " rows ").replace("(n,", "(rows,")
    )
    tvm.ir.assert_structural_equal(module, other)
    assert not tvm.ir.structural_equal(module["main"], module["twice"])
    for each in (module["main"], relax.TensorStructInfo((2, "n")), relax.PrimValue(3)):
        tvm.ir.assert_structural_equal(tvm.ir.load_json(tvm.ir.save_json(each)), each, map_free_vars=True)


# ---- imported models: their texts build to the same executables ----

FEW = [
    *("pytorch-converted/test_Conv2d", "pytorch-converted/test_BatchNorm2d_eval", "pytorch-converted/test_Linear"),
    *("pytorch-operator/test_operator_add_broadcast", "pytorch-operator/test_operator_maxpool"),
    *(
        "simple/test_expand_shape_model4",
        "simple/test_single_relu_model",
        "simple/test_shrink",
        "simple/test_sign_model",
    ),
    *("simple/test_strnorm_model_nostopwords_nochangecase", "pytorch-operator/test_operator_pad"),
    "pytorch-converted/test_Softmax",
]
NODES = ["test_if", "test_loop11", "test_layer_normalization_2d_axis1", "test_scan_sum"]


def same_executable(model: Any, tmp_path: Path) -> bool:
    """Whether the text of an imported model builds to what the model does."""
    module = relax.frontend.onnx.from_onnx(model)
    text = module.script(show_meta=True)
    read = tvm.script.from_source(text)
    assert read.script(show_meta=True) == text
    written = []
    for number, each in enumerate((module, read)):
        path = tmp_path / f"{number}.trdl"
        relax.build(each).export_library(path)
        written.append(path.read_bytes())
    return written[0] == written[1]


@pytest.mark.filterwarnings("ignore:Renaming name")
@pytest.mark.parametrize("name", FEW)
def test_the_text_of_a_model_builds_to_the_same_executable(name: str, tmp_path: Path) -> None:
    assert same_executable(onnx.load(DATA / name / "model.onnx"), tmp_path)


def test_the_text_of_a_network_of_the_zoo_builds_to_the_same_executable(tmp_path: Path) -> None:
    assert same_executable(zoo.mlp(), tmp_path)
    assert same_executable(zoo.mlp((4, 8, 2), batch="n"), tmp_path)


def node_models() -> Iterator[tuple[str, Any]]:
    """ONNX's own cases, one for each node."""
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        yield case.name, case.model


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:Renaming name")
def test_the_texts_of_onnx_s_suite_build_to_the_same_executables(tmp_path: Path) -> None:
    cases = list(node_models())
    files = sorted(DATA.glob("pytorch*/*/model.onnx"))[::2]
    networks = {"squeezenet": zoo.light("squeezenet"), "resnet18": zoo.resnet(18, size=32, classes=10)}
    chosen = [each for number, each in enumerate(cases) if number % 20 == 0 or each[0] in NODES]
    compared = 0
    for name, model in [*chosen, *networks.items(), *((path.parent.name, onnx.load(path)) for path in files)]:
        with contextlib.suppress(CompileError):  # sequences and optional values have no text
            assert same_executable(model, tmp_path), name
            compared += 1
    assert compared >= 100
