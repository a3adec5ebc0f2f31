"""Loop and Scan against onnxruntime: written out, and as loops of the IR, evaluated and compiled."""

import numpy as np
import onnx
import onnxruntime
import pytest
import treadle
from treadle.compiler import ir
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.onnx.importer import from_onnx
from treadle.formats.messages.errors import ShapeError, UnsupportedOperatorError

onnxruntime.set_default_logger_severity(4)
RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def parse(text):
    return onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 18]> ' + text)


def loops(module):
    return sum(isinstance(binding.value, ir.Loop) for binding in module.functions["main"].body.bindings)


def check(model, *arrays):
    """The imported module, which gives what onnxruntime does, evaluated and compiled."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = session.run(None, {info.name: array for info, array in zip(model.graph.input, arrays, strict=True)})
    module = from_onnx(model)
    main = treadle.VirtualMachine(treadle.compile(model, progress=False))["main"]
    for actual in (evaluate(module, "main", *arrays), main(*arrays)):
        results = actual if isinstance(actual, tuple) else (actual,)
        for a, b in zip(map(np.asarray, results), expected, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return module


NEWTON = """agraph ({count}float[n] x) => (float[n] root, float[m, n] steps) <float half = {{0.5}}, bool yes = {{1}}{more}> {{
    start = Mul(x, half)
    root, steps = Loop (count, yes, start) <
        body = round (int64 number, bool going, float[n] y) => (bool on, float[n] z, float[n] w) {{
        on = Identity(going)
        q = Div(x, y)
        s = Add(y, q)
        z = Mul(s, half)
        w = Sub(z, y)
    }}>
}}"""


def test_a_few_rounds_are_written_out():
    model = parse(NEWTON.format(count="", more=", int64 count = {4}"))
    assert loops(check(model, abs(normal(3)) + 1)) == 0


def test_many_rounds_are_a_loop():
    model = parse(NEWTON.format(count="", more=", int64 count = {300}"))
    assert loops(check(model, abs(normal(3)) + 1)) == 1


@pytest.mark.parametrize("count", [1, 5, 16, 50, 256, 300])
def test_a_number_of_rounds_that_a_run_tells(count):
    model = parse(NEWTON.format(count="int64 count, ", more=""))
    assert loops(check(model, np.array(count), abs(normal(3)) + 1)) == 1


def test_no_rounds():
    x = abs(normal(3))
    root, steps = evaluate(from_onnx(parse(NEWTON.format(count="int64 count, ", more=""))), "main", np.array(0), x)
    np.testing.assert_array_equal(root, x / 2)
    assert steps.shape == (0, 3)


def test_rounds_until_a_condition_fails():
    model = parse(
        """agraph (float[2] x) => (float[2] y, int64[k] numbers) <bool yes = {1}, float most = {100}> {
            y, numbers = Loop ("", yes, x) <body = round (int64 i, bool c, float[2] a) => (bool on, float[2] b, int64 j) {
                b = Add(a, a)
                sum = ReduceSum <keepdims = 0> (b)
                on = Less(sum, most)
                j = Identity(i)
            }>
        }"""
    )
    check(model, np.float32([1, 2]))
    check(model, np.float32([100, 2]))


def test_a_state_that_grows():
    model = parse(
        """agraph (int64 count, float[2] x) => (float[k] y) <bool yes = {1}> {
            y = Loop (count, yes, x) <body = round (int64 i, bool c, float[k] a) => (bool on, float[m] b) {
                on = Identity(c)
                b = Concat <axis = 0> (a, x)
            }>
        }"""
    )
    check(model, np.array(3), normal(2))


def test_outputs_that_grow_with_the_rounds_are_of_one_size_or_end_the_run():
    model = parse(
        """agraph (int64 count, float[2] x) => (float[k] y, float[k, m] z) <bool yes = {1}> {
            y, z = Loop (count, yes, x) <body = round (int64 i, bool c, float[k] a) => (bool on, float[m] b, float[m] d) {
                on = Identity(c)
                b = Concat <axis = 0> (a, x)
                d = Identity(b)
            }>
        }"""
    )
    call = treadle.VirtualMachine(treadle.compile(model, embed_native=False, progress=False), kernels="cached")["main"]
    x = np.float32([1, 2])
    assert [each.numpy().tolist() for each in call(np.int64(1), x)] == [[1, 2, 1, 2], [[1, 2, 1, 2]]]
    assert [each.shape for each in call(np.int64(0), x)] == [(2,), (0, 0)]
    with pytest.raises(ShapeError):  # onnxruntime refuses them as well
        call(np.int64(2), x)


def test_what_a_round_cannot_do_is_reported():
    model = parse(
        """agraph (int64 count, float[2] x) => (float[2] y) <bool yes = {1}> {
            y = Loop (count, yes, x) <body = round (int64 i, bool c, float[2] a) => (bool on, float[2] b) {
                on = Identity(c)
                b = Unheard(a)
            }>
        }"""
    )
    with pytest.raises(UnsupportedOperatorError, match="Unheard"):
        from_onnx(model)


SCAN = """agraph (float[b, 2] h, float[{length}, b, 2] x, float[b, 3, {length}] y)
    => (float[b, 2] last, float[b, {length}, 2] all) {{
    last, all = Scan (h, x, y) <num_scan_inputs = 2, scan_input_axes = [0, 2], scan_input_directions = [1, 0],
        scan_output_axes = [1], scan_output_directions = [{reverse}],
        body = round (float[b, 2] s, float[b, 2] u, float[b, 3] v) => (float[b, 2] t, float[b, 2] o) {{
            m = ReduceMax <keepdims = 1> (v, one)
            e = Mul(s, u)
            t = Add(e, m)
            o = Tanh(t)
        }}>
}}"""


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize(("length", "size", "count"), [(5, 5, 0), (400, 400, 1), ("n", 7, 1)])
def test_scans(length, size, count, reverse):
    text = SCAN.format(length=length, reverse=reverse).replace("{\n    last", "<int64[1] one = {1}> {\n    last", 1)
    module = check(parse(text), normal(4, 2), normal(size, 4, 2) / 4, normal(4, 3, size))
    assert loops(module) == count


def test_a_scan_without_states():
    model = parse(
        """agraph (float[n, 2] x) => (float[n, 2] y) {
            y = Scan (x) <num_scan_inputs = 1, body = round (float[2] a) => (float[2] b) { b = Exp(a) }>
        }"""
    )
    check(model, normal(6, 2))


def test_sequences_vanish():
    model = parse("""agraph (float[n, 6] x, float[n, 2] y) => (float[n, m] joined, float[3, n, 2] stacked, int64 count)
        <int64 two = {2}, int64 one = {1}, int64 last = {-1}, int64[2] sizes = {4, 2}> {
        parts = SplitToSequence <axis = 1> (x, two)
        more = SequenceInsert (parts, y, one)
        fewer = SequenceErase (more, last)
        count = SequenceLength (more)
        stacked = ConcatFromSequence <axis = 0, new_axis = 1> (fewer)
        uneven = SplitToSequence <axis = 1> (x, sizes)
        a = SequenceAt (uneven, last)
        b = SequenceAt (uneven, two_less)
        pair = SequenceConstruct (a, b)
        empty = SequenceEmpty ()
        alone = SequenceInsert (empty, y)
        c = ConcatFromSequence <axis = 1> (pair)
        d = ConcatFromSequence <axis = 1> (alone)
        joined = Concat <axis = 1> (c, d)
    }""".replace("two_less", "first").replace("int64 one", "int64 first = {0}, int64 one"))  # fmt: skip
    check(model, normal(4, 6), normal(4, 2))


@pytest.mark.parametrize("at", [-3, -1, 0, 3])
@pytest.mark.parametrize("to", [-3, -1, 0, 2])
def test_places_in_a_sequence_may_be_counted_from_its_end(at, to):
    model = parse(f"""agraph (float[n, 3] x, float[n, 1] y) => (float[n, 4] z, float[n, 3] w)
        <int64 one = {{1}}, int64 at = {{{at}}}, int64 to = {{{to}}}> {{
        parts = SplitToSequence <axis = 1> (x, one)
        more = SequenceInsert (parts, y, at)
        fewer = SequenceErase (more, to)
        z = ConcatFromSequence <axis = 1> (more)
        w = ConcatFromSequence <axis = 1> (fewer)
    }}""")
    check(model, normal(2, 3), normal(2, 1))


COLLECTED = """agraph (float[2, 3] x{more}) => (float[m, 3] y) <int64 count = {{3}}, bool yes = {{1}}> {{
    none = SequenceEmpty ()
    all = Loop (count, yes, none) <
        body = round (int64 number, bool going, seq(float[2, 3]) before) => (bool on, seq(float[2, 3]) after) {{
        on = Identity(going)
        scale = CastLike(number, x)
        part = Mul(x, scale)
        after = SequenceInsert(before, part)
    }}>
    y = ConcatFromSequence <axis = 0> (all)
}}"""


def test_a_sequence_of_a_few_rounds():
    check(parse(COLLECTED.format(more="")), normal(2, 3))


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_sequence_of_who_knows_how_many_rounds(count):
    check(
        parse(COLLECTED.format(more=", int64 count").replace("int64 count = {3}, ", "")), normal(2, 3), np.array(count)
    )


def test_a_size_that_a_round_computes_is_the_one_that_the_model_declares():
    """The rounds' slices are of one element, which only their bounds tell."""
    model = parse("""agraph (int64 count, float[5] x, float[1] first) => (float[n] last, float[m, 1] sums) <
        int64 one = {1}, int64[1] axis = {0}, bool yes = {1}
    > {
        last, sums = Loop (count, yes, first) <
            body = round (int64 number, bool going, float[1] y) => (bool on, float[1] z, float[1] w) {
            on = Identity(going)
            behind = Add(number, one)
            start = Unsqueeze(number, axis)
            end = Unsqueeze(behind, axis)
            part = Slice(x, start, end)
            z = Add(y, part)
            w = Identity(z)
        }>
    }""")
    check(model, np.array(4), normal(5), normal(1))


