"""Tuning: what is measured is what is offered, choices are kept, and without being asked nothing depends on them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import treadle
from onnx import numpy_helper, parser
from treadle.compiler import driver
from treadle.compiler.driver import compile, with_kernels
from treadle.compiler.targets.cpu import backend, timing, tune, tune_algorithms
from treadle.compiler.targets.cpu.operators import winograd
from treadle.compiler.targets.cpu.target import host, of
from treadle.compiler.targets.cpu.tune import Session, tune_kernels, with_known_variants
from treadle.formats.executable import Executable, load
from treadle.native import platform
from treadle.native.llvm import NativeTarget
from treadle.tools.cli import main
from treadle.vm import library
from treadle.vm.machine import VirtualMachine

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[64, 64] x, float[64, 96] w) => (float[64, 96] y) { h = MatMul(x, w) y = Relu(h) }"""


@pytest.fixture(scope="module")
def executable() -> Executable:
    return compile(parser.parse_model(MODEL), progress=False, embed_native=False)


@pytest.fixture(autouse=True)
def no_memory_of_other_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels may come from the user's cache; choices may not."""
    kept: dict[str, bytes] = {}
    original = platform.ObjectCache.get, platform.ObjectCache.put
    choices = lambda key: f"choice {key}"  # noqa: E731
    monkeypatch.setattr(tune, "_choice_key", choices)

    def get(cache: platform.ObjectCache, key: str) -> bytes | None:
        return kept.get(key) if key.startswith("choice ") else original[0](cache, key)

    def put(cache: platform.ObjectCache, key: str, content: bytes) -> None:
        kept.__setitem__(key, content) if key.startswith("choice ") else original[1](cache, key, content)

    monkeypatch.setattr(platform.ObjectCache, "get", get)
    monkeypatch.setattr(platform.ObjectCache, "put", put)


@pytest.fixture
def likes(monkeypatch: pytest.MonkeyPatch):
    """Makes variants that contain a text twice as fast as all others, whatever they are."""

    def use(text: str) -> None:
        def seconds(kernel: timing.Timed, calls: int) -> float:
            return 0.5e-3 if text in kernel.variant else 1e-3

        monkeypatch.setattr(timing.Timed, "seconds", seconds)

    return use


def test_the_fastest_variant_is_kept(executable: Executable, likes) -> None:
    likes("prefetch=False")
    session = Session(30, progress=False)
    tuned, found = tune_kernels(executable, session=session), session.found
    assert [each.variant for each in found.outcomes] == ["prefetch=False"]
    assert found.seconds == pytest.approx(found.default_seconds / 2)
    assert list(tuned.tuning[host().key].values()) == ["prefetch=False"]
    x, w = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((64, 64), (64, 96)))
    again = load(with_kernels(tuned, progress=False).as_bytes(), trust_native=True)
    results = [VirtualMachine(each)["main"](x, w).numpy() for each in (executable, again)]
    assert results[0].tobytes() == results[1].tobytes()


def test_choices_are_used_only_when_asked_for(executable: Executable, likes) -> None:
    likes("prefetch=False")
    tune_kernels(executable, session=Session(30, progress=False))
    assert with_known_variants(executable).tuning
    plain, again = (compile(parser.parse_model(MODEL), progress=False, embed_native=False) for _ in range(2))
    assert plain.as_bytes() == again.as_bytes() == executable.as_bytes()


def test_the_default_stays_where_nothing_is_faster(executable: Executable, likes) -> None:
    likes("no such variant")
    session = Session(30, progress=False)
    tuned, found = tune_kernels(executable, session=session), session.found
    assert not tuned.tuning
    assert len(found.outcomes) == 1


def test_a_later_tuning_may_return_to_the_default(executable: Executable, likes) -> None:
    likes("prefetch=False")
    session = Session(30, progress=False)
    tuned, _ = tune_kernels(executable, session=session), session.found
    likes("no such variant")
    session = Session(30, progress=False)
    again, _ = tune_kernels(tuned, session=session), session.found
    assert not again.tuning
    assert not with_known_variants(executable).tuning


def test_without_time_nothing_is_measured(executable: Executable) -> None:
    session = Session(0, progress=False)
    tuned, found = tune_kernels(executable, session=session), session.found
    assert not tuned.tuning
    assert not found.outcomes


def test_an_interruption_keeps_what_was_found(executable: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "_tune_one", interrupted)
    session = Session(30, progress=False)
    _, found = tune_kernels(executable, session=session), session.found
    assert found.was_interrupted


