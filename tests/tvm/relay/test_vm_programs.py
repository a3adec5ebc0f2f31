"""Programs of TVM's tests/python/relay/test_vm.py that are about how code is made and run (tvm_spec, section 5.1)."""

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.tvm import relay
from treadle.tvm.relay.prelude import Prelude
from treadle.tvm.runtime.vm import Executable, VirtualMachine

RNG = np.random.default_rng(1)
ONES = np.ones((10, 10), "float32")


def machine(program, params=None):
    module = program if isinstance(program, relay.IRModule) else relay.IRModule.from_expr(program)
    return VirtualMachine(relay.vm.compile(module, "llvm", params=params), tvm.cpu())


def ran(program, *args):
    return machine(program).run(*args)


def test_fields_are_joined_where_fusion_is_stopped():
    x = relay.var("x", shape=(12,))
    parts = relay.split(x, 3, axis=0)
    joined = relay.concatenate([relay.annotation.stop_fusion(parts[0]), parts[0]], axis=0)
    data = RNG.random(12, "float32")
    np.testing.assert_array_equal(ran(relay.Function([x], joined), data).numpy(), np.tile(data[:4], 2))


def test_what_comes_in_goes_out_in_its_type():
    x = relay.var("x", shape=(10, 10), dtype="float64")
    data = RNG.random((10, 10))
    result = ran(relay.Function([x], x), data).numpy()
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, data)
    np.testing.assert_array_equal(ran(relay.Function([x], x + x), data).numpy(), data + data)


@pytest.mark.parametrize("count", [0, 10])
@pytest.mark.parametrize("is_tail_call", [True, False])
def test_loops_are_calls(count, is_tail_call):
    module = relay.IRModule()
    loop = relay.GlobalVar("loop")
    i, total = (relay.var(name, shape=(), dtype="int32") for name in ("i", "total"))
    one, zero = relay.const(1, "int32"), relay.const(0, "int32")
    lines = relay.ScopeBuilder()
    with lines.if_scope(relay.equal(i, zero)):
        lines.ret(total)
    with lines.else_scope():
        again = loop(relay.subtract(i, one), relay.add(total, i) if is_tail_call else total)
        lines.ret(again if is_tail_call else relay.add(again, i))
    module[loop] = relay.Function([i, total], lines.get(), ret_type=relay.TensorType([], "int32"))
    start = relay.var("start", shape=(), dtype="int32")
    module["main"] = relay.Function([start], loop(start, zero))
    assert machine(module).run(count).numpy() == sum(range(count + 1))


@pytest.mark.parametrize("shape", [(1, 10), ()])
def test_let_gives_a_name_to_a_value(shape):
    x, x1 = relay.var("x", shape=shape), relay.var("x1", shape=shape)
    lines = relay.ScopeBuilder()
    y = lines.let("y", x)
    lines.ret(lines.let(x1, relay.add(y, relay.const(42.0, "float32"))))
    data = RNG.random(shape, "float32") if shape else np.float32(3)
    np.testing.assert_array_equal(ran(relay.Function([x], lines.get()), data).numpy(), np.float32(42) + data)


def test_functions_are_composed_and_a_list_is_a_value():
    module = relay.IRModule()
    prelude = Prelude(module)
    lines = relay.ScopeBuilder()
    x = relay.var("x", "float32")
    x1 = lines.let("x1", x)
    lines.ret(lines.let("plus_one", relay.add(x1, relay.const(1.0, "float32"))))
    module["add_one"] = relay.Function([x], lines.get())
    add_one = module.get_global_var("add_one")
    y = relay.var("y", "float32")
    module["main"] = relay.Function([y], prelude.compose(add_one, add_one)(y))
    assert machine(module).run(np.float32(2)).numpy() == 4
    values = relay.var("values", relay.TupleType([relay.TensorType((2,))]))
    first = relay.Function([values], relay.TupleGetItem(values, 0))
    np.testing.assert_array_equal(ran(first, [np.ones(2, "float32")]).numpy(), [1, 1])


@pytest.mark.parametrize(("a", "b"), [(10, 1), (np.float16(10), np.float16(1)), (np.int32(10), np.array(1, "int32"))])
def test_numbers_of_other_types_are_added(a, b):
    dtype = getattr(a, "dtype", np.dtype("int32")).name
    x, y = relay.var("x", shape=(), dtype=dtype), relay.var("y", shape=(), dtype=dtype)
    result = ran(relay.Function([x, y], x + y), a, b).numpy()
    assert result == 11
    assert result.dtype == dtype


@pytest.mark.parametrize("shapes", [((10, 5), (10, 5)), ((10, 5), (1, 5))])
def test_tensors_are_added_and_broadcast(shapes):
    x, y = (relay.var(name, shape=shape) for name, shape in zip("xy", shapes, strict=True))
    a, b = (RNG.random(shape, "float32") for shape in shapes)
    np.testing.assert_array_equal(ran(relay.Function([x, y], x + y), a, b).numpy(), a + b)


