"""What TVM's tests/python/relay/test_vm.py says of the Relay VM (tvm_spec, section 5.1)."""

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.formats.messages.errors import ArgumentError, ChecksumError, ExecutionError, ShapeError
from treadle.tvm import relay
from treadle.tvm.relay.loops import while_loop
from treadle.tvm.relay.prelude import Prelude
from treadle.tvm.runtime.container import ADT
from treadle.tvm.runtime.vm import Executable, VirtualMachine


def evaluated(program, *args):
    module = program if isinstance(program, relay.IRModule) else relay.IRModule.from_expr(program)
    return relay.create_executor("vm", mod=module, device=tvm.cpu(), target="llvm").evaluate()(*args)


def numbers(value):
    return [value.numpy().item()] if not isinstance(value, ADT) else [n for field in value for n in numbers(field)]


def listed(*values):
    module = relay.IRModule()
    prelude = Prelude(module)
    _, cons, nil = module.get_type("List")
    made = nil()
    for value in reversed(values):
        made = cons(relay.const(value), made)
    return module, prelude, made


def main(module, body, params=()):
    module["main"] = relay.Function(list(params), body)
    return module


def test_the_parts_of_a_split_are_a_tuple_of_three():
    x = relay.var("x", shape=(12,))
    data = np.arange(12, dtype="float32")
    result = evaluated(relay.Function([x], relay.split(x, 3, axis=0).astuple()), data)
    assert len(result) == 3
    for part, expected in zip(result, np.split(data, 3), strict=True):
        np.testing.assert_array_equal(part.numpy(), expected)


def test_a_condition_is_a_scalar_and_picks_a_branch_at_run_time():
    x, y = relay.var("x", shape=(4, 3)), relay.var("y", shape=(4, 3))
    same = relay.op.min(relay.op.nn.batch_flatten(relay.op.equal(x, y)), axis=[0, 1])
    a, b = np.ones((4, 3), "float32"), np.zeros((4, 3), "float32")
    assert evaluated(relay.Function([x, y], same), a, a).numpy()
    np.testing.assert_array_equal(evaluated(relay.Function([x, y], relay.If(same, x, y)), a, b).numpy(), b)


def test_a_parameter_without_a_type_that_is_a_condition_is_a_bool():
    b, v0, v1, v2, v3 = (relay.var(name) for name in ("b", "v0", "v1", "v2", "v3"))
    out = relay.Let(v3, relay.If(b, v1, v0), relay.Tuple([v2, v3]))
    out = relay.Let(v2, relay.If(b, v0, v1), out)
    out = relay.Let(v0, relay.Tuple([relay.const(0)]), relay.Let(v1, relay.Tuple([relay.const(1)]), out))
    assert numbers(evaluated(relay.Function([b], out), False)) == [1, 0]


def test_a_function_that_only_a_dead_branch_calls_is_left_out():
    module = relay.IRModule()
    x = relay.var("x", shape=(2, 2))
    for name, factor in (("double", 2.0), ("triple", 3.0)):
        y = relay.var("y", shape=(2, 2))
        module[name] = relay.Function([y], y * relay.const(factor))
    double, triple = module.get_global_var("double"), module.get_global_var("triple")
    module["main"] = relay.Function([x], relay.If(relay.const(True), double(x), triple(x)))
    assert "triple" not in relay.vm.compile(module).globals
    np.testing.assert_array_equal(evaluated(module, np.ones((2, 2), "float32")).numpy(), np.full((2, 2), 2))


def test_a_function_calls_itself():
    module = relay.IRModule()
    total = relay.GlobalVar("total")
    i = relay.var("i", shape=[], dtype="int32")
    lines = relay.ScopeBuilder()
    with lines.if_scope(relay.equal(i, relay.const(0, "int32"))):
        lines.ret(i)
    with lines.else_scope():
        lines.ret(relay.add(relay.Call(total, [relay.subtract(i, relay.const(1, "int32"))]), i))
    module[total] = relay.Function([i], lines.get(), ret_type=relay.TensorType([], "int32"))
    start = relay.var("start", shape=[], dtype="int32")
    assert evaluated(main(module, total(start), [start]), 10).numpy() == 55


