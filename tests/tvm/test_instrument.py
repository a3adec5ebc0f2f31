"""What looks on while passes run."""

import pytest
import treadle.tvm as tvm
from treadle.tvm import relay

A_MODULE = relay.IRModule.from_expr(relay.const(1.0))


def passes() -> tvm.transform.Sequential:
    return tvm.transform.Sequential([relay.transform.InferType(), relay.transform.FoldConstant()])


def test_an_instrument_of_a_class_with_some_of_the_methods_sees_each_pass():
    seen = []

    @tvm.instrument.pass_instrument
    class Seen:
        def run_before_pass(self, mod, info):
            seen.append(info.name)

        def should_run(self, mod, info):
            return info.name != "FoldConstant"

    with tvm.transform.PassContext(instruments=[Seen()]):
        passes()(A_MODULE)
    assert seen == ["sequential", "InferType"]


def test_a_timing_instrument_has_a_line_for_each_pass():
    timing = tvm.instrument.PassTimingInstrument()
    with tvm.transform.PassContext(instruments=[timing]):
        passes()(A_MODULE)
        lines = timing.render().splitlines()
    assert [line.split(":")[0] for line in lines] == ["sequential", "\tInferType", "\tFoldConstant"]
    assert all(line.endswith("us") for line in lines)


def test_modules_are_printed_before_and_after(capsys):
    with tvm.transform.PassContext(instruments=[tvm.instrument.PrintBeforeAll(), tvm.instrument.PrintAfterAll()]):
        relay.transform.InferType()(A_MODULE)
    printed = capsys.readouterr().out
    assert printed.count("def @main") == 2
    assert "Before Running Pass" in printed


def test_instruments_of_the_default_context_stay_until_others_come():
    timing = tvm.instrument.PassTimingInstrument()
    context = tvm.transform.PassContext.current()
    context.override_instruments([timing])
    relay.transform.InferType()(A_MODULE)
    assert timing.render().startswith("InferType")
    context.override_instruments(None)
    assert tvm.transform.PassContext.current().instruments == []


def test_an_instrument_that_fails_ends_its_context():
    seen = []

    class Told(tvm.instrument.PassInstrument):
        def exit_pass_ctx(self):
            seen.append("over")

    class Broken(tvm.instrument.PassInstrument):
        def enter_pass_ctx(self):
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"), tvm.transform.PassContext(instruments=[Told(), Broken(), Told()]):
        pass
    assert seen == ["over"]
    assert tvm.transform.PassContext.current().instruments == []
    with pytest.raises(RuntimeError, match="broken"):
        tvm.transform.PassContext.current().override_instruments([Broken()])
    assert tvm.transform.PassContext.current().instruments == []


def primitives_of(build: object) -> list[int]:
    """How many primitives a build makes of the program below, with all passes and without fusion."""
    found = []
    for disabled in ([], ["fuse"]):
        with tvm.transform.PassContext(disabled_pass=disabled):
            found.append(len(build().program.primitives))
    return found


def test_each_way_to_build_leaves_out_the_passes_that_a_context_disables():
    x = relay.var("x", shape=(2,))
    function = relay.Function([x], relay.exp(relay.tanh(x)))
    builder = tvm.relax.BlockBuilder()
    y = tvm.relax.Var("y", tvm.relax.TensorStructInfo((2,), "float32"))
    with builder.function("main", [y]):
        builder.emit_func_output(tvm.relax.op.exp(tvm.relax.op.tanh(y)))
    assert primitives_of(lambda: relay.vm.compile(function, "llvm").program) == [1, 2]
    assert primitives_of(lambda: relay.build(function, "llvm").executable) == [1, 2]
    assert primitives_of(lambda: tvm.relax.build(builder.get(), "llvm").program) == [1, 2]