def test_parameters_that_are_bound_are_no_parameters_any_more():
    module, params = relay.testing.mlp.get_workload(batch_size=1)
    optimized, _ = relay.vm.VMCompiler().optimize(module, target="llvm", params=params)
    free = relay.analysis.free_vars(optimized["main"].body)
    assert [variable.name_hint for variable in free] == ["data"]


@pytest.mark.parametrize("sizes", [(8, 16), (relay.Any(), 16), (tvm.te.size_var("n"), 16)])
def test_a_new_shape_is_a_view_in_the_code(sizes):
    x = relay.var("x", shape=sizes)
    code = relay.vm.compile(relay.Function([x], relay.reshape(relay.nn.relu(x), [-1, 4]) + relay.const(1.0))).bytecode
    assert code.count("reshape_tensor") == 1
    twice = relay.reshape(relay.reshape(x, [-1, 4]), [0, 2, -1])
    assert relay.vm.compile(relay.Function([x], twice)).bytecode.count("reshape_tensor") == 1


def test_a_field_of_a_tuple_gets_a_new_shape():
    pair = relay.var("pair", relay.TupleType([relay.TensorType((4, 1)), relay.TensorType((10,))]))
    out = relay.reshape(relay.TupleGetItem(pair, 0), (1, 4))
    data = RNG.random((4, 1), "float32")
    np.testing.assert_array_equal(
        ran(relay.Function([pair], out), (data, np.zeros(10, "float32"))).numpy(), data.reshape(1, 4)
    )


def test_a_library_runs_in_a_session(tmp_path):
    x = relay.var("x", shape=(10, 1))
    relay.vm.compile(relay.Function([x], x + x)).mod.export_library(tmp_path / "lib.so")
    session = tvm.rpc.LocalSession()
    session.upload(str(tmp_path / "lib.so"))
    there = VirtualMachine(session.load_module("lib.so"), session.cpu())
    data = RNG.random((10, 1), "float32")
    np.testing.assert_array_equal(there.invoke("main", tvm.nd.array(data, session.cpu())).numpy(), data + data)
    there.set_input("main", x=data)
    out = tvm.nd.empty((10, 1), device=session.cpu())
    there.invoke_with_outputs("main", {"x": tvm.nd.array(data)}, [out])
    np.testing.assert_array_equal(out.numpy(), data + data)
    assert there.benchmark(session.cpu(), tvm.nd.array(data), repeat=2, number=2, end_to_end=True).mean > 0


def test_inputs_keep_their_type():
    x = relay.var("x", shape=(2,), dtype="int8")
    vm = machine(relay.Function([x], x + x))
    vm.set_input("main", np.array([1, 2], "int8"))
    assert vm.run().dtype == "int8"


def test_a_function_of_unknown_shapes_may_be_a_function_of_the_module():
    data = relay.var("data", shape=(1, relay.Any(), 4))
    inner = relay.Function([data], relay.nn.relu(relay.reshape(data, (-1, 4))))
    module = relay.IRModule()
    module["inner"] = inner
    y = relay.var("y", shape=(1, relay.Any(), 4))
    module["main"] = relay.Function([y], module.get_global_var("inner")(y))
    values = RNG.standard_normal((1, 3, 4)).astype("float32")
    np.testing.assert_array_equal(machine(module).run(values).numpy(), np.maximum(values[0], 0))


def test_constants_of_an_executable_are_shown():
    x = relay.var("x", shape=(10,))
    executable = relay.vm.compile(relay.Function([x], relay.add(x, relay.const(np.arange(10, dtype="float32")))))
    assert "VirtualDevice[0]: device type 1" in executable.virtual_devices
    assert executable.constants.startswith(
        "VM Const[0]: NDArray[(10),float32,(1,0)]=[0,1,2,3,4,5,6,7,8,9] on device index 0"
    )


def test_a_constant_may_be_bound_by_let():
    a, b = relay.var("a", shape=(2,)), relay.var("b", shape=(2,))
    constant = relay.const(np.array([1, 2], "float32"))
    body = relay.Let(a, constant, relay.Let(b, relay.add(a, a), relay.add(a, b)))
    np.testing.assert_array_equal(ran(relay.Function([], body)).numpy(), [3, 6])


def test_nothing_is_late_bound_if_nobody_asks():
    x = relay.var("x", shape=(400,))
    values = np.arange(400, dtype="float32")
    code, lib = relay.vm.compile(relay.Function([x], x + relay.const(values))).save()
    loaded = Executable.load_exec(code, lib)
    np.testing.assert_array_equal(VirtualMachine(loaded, tvm.cpu()).run(np.zeros(400, "float32")).numpy(), values)