def test_fields_of_a_tuple_that_is_an_argument():
    pair = relay.var("pair", type_annotation=relay.TupleType([relay.TensorType((1,)), relay.TensorType((3,))]))
    a, b = np.ones(1, "float32"), np.arange(3, dtype="float32")
    for place, expected in enumerate((a, b)):
        got = evaluated(relay.Function([pair], relay.TupleGetItem(pair, place)), (a, b))
        np.testing.assert_array_equal(got.numpy(), expected)


def test_lists_are_values_of_two_fields():
    module, _, three = listed(3, 2, 1)
    result = evaluated(main(module, three))
    assert len(result) == 2
    assert len(result[1]) == 2
    assert numbers(result) == [3, 2, 1]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("hd", [], [1]),
        ("tl", [], [2, 3]),
        ("nth", [1], [2]),
        ("length", [], [3]),
        ("sum", [], [6]),
        ("rev", [], [3, 2, 1]),
        ("update", [1, 9], [1, 9, 3]),
    ],
)
def test_functions_of_the_prelude_on_lists(name, arguments, expected):
    module, _, values = listed(1, 2, 3)
    function = module.get_global_var(name)
    assert numbers(evaluated(main(module, function(values, *map(relay.const, arguments))))) == expected


def test_the_tail_of_an_empty_list_is_an_error():
    module, prelude, empty = listed()
    with pytest.raises(ExecutionError):
        evaluated(main(module, prelude.tl(empty)))


def test_functions_of_the_prelude_take_functions():
    module, prelude, values = listed(1, 2, 3)
    _, cons, nil = module.get_type("List")
    x, y, n = relay.var("x"), relay.var("y"), relay.var("n", "int32")
    plus = relay.Function([n], n + relay.const(1))
    assert numbers(evaluated(main(module, prelude.map(plus, values)))) == [2, 3, 4]
    twice = relay.Function([y, x], cons(x, cons(x, y)))
    assert numbers(evaluated(main(module, prelude.foldl(twice, nil(), values)))) == [3, 3, 2, 2, 1, 1]
    assert numbers(evaluated(main(module, prelude.foldr(relay.Function([x, y], cons(x, y)), nil(), values)))) == [
        1,
        2,
        3,
    ]
    many = relay.Function([n], n > relay.const(1))
    assert numbers(evaluated(main(module, prelude.filter(many, values)))) == [2, 3]
    z = relay.var("z", "int32")
    four = prelude.iterate(plus, relay.const(4))
    module["main"] = relay.Function([z], four(z))
    assert evaluated(module, 1).numpy() == 5


def test_a_closure_keeps_what_it_captured():
    x, y = relay.var("x", shape=()), relay.var("y", shape=())
    made = relay.Function([y], relay.Function([x], x + y))(relay.const(1.0))
    assert evaluated(made(relay.const(2.0))).numpy() == 3


@pytest.mark.parametrize(
    "values", [(10.0, 1.0), (np.float32(10), np.float32(1)), (np.array(10, "float32"), np.array(1, "float32"))]
)
def test_numbers_of_all_kinds_are_arguments(values):
    x, y = relay.var("x", shape=()), relay.var("y", shape=())
    assert evaluated(relay.Function([x, y], x + y), *values).numpy() == 11


def test_a_loop_may_use_what_is_around_it():
    x, i, s = (relay.var(name, shape=(), dtype="int32") for name in "xis")
    one = relay.const(1, "int32")

    def steps(body, *args):
        loop = while_loop(lambda i, _: i < relay.const(10, "int32"), [i, s], body)
        last = relay.TupleGetItem(loop(relay.const(0, "int32"), relay.zeros((), "int32")), 1)
        return evaluated(relay.Function(relay.analysis.free_vars(last), last), *args).numpy()

    assert steps(lambda i, total: (i + one, total + i)) == 45
    assert steps(lambda i, total: (i + one, total + x), 2) == 20


def test_reshapes_follow_what_numbers_mean_and_what_a_run_computes():
    data = np.arange(128, dtype="float32").reshape(8, 16)
    for shape in ((8, 16), (relay.Any(), 16), (tvm.te.size_var("n"), 16)):
        x = relay.var("x", shape=shape)
        y = relay.reshape(relay.reshape(x, [-1, 4]), [0, 2, -1])
        np.testing.assert_array_equal(evaluated(relay.Function([x], y), data).numpy(), data.reshape(32, 2, 2))
    x, y = relay.var("x", shape=(8, 16)), relay.var("y", shape=(3,), dtype="int32")
    got = evaluated(relay.Function([x, y], relay.reshape(x, y)), data, np.array([0, -1, 8], "int32"))
    np.testing.assert_array_equal(got.numpy(), data.reshape(8, 2, 8))


