"""What looks on while passes run."""

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
