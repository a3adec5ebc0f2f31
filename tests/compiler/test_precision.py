"""`precision`: what products and convolutions compute with, and what that costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import op
from treadle.compiler.targets.cpu.target import host
from treadle.formats.dtypes import DType
from treadle.formats.messages.errors import ArgumentError, CompileError, ShapeError
from treadle.tools.cli import main

ml_dtypes = pytest.importorskip("ml_dtypes")

HAS_INSTRUCTION = bool(host().dot_bfloat16)
# Kernels for CPUs with and without the instruction, interpreted: this test runs on any CPU
WITH, WITHOUT = treadle.emulated("cooperlake"), treadle.emulated("haswell")
GENERATOR = np.random.default_rng(0)
WEIGHTS = {
    "w": GENERATOR.standard_normal((37, 20)).astype("f"),
    "v": GENERATOR.standard_normal((20, 9)).astype("f"),
    "k": GENERATOR.standard_normal((32, 17, 1, 3)).astype("f"),
    "b": GENERATOR.standard_normal(32).astype("f"),
}


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype("f")


def perceptron() -> treadle.Module:
    """Two products, the first with an odd number of rows, and a matrix that is read twice."""
    x, w, v = treadle.var("x", ("n", 37)), treadle.var("w", (37, 20)), treadle.var("v", (20, 9))
    hidden = treadle.named("hidden", op.matmul(x, w))
    return treadle.Module(main=treadle.function([x, w, v], op.matmul(op.relu(hidden), v)))


def convolution() -> treadle.Module:
    x, k, b = treadle.var("x", ("n", 17, 4, 9)), treadle.var("k", (32, 17, 1, 3)), treadle.var("b", (32,))
    return treadle.Module(main=treadle.function([x, k, b], op.conv(x, k, b, pads=(0, 1, 0, 1))))


def compiled(
    module: treadle.Module, precision: Any, target: Any = None, weights: dict = WEIGHTS, **options: Any
) -> Any:
    names = [each.name for each in module.functions["main"].params if each.name in weights]
    params = {name: weights[name] for name in names}
    return treadle.compile(
        module, params=params, precision=precision, target=target, progress=False, embed_native=False, **options
    )


def run(executable: Any, x: np.ndarray) -> np.ndarray:
    return treadle.VirtualMachine(executable)["main"](x).numpy()


def test_operands_of_products_are_rounded_once_and_sums_are_float32():
    x = GENERATOR.standard_normal((3, 37)).astype("f")
    executable = compiled(perceptron(), "bfloat16", WITH)
    assert sum("matmul_bfloat16_packed" in name for name in executable.primitive_ops) == 2
    hidden = np.maximum(rounded(x) @ rounded(WEIGHTS["w"]), 0)
    np.testing.assert_allclose(run(executable, x), rounded(hidden) @ rounded(WEIGHTS["v"]), rtol=1e-2, atol=1e-1)
    exact = np.maximum(x @ WEIGHTS["w"], 0) @ WEIGHTS["v"]
    error = np.abs(run(executable, x) - exact).max() / np.abs(exact).max()
    assert 1e-4 < error < 1e-2


def test_images_and_weights_of_convolutions_are_rounded():
    x = GENERATOR.standard_normal((1, 17, 4, 9)).astype("f")
    narrow, wide = (compiled(convolution(), precision, WITH) for precision in ("bfloat16", "float32"))
    assert any("conv_bfloat16_blocked" in name for name in narrow.primitive_ops)
    params = {"k": rounded(WEIGHTS["k"]), "b": WEIGHTS["b"]}
    expected = treadle.compile(convolution(), params=params, target=WITH, progress=False, embed_native=False)
    np.testing.assert_allclose(run(narrow, x), run(expected, rounded(x)), rtol=1e-4, atol=1e-4)
    assert np.abs(run(narrow, x) - run(wide, x)).max() > 1e-4


def test_a_row_is_the_same_in_any_batch():
    x = GENERATOR.standard_normal((5, 37)).astype("f")
    executable = compiled(perceptron(), "bfloat16", WITH)
    together = run(executable, x)
    assert all(run(executable, x[at : at + 1]).tobytes() == row.tobytes() for at, row in enumerate(together))


def test_a_cpu_without_the_instruction_rounds_matrices_alone():
    """Then float32 is as fast, and nothing else need be given away."""
    x = GENERATOR.standard_normal((3, 37)).astype("f")
    executable = compiled(perceptron(), "bfloat16", WITHOUT)
    assert not any("bfloat16" in name for name in executable.primitive_ops)
    expected = np.maximum(x @ rounded(WEIGHTS["w"]), 0) @ rounded(WEIGHTS["v"])
    np.testing.assert_allclose(run(executable, x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", [WITH, WITHOUT], ids=["with", "without"])
def test_large_matrices_take_half_the_bytes(target: Any):
    x, w = treadle.var("x", ("n", 512)), treadle.var("w", (512, 512))
    module = treadle.Module(main=treadle.function([x, w], op.matmul(x, w)))
    params = {"w": GENERATOR.standard_normal((512, 512)).astype("f")}
    sizes = [
        sum(
            each.nbytes
            for each in treadle.compile(
                module, params=params, precision=precision, target=target, progress=False, embed_native=False
            ).constants
        )
        for precision in ("float32", "bfloat16")
    ]
    assert sizes[1] * 2 == sizes[0]


def test_what_several_products_read_is_rounded_once():
    x, w = treadle.var("x", ("n", 37)), treadle.var("w", (37, 20))
    y = op.exp(x)
    products = op.add(op.matmul(y, w), op.matmul(y, treadle.constant(WEIGHTS["w"][:, ::-1].copy())))
    module = treadle.Module(main=treadle.function([x, w], products))
    executable = compiled(module, "bfloat16", WITH, without=["merge_products"])
    assert sum("round_bfloat16" in name for name in executable.primitive_ops) == 1


@pytest.mark.parametrize(("units", "is_narrow"), [(65, True), (16, False)])
def test_recurrent_weights_are_rounded_where_that_pays(units: int, is_narrow: bool):
    """Of states that are short, rounding takes as long as it gains."""
    x, blocks = treadle.var("x", (3, 2, 1, 1, units)), -(-units // 16)
    weights = (GENERATOR.standard_normal((1, blocks, units, 1, 16)) / units**0.5).astype("f")
    layer = op.rnn(x, treadle.constant(weights), treadle.constant(np.zeros((1, 2, units), "f")))
    module = treadle.Module(main=treadle.function([x], layer[0]))
    exact, narrow = (compiled(module, precision, WITH) for precision in ("float32", "bfloat16"))
    assert (sum(each.nbytes for each in narrow.constants) < sum(each.nbytes for each in exact.constants)) == is_narrow
    steps = GENERATOR.standard_normal((3, 2, 1, 1, units)).astype("f")
    error = np.abs(run(narrow, steps) - run(exact, steps)).max()
    narrowing = treadle.emulated("cooperlake").with_precision("bfloat16")
    compiled(module, None, narrowing)
    assert list(narrowing.narrowing.met.values()) == [3 * 2 * units * (2 * units + 4)] * is_narrow
    assert (0 < error < 2e-2) if is_narrow else error == 0


@pytest.mark.parametrize(("side", "is_narrow"), [(130, True), (30, False)])
def test_depthwise_convolutions_read_large_images_as_bfloat16(side: int, is_narrow: bool):
    """It is memory that they wait for."""
    x, weights = treadle.var("x", ("n", 16, side, side)), GENERATOR.standard_normal((16, 1, 3, 3)).astype("f")
    module = treadle.Module(main=treadle.function([x], op.conv(op.relu(x), treadle.constant(weights), groups=16)))
    executable = compiled(module, "bfloat16", WITH)
    assert any("round_bfloat16" in name for name in executable.primitive_ops) == is_narrow


@pytest.mark.parametrize(("channels", "groups", "window"), [(128, 1, 1), (40, 2, 3), (32, 2, 3)])
def test_pointwise_and_grouped_convolutions_are_narrow(channels: int, groups: int, window: int):
    """Also groups that begin within a block, and what would be a product of planes in float32."""
    x = treadle.var("x", ("n", channels, 40, 40) if window == 1 else ("n", channels, 5, 6))
    weights = GENERATOR.standard_normal((channels, channels // groups, window, window)).astype("f")
    options = {"groups": groups, "strides": (window // 2 + 1,) * 2, "pads": (window // 2,) * 4}
    module = treadle.Module(main=treadle.function([x], op.conv(x, treadle.constant(weights), **options)))
    executable = compiled(module, "bfloat16", WITH)
    assert any("conv_bfloat16_blocked" in name for name in executable.primitive_ops)
    if window > 1:
        image = rounded(GENERATOR.standard_normal((2, channels, 5, 6)).astype("f"))
        exact = treadle.Module(main=treadle.function([x], op.conv(x, treadle.constant(rounded(weights)), **options)))
        np.testing.assert_allclose(
            run(executable, image), run(compiled(exact, None, WITH), image), rtol=1e-4, atol=1e-3
        )


def test_what_is_added_later_is_rounded_where_it_is_made():
    """A kernel stores the float32 sums of a residual, and what the next product multiplies."""
    x, w = treadle.var("x", ("n", 37)), GENERATOR.standard_normal((20, 20)).astype("f")
    hidden = op.relu(op.matmul(x, treadle.constant(WEIGHTS["w"])))
    module = treadle.Module(main=treadle.function([x], op.add(op.matmul(hidden, treadle.constant(w)), hidden)))
    executable = compiled(module, "bfloat16", WITH)
    made = [each.definition for each in executable.program.primitives if len(each.definition.outputs) == 2]
    assert [[result.dtype.name for result in each.results] for each in made] == [["float32", "bfloat16"]]
    steps = GENERATOR.standard_normal((3, 37)).astype("f")
    wanted = np.maximum(rounded(steps) @ rounded(WEIGHTS["w"]), 0)
    wanted = rounded(wanted) @ rounded(w) + wanted
    np.testing.assert_allclose(run(executable, steps), wanted, rtol=1e-2, atol=1e-2)


def test_the_executable_says_its_precision():
    executables = [compiled(perceptron(), precision, WITH) for precision in (None, "float32", "bfloat16", "bfloat16")]
    assert [each.program.metadata.get("precision") for each in executables] == [None, None, "bfloat16", "bfloat16"]
    blobs = [each.as_bytes() for each in executables]
    assert blobs[0] == blobs[1] != blobs[2] == blobs[3]


def test_weights_of_a_narrow_program_are_replaced_by_name():
    executable = compiled(perceptron(), "bfloat16", WITH, named_weights=True)
    machine = treadle.VirtualMachine(executable)
    x, other = GENERATOR.standard_normal((2, 37)).astype("f"), {**WEIGHTS, "w": 2 * WEIGHTS["w"]}
    machine.load_params({name: other[name] for name in "wv"})
    expected = 2 * run(executable, x)  # a power of two: no bit of the sums differs
    np.testing.assert_array_equal(machine["main"](x).numpy(), expected)


@pytest.mark.skipif(not HAS_INSTRUCTION, reason="this CPU multiplies no bfloat16")
def test_kernels_of_this_cpu_are_those_of_the_emulator():
    x = GENERATOR.standard_normal((3, 37)).astype("f")
    here, there = (run(compiled(perceptron(), "bfloat16", target), x) for target in (None, treadle.emulated()))
    assert here.tobytes() == there.tobytes()
    operands = [treadle.var(name, (2, size, 8)) for name, size in (("query", 13), ("key", 37), ("value", 37))]
    module = treadle.Module(main=treadle.function(operands, op.attention(*operands)))
    arrays = [GENERATOR.standard_normal(each.type.shape).astype("f") for each in operands]
    machines = [treadle.VirtualMachine(compiled(module, "bfloat16", each)) for each in (None, treadle.emulated())]
    here, there = (machine["main"](*arrays).numpy() for machine in machines)
    assert here.tobytes() == there.tobytes()


@pytest.mark.parametrize("given", ["bfloat", "int4", 16, ""])
def test_a_precision_that_there_is_not(given: Any):
    with pytest.raises(CompileError, match=r"precision=.*expected float32, bfloat16 or int8"):
        compiled(perceptron(), given)


@pytest.mark.parametrize("target", [WITH, WITHOUT], ids=["with", "without"])
def test_narrow_attention_writes_all_queries_that_its_tiles_read(target: Any):
    operands = [
        treadle.var(name, ("n", size, 8)) for name, size in (("query", "rows"), ("key", "keys"), ("value", "keys"))
    ]
    executable = compiled(treadle.Module(main=treadle.function(operands, op.attention(*operands))), "bfloat16", target)
    machine = treadle.VirtualMachine(executable)
    for rows in (8, 9, 13):
        q, k, v = (GENERATOR.standard_normal((2, size, 8)).astype("f") for size in (rows, 5, 5))
        weights = np.exp(q @ k.swapaxes(1, 2))
        wanted = weights @ v / weights.sum(-1, keepdims=True)
        np.testing.assert_allclose(machine["main"](q, k, v).numpy(), wanted, rtol=0.03, atol=0.03)


def test_narrow_products_need_layouts():
    with pytest.raises(
        CompileError, match=r"precision='bfloat16' is made with the layouts of opt_level=2; got opt_level=1"
    ):
        compiled(perceptron(), "bfloat16", opt_level=1)


def test_nodes_are_narrow_by_name():
    x = GENERATOR.standard_normal((3, 37)).astype("f")
    whole = compiled(perceptron(), "bfloat16", WITH)
    names = [name for name, *_ in nodes_of(compiled(perceptron(), "auto", WITH, tolerance=1.0))]
    assert len(names) == 2
    assert compiled(perceptron(), dict.fromkeys(names, "bfloat16"), WITH).primitive_ops == whole.primitive_ops
    one = compiled(perceptron(), {names[0]: "bfloat16"}, WITH)
    assert sum("matmul_bfloat16" in name for name in one.primitive_ops) == 1
    hidden = np.maximum(rounded(x) @ rounded(WEIGHTS["w"]), 0)
    np.testing.assert_allclose(run(one, x), hidden @ WEIGHTS["v"], rtol=1e-4, atol=1e-4)
    with pytest.raises(
        CompileError, match=r"precision: no node 'hiden' may be narrow; these may: hidden, .*did you mean hidden"
    ):
        compiled(perceptron(), {"hiden": "bfloat16"}, WITH)


# ---- the search ----


def nodes_of(executable: Any) -> list:
    return json.loads(executable.program.metadata["precision_report"])["nodes"]


def chain() -> treadle.Module:
    """Four products of unlike sensitivity: each has larger numbers than the one before it, whose part of the sum is then lost."""
    x = treadle.var("x", ("n", 16))
    total: Any = x
    for at in range(4):
        weight = (GENERATOR.standard_normal((16, 16)) * 4**at).astype("f")
        total = op.add(total, treadle.named(f"product_{at}", op.matmul(x, treadle.constant(weight))))
    return treadle.Module(main=treadle.function([x], total))


@pytest.mark.parametrize("tolerance", [1.0, 3e-3, 1e-9])
@pytest.mark.filterwarnings("ignore:tolerance=")
def test_what_is_searched_is_within_the_tolerance(tolerance: float):
    module = chain()
    executable = treadle.compile(
        module,
        precision="auto",
        tolerance=tolerance,
        target=WITH,
        progress=False,
        embed_native=False,
        without=["merge_products"],
    )
    exact = treadle.compile(module, target=WITH, progress=False, embed_native=False)
    narrow = [name for name, precision, *_ in nodes_of(executable) if precision == "bfloat16"]
    assert len(narrow) == {1.0: 4, 1e-9: 0}.get(tolerance, len(narrow))
    assert tolerance > 0.5 or len(narrow) < 4
    for _ in range(5):
        x = GENERATOR.standard_normal((16, 16)).astype("f")
        wanted = run(exact, x)
        assert np.abs(run(executable, x) - wanted).max() <= tolerance * np.abs(wanted).max()


def test_the_search_says_what_it_chose():
    samples = [{"x": x.astype("f")} for x in GENERATOR.standard_normal((3, 4, 37))]
    executable = compiled(perceptron(), "auto", WITH, tolerance=0.1, samples=samples)
    text = str(executable.stats)
    assert "on the samples (3 given), " in text
    assert executable.program.metadata["precision"] == "auto"
    assert sum(share for *_, share in nodes_of(executable)) == pytest.approx(1, abs=1e-3)
    again = compiled(perceptron(), "auto", WITH, tolerance=0.1)
    assert again.as_bytes() == compiled(perceptron(), "auto", WITH, tolerance=0.1).as_bytes()


def test_nodes_that_no_tolerance_allows_are_named():
    with pytest.warns(UserWarning, match=r"tolerance=1e-09: no node is narrow within it.* by product_3, product_2"):
        executable = compiled(chain(), "auto", WITH, tolerance=1e-9, without=["merge_products"])
    assert "most of it by product_3, product_2" in str(executable.stats)


@pytest.mark.filterwarnings("ignore:tolerance=")
def test_a_search_imports_once_and_tries_a_bounded_number_of_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from treadle.compiler import driver

    calls = {"_import": 0, "generated": 0, "own": 0}

    def counted(name: str, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return function(*args, **options)

        return call

    monkeypatch.setattr(driver, "_import", counted("_import", driver._import))
    monkeypatch.setattr(driver.Compilation, "generated", counted("generated", driver.Compilation.generated))
    (tmp_path / "p.ir").write_text(str(perceptron()))
    own = counted("own", lambda module: module)
    own.__name__ = "own"
    passes = [treadle.after("simplify", own)]
    treadle.compile(
        tmp_path / "p.ir",
        params={name: WEIGHTS[name] for name in "wv"},
        precision="auto",
        tolerance=1e-3,
        target=WITH,
        passes=passes,
        progress=False,
    )
    assert calls["_import"] == calls["own"] == 1
    assert 4 <= calls["generated"] <= 21


def test_a_search_takes_all_precisions_and_says_what_is_made_of_nodes():
    """The second product is bfloat16 where int8 is asked for, since int8 gains nothing for so few columns."""
    x = treadle.var("x", ("n", 96))
    w, v = (treadle.constant(GENERATOR.standard_normal(shape).astype("f")) for shape in ((96, 64), (64, 9)))
    first = treadle.named("first", op.matmul(x, w))
    module = treadle.Module(main=treadle.function([x], treadle.named("second", op.matmul(op.relu(first), v))))
    executable = compiled(module, "auto", WITH, tolerance=1.0)
    assert [precision for _, precision, *_ in nodes_of(executable)] == ["int8", "bfloat16"]


@pytest.mark.skipif(not HAS_INSTRUCTION, reason="this CPU multiplies no bfloat16")
def test_times_are_measured_for_this_cpu():
    executable = compiled(perceptron(), "auto", None, tolerance=1.0)
    assert all(before > 0 and after > 0 for _, _, before, after, _ in nodes_of(executable))


@pytest.mark.parametrize("measure", ["cosine", "ranks:2", "nearest:1"])
def test_a_tolerance_is_of_what_one_asks_for(measure: str):
    executable = compiled(perceptron(), "auto", WITH, tolerance=1.0, measure=measure)
    assert len(nodes_of(executable)) == 2
    assert f"({measure})" in str(executable.stats)


def test_a_report_that_says_anything_is_no_report():
    executable = compiled(perceptron(), None, WITH)
    reports = [
        "",
        "[]",
        "{",
        '{"nodes": [[1, 2, 3]]}',
        '{"nodes": 5}',
        "[" * 60_000,
        '{"nodes": [["a", "b", 1e999, null]]}',
    ]
    for report in reports:
        assert "Precision" not in str(executable.with_metadata({"precision_report": report}).stats)


@pytest.mark.parametrize("tolerance", [0, -1, float("nan"), float("inf"), 10**400, "1e-2", True])
def test_a_tolerance_that_is_none(tolerance: Any):
    with pytest.raises(ArgumentError, match=r"tolerance=.*expected a number above 0"):
        compiled(perceptron(), "auto", WITH, tolerance=tolerance)


@pytest.mark.parametrize(
    "option", [{"tolerance": 0.01}, {"measure": "cosine"}, {"samples": {"x": np.zeros((2, 37), "f")}}]
)
def test_what_is_of_the_search_alone(option: dict):
    with pytest.raises(
        CompileError, match=r"tolerance, samples and measure are of precision='auto'; got precision='bfloat16'"
    ):
        compiled(perceptron(), "bfloat16", WITH, **option)


def test_a_bound_is_one_of_the_whole_search(monkeypatch: pytest.MonkeyPatch):
    """Of three programs that take a third of it each, and a little."""
    from treadle.compiler import bounds

    clock = iter(range(10_000))
    monkeypatch.setattr(bounds.time, "monotonic", lambda: 0.01 * next(clock))
    with pytest.raises(CompileError, match="max_seconds"):
        compiled(perceptron(), "auto", WITH, max_seconds=2.0)
    compiled(perceptron(), None, WITH, max_seconds=2.0)


def test_samples_that_do_not_fit():
    with pytest.raises(ArgumentError, match="there is no 'y'; main takes x"):
        compiled(perceptron(), "auto", WITH, samples={"y": np.zeros((2, 37), "f")})
    with pytest.raises(ArgumentError, match="samples: expected one mapping"):
        compiled(perceptron(), "auto", WITH, samples=[])


def test_the_package_that_bfloat16_needs_is_named():
    code = (
        "import sys; sys.modules['ml_dtypes'] = None; import treadle; treadle.compile('x.onnx', precision='bfloat16')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'ml_dtypes" in done.stderr


def test_commands_take_a_precision(tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / "p.ir").write_text(str(perceptron()))
    output = tmp_path / "p.trdl"
    assert main(["compile", str(tmp_path / "p.ir"), "-o", str(output), "--precision", "bfloat16", "--no-kernels"]) == 0
    assert main(["info", str(output)]) == 0
    assert "bfloat16" in capsys.readouterr().out
    np.savez(tmp_path / "s.npz", x=np.ones((2, 37), "f"), w=WEIGHTS["w"], v=WEIGHTS["v"])
    options = ["--precision", "auto", "--tolerance", "0.5", "--samples", str(tmp_path / "s.npz"), "--no-kernels"]
    assert main(["compile", str(tmp_path / "p.ir"), "-o", str(output), *options]) == 0
    assert main(["stats", str(output)]) == 0
    assert "on the samples (1 given); others may reach 0.0e+00, allowed 0.5" in capsys.readouterr().out
    assert main(["stats", str(output), "--precision"]) == 0
    assert capsys.readouterr().out.startswith("  Precision: off by 0.0e+00 (largest) on the samples")
    assert main(["stats", str(output), "--precision", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measure"] == "largest"
    assert main(["stats", str(tmp_path / "p.ir"), "--precision"]) == 2
    assert "nothing has searched for its precision" in capsys.readouterr().err
    assert main(["compile", str(tmp_path / "p.ir"), "-o", str(output), *options[:-2], str(output)]) == 2


@pytest.mark.parametrize("measure", ["ranks", "ranks:0", "ranks:x", "cosine:1", "", 5])
def test_a_measure_that_is_none(measure: Any):
    with pytest.raises(ArgumentError, match=r"measure=.*: expected largest, cosine, ranks:K or nearest:K"):
        compiled(perceptron(), "auto", WITH, measure=measure)


@pytest.mark.parametrize("tolerance", [np.float32(1), np.int64(1), 1])
def test_a_tolerance_is_a_number_of_any_kind(tolerance: Any):
    assert len(nodes_of(compiled(perceptron(), "auto", WITH, tolerance=tolerance))) == 2


@pytest.mark.parametrize("samples", [5, "a", {"x": "a"}, {"x": {}}, [{"x": np.ones((1, 37), "f")}, 5], iter([{}])])
def test_samples_that_are_none(samples: Any):
    with pytest.raises((ArgumentError, ShapeError), match="x"):
        compiled(perceptron(), "auto", WITH, samples=samples)


@pytest.mark.parametrize("precision", [DType.bfloat16, {"hidden": DType.bfloat16}, np.float32])
def test_precisions_are_strings(precision: Any):
    with pytest.raises(CompileError, match=r"precision=.*: expected float32, bfloat16 or int8"):
        compiled(perceptron(), precision, WITH)


def test_the_search_compares_all_tensors_of_a_result():
    x = treadle.var("x", ("n", 37))
    product = op.matmul(x, treadle.constant(WEIGHTS["w"]))
    nested = treadle.tuple_(treadle.tuple_(product, x), product)
    for result, count in ((nested, 1), (treadle.tuple_(), 0)):
        module = treadle.Module(main=treadle.function([x], result))
        assert len(nodes_of(compiled(module, "auto", WITH, tolerance=1.0))) == count
    inner = treadle.Module(
        main=treadle.function([x], treadle.function([y := treadle.var("y", ())], op.add(y, product)))
    )
    with pytest.raises(ArgumentError, match="a result is a Closure, which has no error"):
        compiled(inner, "auto", WITH)


def test_the_search_makes_texts_up():
    x, s = treadle.var("x", ("n", 37)), treadle.var("s", (2,), "string")
    product = op.matmul(x, treadle.constant(WEIGHTS["w"]))
    module = treadle.Module(main=treadle.function([x, s], treadle.tuple_(product, op.concat_texts(s, s))))
    samples = {"x": np.ones((1, 37), "f"), "s": ["a", "b"]}
    for each in (None, samples):
        assert len(nodes_of(compiled(module, "auto", WITH, tolerance=1.0, samples=each))) == 1


def test_what_is_said_of_many_nodes_fits_into_a_file():
    x = treadle.var("x", ("n", 20))
    y: Any = x
    names = [f"{'é' * 2000}{at}" for at in range(20)]
    for name in names:
        y = op.tanh(
            treadle.named(name, op.matmul(y, treadle.constant(GENERATOR.standard_normal((20, 20)).astype("f"))))
        )
    module = treadle.Module(main=treadle.function([x], y))
    executable = compiled(module, "auto", WITH, tolerance=1.0)
    assert 0 < len(nodes_of(treadle.load(executable.as_bytes()))) < 20
    executable = compiled(module, dict.fromkeys(names, "bfloat16"), WITH)
    assert treadle.load(executable.as_bytes()).program.metadata["precision"] == "of 20 nodes"


def test_like_nodes_are_measured_together():
    from treadle.debug.precision import _in_groups

    work = {f"{layer}{at}": size for at in range(4) for layer, size in (("fc", 50), ("attention", 10))}
    gains = {node: float(size) for node, size in work.items()}
    assert _in_groups(gains, work, 3) == [["fc0", "fc1"], ["fc2", "fc3"], [f"attention{at}" for at in range(4)]]
    assert _in_groups(gains, work, 1) == [list(work)]
    assert _in_groups({}, {}, 3) == []