def machine(program):
    return VirtualMachine(relay.vm.compile(relay.IRModule.from_expr(program), "llvm"), tvm.cpu())


def sum_of_two(*names):
    x, y = (relay.var(name, shape=(2, 3)) for name in names)
    return machine(relay.Function([x, y], x - y))


def test_inputs_are_set_by_place_by_name_and_one_by_one_and_stay():
    vm = sum_of_two("d0", "d1")
    a, b = (tvm.nd.array(np.full((2, 3), value, "float32")) for value in (5, 2))
    vm.set_input("main", a, b)
    assert vm.invoke("main").numpy()[0, 0] == 3
    assert vm.invoke("main").numpy()[0, 0] == 3
    vm.set_input("main", d1=a, d0=b)
    assert vm.invoke("main").numpy()[0, 0] == -3
    vm.set_one_input("main", 0, a)
    vm.set_one_input("main", "d1", b)
    assert vm.run().numpy()[0, 0] == 3
    vm.set_one_input("main", d0=b)
    assert vm.run().numpy()[0, 0] == 0


def test_wrong_inputs_are_named():
    vm = sum_of_two("d0", "d1")
    one = np.zeros((2, 3), "float32")
    with pytest.raises(ArgumentError, match=r"main: .* expected 2 \(d0, d1\), got 1"):
        vm.set_input("main", one)
    with pytest.raises(ArgumentError, match="no parameters d2"):
        vm.set_input("main", one, d2=one)
    with pytest.raises(ArgumentError, match="no parameter 2"):
        vm.set_one_input("main", 2, one)
    with pytest.raises(ArgumentError, match="Input has not been set for function main: d0, d1"):
        vm.invoke("main")
    with pytest.raises(AttributeError, match="Cannot find function other in executable; it has main"):
        vm.invoke("other")
    assert [vm.get_input_index(name) for name in ("d1", "d0", "invalid")] == [1, 0, -1]


def test_outputs_are_a_list_and_go_after_a_call_that_failed():
    x = relay.var("x", shape=(10,))
    vm = machine(relay.Function([x], relay.Tuple([x + x, x])))
    ones = np.ones(10, "float32")
    vm.invoke_stateful("main", ones)
    first, second = vm.get_outputs()
    np.testing.assert_array_equal(first.numpy(), 2 * ones)
    np.testing.assert_array_equal(second.numpy(), ones)
    with pytest.raises(ShapeError):
        vm.invoke_stateful("main", np.ones(9, "float32"))
    with pytest.raises(ArgumentError, match="there is no result"):
        vm.get_outputs()


def test_results_are_put_into_tensors_of_the_caller():
    vm = sum_of_two("x", "y")
    out = tvm.nd.empty((2, 3))
    a = np.ones((2, 3), "float32")
    vm.invoke_with_outputs("main", {"x": a, "y": -a}, [out])
    assert out.numpy()[0, 0] == 2
    vm.invoke_with_outputs("main", None, [out])
    with pytest.raises(ArgumentError, match=r"output 0 is float32\[2, 3\], but the tensor for it is float32\[3, 2\]"):
        vm.invoke_with_outputs("main", None, [tvm.nd.empty((3, 2))])


def test_a_machine_says_what_it_takes():
    executable = relay.vm.compile(relay.Function([], relay.const(1.0)))
    with pytest.raises(TypeError, match="exe is expected to be the type of Executable"):
        VirtualMachine(3, tvm.cpu())
    with pytest.raises(TypeError, match="dev is expected to be Device"):
        VirtualMachine(executable, "cpu")
    with pytest.raises(TypeError, match="memory_cfg is expected be string or dictionary"):
        VirtualMachine(executable, tvm.cpu(), 3)
    for setting in ("naive", "pooled", {tvm.cpu(): "naive"}, {tvm.cpu(): VirtualMachine.POOLED_ALLOCATOR}):
        assert VirtualMachine(executable, [tvm.cpu()], setting).run().numpy() == 1
    with pytest.raises(ArgumentError):
        VirtualMachine(executable, tvm.cuda())