def test_parameters_of_one_name_cannot_be_bound_by_it():
    a, again = relay.var("a", shape=(1,)), relay.var("a", shape=(1,))
    with pytest.raises(tvm.TVMError, match="several parameters of the name a"):
        relay.build_module.bind_params_by_name(relay.Function([a, again], a + again), {"a": [1.0]})


def test_an_executor_of_graphs_converts_arrays_within_their_kind_of_number():
    x = relay.var("x", shape=(2,))
    call = relay.create_executor("graph", device=tvm.cpu(), target="llvm").evaluate(relay.Function([x], x + x))
    np.testing.assert_array_equal(call(np.ones(2, "float16")).numpy(), np.full(2, 2, "float32"))
    i = relay.var("i", shape=(2,), dtype="int32")
    call = relay.create_executor("graph", device=tvm.cpu(), target="llvm").evaluate(relay.Function([i], i + i))
    with pytest.raises(TypeError):
        call(np.ones(2, "float32"))


def test_variables_come_in_the_order_of_the_text():
    x, y, z, a = (relay.Var(name) for name in "xyza")
    function = relay.Function([x, y, z], relay.Let(a, x, relay.Tuple([])))
    assert relay.analysis.bound_vars(function) == [x, y, z, a]
    module = relay.IRModule()
    _, cons, nil = Prelude(module).mod.get_type("List")
    clauses = [
        relay.Clause(relay.PatternConstructor(nil), z),
        relay.Clause(relay.PatternConstructor(cons, [relay.PatternVar(x), relay.PatternVar(y)]), cons(x, y)),
    ]
    match = relay.Match(nil(), clauses)
    assert relay.analysis.all_vars(match) == [z, x, y]
    assert relay.analysis.free_vars(match) == [z]


def test_executors_and_runtimes_are_names_with_options():
    executor = relay.backend.Executor("aot", {"interface-api": "c"})
    assert (executor.name, executor["interface-api"], "link-params" in executor) == ("aot", "c", False)
    with pytest.raises(tvm.TVMError, match='Executor "woof" is not defined; there are aot, graph'):
        relay.backend.Executor("woof")
    with pytest.raises(
        tvm.TVMError, match=r'"system-lib" should have type "IntImm" but instead found "runtime.String"'
    ):
        relay.backend.Runtime("crt", {"system-lib": "yes"})
    x = relay.var("x", shape=(2,))
    library = relay.build(
        relay.Function([x], x + x),
        "llvm",
        executor=relay.backend.Executor("graph"),
        runtime=relay.backend.Runtime("cpp"),
    )
    assert library.graph_json == library.get_graph_json()


def test_older_names_of_the_machine_and_its_compiler():
    x = relay.var("x", shape=(2,))
    vm = VirtualMachine(relay.vm.compile(relay.Function([x], x + x), "llvm"))
    vm.init(tvm.context("cpu", 0))
    np.testing.assert_array_equal(
        vm.invoke("main", tvm.nd.array(np.ones(2, "float32"), ctx=tvm.cpu())).asnumpy(), [2, 2]
    )
    with pytest.raises(TypeError, match="dev is expected to be Device"):
        vm.init("cpu")
    compiler = relay.vm.VMCompiler()
    assert {kind: str(each.kind) for kind, each in compiler.update_target("llvm").items()} == {1: "llvm"}
    assert str(compiler.update_target_host(compiler.update_target({"cpu": "llvm"}), "").kind) == "llvm"
    with pytest.raises(ValueError, match="Target is not set in env or passed as argument"):
        compiler.update_target(None)
    with compiler.tophub_context({}):
        assert relay.create_executor("vm", ctx=tvm.cpu()).evaluate(relay.const(1) + relay.const(2)).numpy() == 3
    assert relay.testing.run_as_python(relay.const(1)).numpy() == 1
    assert tvm.module.load is tvm.runtime.load_module


def test_older_names_of_the_graph_executor_and_the_prelude():
    x = relay.var("x", shape=(2,))
    graph, library, _ = relay.build(relay.Function([x], x + x), "llvm")
    for create in (tvm.contrib.graph_runtime.create, tvm.contrib.debugger.debug_runtime.create):
        module = create(graph, library, ctx=tvm.context("llvm"))
        module.run(x=np.ones(2, "float32"))
        np.testing.assert_array_equal(module.get_output(0).numpy(), [2, 2])
    prelude = Prelude(relay.IRModule())
    _, cons, nil = prelude.mod.get_type("List")
    assert (prelude.cons, prelude.nil, prelude.l.name) == (cons, nil, "List")
    assert [each.name_hint for each in (prelude.some, prelude.none, prelude.rose)] == ["Some", "None", "Rose"]