def test_scans_of_a_batch_as_they_were_before_opset_9():
    model = onnx.parser.parse_model("""<ir_version: 3, opset_import: ["" : 8]>
    agraph (float[2, 3] first, float[2, 4, 3] x) => (float[2, 3] last, float[2, 4, 3] sums) {
        last, sums = Scan <num_scan_inputs = 1, directions = [1],
            body = round (float[3] y, float[3] part) => (float[3] z, float[3] w) {
            z = Add(y, part)
            w = Identity(z)
        }> ("", first, x)
    }""")
    first, x = normal(2, 3), normal(2, 4, 3)
    last, sums = treadle.VirtualMachine(treadle.compile(model, progress=False))["main"](first, x)
    wanted = first[:, None] + np.cumsum(x[:, ::-1], 1)
    np.testing.assert_allclose(sums, wanted, rtol=1e-5, atol=1e-6)  # sums may be near 0
    np.testing.assert_allclose(last, wanted[:, -1], rtol=1e-5, atol=1e-6)


def test_the_tensors_of_a_scan_are_of_one_length() -> None:
    """Of one known only at run time, it checks; the other tells how many rounds there are."""
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[n] x, bool[n] c, float[3] y) => (z) {
        v = Compress <axis = 0> (x, c)
        z = Scan <num_scan_inputs = 2, body = b (float s, float t) => (float u) { u = Add(s, t) }> (v, y) }"""
    machine = treadle.VirtualMachine(treadle.compile(onnx.parser.parse_model(text), progress=False), kernels="cached")
    x, y = np.arange(4, dtype=np.float32), np.float32([1, 2, 3])
    np.testing.assert_array_equal(machine["main"](x, np.array([True, False, True, True]), y), np.float32([1, 4, 6]))
    with pytest.raises(ShapeError):
        machine["main"](x, np.ones(4, bool), y)