def test_measurements_are_of_real_calls(executable: Executable) -> None:
    (use,) = tune._tunable(executable.program, host())
    assert use.calls == 1
    for cold in (0, 1 << 22):
        data = timing.Operands(use, timing.Memory(cold))
        default, other = data.kernels(["", "prefetch=False"], host())
        assert default is not None
        assert other is not None
        assert 1e-7 < default.seconds(2) < 1


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture, likes) -> None:
    likes("prefetch=False")
    (tmp_path / "m.onnx").write_bytes(parser.parse_model(MODEL).SerializeToString())
    assert main(["compile", f"{tmp_path}/m.onnx", "-o", f"{tmp_path}/m.trdl", "--tune", "30", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["tuning"]["outcomes"][0]["variant"] == "prefetch=False"
    assert main(["info", f"{tmp_path}/m.trdl"]) == 0
    assert "; tuned: 1 for " in capsys.readouterr().out
    assert main(["compile", f"{tmp_path}/m.onnx", "--tuned", "-o", f"{tmp_path}/again.trdl"]) == 0
    assert (tmp_path / "again.trdl").read_bytes() == (tmp_path / "m.trdl").read_bytes()


CONVOLUTION = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[1, 32, 24, 24] x) => (float[1, 32, 24, 24] y) { y = Conv<pads = [1, 1, 1, 1]>(x, w) }"""


@pytest.fixture(scope="module")
def convolution() -> onnx.ModelProto:
    model = parser.parse_model(CONVOLUTION)
    weight = np.random.default_rng(0).standard_normal((32, 32, 3, 3)).astype(np.float32) / 17
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


def anchors(executable: Executable) -> set[str]:
    return {node.operator for primitive in executable.program.primitives for node in primitive.definition.nodes}


def test_the_fastest_algorithm_is_taken(convolution: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the cost model says."""

    def seconds(kernel: timing.Timed, calls: int) -> float:
        return 0.5e-3 if (kernel.operands.definition.nodes[0].operator == "conv_winograd") == wants_winograd else 1e-3

    monkeypatch.setattr(timing.Timed, "seconds", seconds)
    monkeypatch.setattr(tune_algorithms, "_key", lambda problem, target: f"choice {problem}")
    default = compile(convolution, progress=False, embed_native=False)
    x = np.random.default_rng(1).standard_normal((1, 32, 24, 24)).astype(np.float32)
    expected = VirtualMachine(default)["main"](x).numpy()
    for wants_winograd in (True, False):
        session = Session(30, progress=False)
        tuned = compile(convolution, progress=False, embed_native=False, tune=session)
        assert ("conv_winograd" in anchors(tuned)) == wants_winograd
        np.testing.assert_allclose(VirtualMachine(tuned)["main"](x).numpy(), expected, rtol=1e-4, atol=1e-5)
        remembered = compile(convolution, progress=False, embed_native=False, tuned=True)
        assert anchors(remembered) == anchors(tuned)
    assert compile(convolution, progress=False, embed_native=False).as_bytes() == default.as_bytes()


def test_what_has_no_size_to_measure_at_is_left_alone() -> None:
    """A result of h - 69 lines, of an image of 64."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        agraph (float[1, 16, h, 9] x, float[16, 16, 70, 1] w) => (float[1, 16, k, 9] y) { y = Conv(x, w) }""")
    weight = numpy_helper.from_array(np.ones((16, 16, 70, 1), np.float32), "w")
    model.graph.initializer.append(weight)
    del model.graph.input[1]
    session = Session(1.0, progress=False)
    compile(model, progress=False, tune=session)
    assert all("conv" not in outcome.name for outcome in session.found.outcomes)


def test_the_source_that_is_shown_is_the_variant_that_runs(executable):
    """Of the kernel with a tile other than the default's."""
    from treadle.compiler.targets.cpu.kernels.lower import lower, space

    (primitive,) = executable.program.primitives
    options = space(primitive.definition, host())
    name = next(name for name, texts in options.items() if len(texts) > 1)
    variants = [f"{name}={text}" for text in options[name]]
    sources = [lower(primitive.definition, host(), variant).source for variant in variants]
    variant, source = next(pair for pair in zip(variants, sources, strict=True) if pair[1] != sources[0])
    assert executable.lib.get_source(primitive.name) == sources[0]
    key = library.definition_key(primitive.definition, host().key)
    tuned = executable.with_tuning({host().key: {key: variant}})
    assert tuned.lib.get_source(primitive.name) == source
    assert tuned.lib.get_source(primitive.name, "asm") != executable.lib.get_source(primitive.name, "asm")


@pytest.mark.parametrize("cpu", ["haswell", "x86-64-v4"])
def test_algorithms_are_chosen_for_the_registers_of_the_target(cpu):
    target = of(NativeTarget(host().native.triple, cpu, ""))
    asked = []
    original = winograd.best_tiles

    def watched(problem, *, registers=None):
        asked.append(registers)
        return original(problem, registers=registers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "best_tiles", watched)
        weights = np.zeros((128, 128, 3, 3), np.float32)
        x = treadle.var("x", (1, 128, 7, 7), "float32")
        module = treadle.Module(main=treadle.function([x], treadle.op.conv(x, weights, pads=(1, 1, 1, 1))))
        driver.compile_module(module, target=target)
    assert asked
    assert set(asked) == {target.block_registers}