def test_a_benchmark_has_a_result_for_each_repeat():
    vm = sum_of_two("x", "y")
    a = tvm.nd.array(np.ones((2, 3), "float32"))
    result = vm.benchmark(tvm.cpu(), a, a, func_name="main", repeat=2, number=1)
    assert len(result.results) == 2
    assert result.mean == result.median > 0
    assert vm.benchmark(tvm.cpu(), x=a, y=a, repeat=1, number=1, end_to_end=True).mean > 0
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        vm.benchmark(tvm.cpu(), a, a, z=a)


@pytest.mark.parametrize("end_to_end", [False, True])
def test_a_benchmark_asks_time_evaluator_of_the_module(monkeypatch, end_to_end):
    """Which tests put something else in the place of."""
    made = tvm.runtime.module.BenchmarkResult([1, 2, 2, 5])
    monkeypatch.setattr(tvm.runtime.module.Module, "time_evaluator", lambda *_, **__: lambda *_: made)
    a = tvm.nd.array(np.ones((2, 3), "float32"))
    assert sum_of_two("x", "y").benchmark(tvm.cpu(), a, a, end_to_end=end_to_end) is made


# ---- constants kept apart ----


def with_constant():
    values = np.arange(400, dtype="float32")
    x = relay.var("x", shape=(400,))
    return relay.vm.compile(relay.Function([x], x + relay.const(values))), values


def ran(executable):
    return VirtualMachine(executable, tvm.cpu()).invoke("main", np.zeros(400, "float32")).numpy()


def test_large_constants_lie_in_a_parameter_file(tmp_path):
    executable, values = with_constant()
    executable.move_late_bound_consts(tmp_path / "consts", byte_limit=256)
    assert list(tvm.runtime.load_param_dict((tmp_path / "consts").read_bytes())) == ["const_0"]
    with pytest.raises(ArgumentError, match="Need to load late-bound-constants before creating VM"):
        VirtualMachine(executable, tvm.cpu())
    executable.mod.export_library(tmp_path / "lib.tar")
    module = tvm.runtime.load_module(tmp_path / "lib.tar")
    module["load_late_bound_consts"](tmp_path / "consts")
    np.testing.assert_array_equal(ran(module), values)
    loaded = Executable(tvm.runtime.load_module(tmp_path / "lib.tar"))
    loaded.load_late_bound_consts(tmp_path / "consts")
    np.testing.assert_array_equal(ran(loaded), values)


def test_constants_are_handed_over_by_name():
    executable, values = with_constant()
    constants = executable.get_late_bound_consts(byte_limit=256)
    with pytest.raises(ArgumentError, match="No binding for late-bound constant at index 0 with name 'const_0'"):
        executable.load_late_bound_consts_from_map({})
    with pytest.raises(ArgumentError, match="Have 1 unused late-bound constants"):
        executable.load_late_bound_consts_from_map({**constants, "more": constants["const_0"]})
    with pytest.raises(ChecksumError, match="constant 0 of the name 'const_0'"):
        executable.load_late_bound_consts_from_map({"const_0": np.zeros(400, "float32")})
    executable.load_late_bound_consts_from_map(constants)
    np.testing.assert_array_equal(ran(executable), values)


def test_nothing_is_late_where_no_constant_is_large(tmp_path):
    executable, values = with_constant()
    executable.move_late_bound_consts(tmp_path / "consts", byte_limit=1 << 20)
    executable.load_late_bound_consts(tmp_path / "missing")
    np.testing.assert_array_equal(ran(executable), values)


def test_library_functions_have_types_and_unary_numbers_are_values():
    from treadle.tvm.relay import testing

    module = relay.IRModule()
    prelude = Prelude(module)
    module.import_from_std("nat.rly")
    list_, *_ = module.get_type("List")
    x = relay.TypeVar("x")
    assert module[prelude.rev].checked_type == relay.FuncType([list_(x)], list_(x), [x])
    assert module[prelude.hd].checked_type != relay.FuncType([list_(x)], list_(x), [x])
    total = module.get_global_var("nat_add")(testing.make_nat_expr(prelude, 2), testing.make_nat_expr(prelude, 3))
    assert testing.count(prelude, evaluated(main(module, total))) == 5
    nat, *_ = module.get_type("nat")
    n = relay.var("n", nat())
    doubled = main(module, module.get_global_var("nat_double")(n), [n])
    assert testing.count(prelude, evaluated(doubled, testing.make_nat_value(prelude, 4))) == 8
