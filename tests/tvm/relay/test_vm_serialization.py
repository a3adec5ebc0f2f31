"""What TVM's tests/python/relay/test_vm_serialization.py says (tvm_spec, section 5.2)."""

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.tvm import relay
from treadle.tvm.relay import testing
from treadle.tvm.relay.prelude import Prelude
from treadle.tvm.runtime.vm import Executable, VirtualMachine


def through_bytes(program, *args, params=None):
    module = program if isinstance(program, relay.IRModule) else relay.IRModule.from_expr(program)
    code, lib = relay.vm.compile(module, params=params).save()
    return VirtualMachine(Executable.load_exec(code, lib), tvm.cpu()).run(*args)


def test_code_and_library_are_a_bytearray_and_a_module():
    module = relay.IRModule()
    for name, make in (("f1", lambda x: x + relay.const(1.0)), ("f2", lambda x: x - relay.const(2.0))):
        x = relay.var("x", shape=(10, 10))
        module[name] = relay.Function([x], make(x))
    a, b = relay.var("x1", shape=(10, 10)), relay.var("y1", shape=(10, 10))
    module["main"] = relay.Function([a, b], module.get_global_var("f1")(a) * module.get_global_var("f2")(b))
    executable = relay.vm.compile(module)
    assert sorted(executable.globals) == ["f1", "f2", "main"]
    for name in ("add", "subtract", "multiply"):
        assert any(each.startswith(f"vm_mod_fused_{name}") for each in executable.primitive_ops)
    assert "VM Function[0]: main(x1, y1)\n# reg file size = " in executable.bytecode
    assert "f1(x)" in executable.bytecode
    assert '("main", 0)' in executable.stats
    assert "(#3)" in executable.stats
    code, lib = executable.save()
    assert isinstance(code, bytearray)
    assert isinstance(lib, tvm.runtime.Module)


def test_what_load_exec_takes():
    code, lib = relay.vm.compile(relay.Function([], relay.const(1.0))).save()
    with pytest.raises(TypeError, match="bytecode is expected to be the type of bytearray or TVMByteArray"):
        Executable.load_exec(3, lib)
    with pytest.raises(TypeError, match=r"lib is expected to be the type of tvm\.runtime\.Module"):
        Executable.load_exec(code, "lib")
    assert VirtualMachine(Executable.load_exec(bytes(code), None), tvm.cpu()).run().numpy() == 1


def test_code_and_library_go_through_files(tmp_path):
    x = relay.var("x", shape=(10, 10))
    code, lib = relay.vm.compile(relay.Function([x], x + x)).save()
    lib.export_library(tmp_path / "lib.tar")
    (tmp_path / "code.ro").write_bytes(code)
    loaded = Executable.load_exec((tmp_path / "code.ro").read_bytes(), tvm.runtime.load_module(tmp_path / "lib.tar"))
    data = np.ones((10, 10), "float32")
    np.testing.assert_array_equal(VirtualMachine(loaded, tvm.cpu()).run(data).numpy(), 2 * data)


def test_functions_and_lists_come_back():
    module = relay.IRModule()
    prelude = Prelude(module)
    _, cons, nil = module.get_type("List")
    module["main"] = relay.Function([], cons(relay.const(2), cons(relay.const(1), nil())))
    result = through_bytes(module)
    assert (result[0].numpy(), result[1][0].numpy(), len(result[1][1])) == (2, 1, 0)
    x, y = relay.var("x", "float32"), relay.var("y", "float32")
    plus = relay.Function([x], x + relay.const(1.0))
    module["main"] = relay.Function([y], prelude.compose(plus, plus)(y))
    assert through_bytes(module, np.float32(1)).numpy() == 3


def test_dimensions_that_a_run_knows():
    x = relay.var("x", shape=(relay.Any(),) * 3)
    shape = relay.var("shape", shape=(2,), dtype="int64")
    data = np.arange(24, dtype="float32").reshape(2, 3, 4)
    program = relay.Function([x, shape], relay.reshape(relay.nn.relu(x), newshape=shape))
    np.testing.assert_array_equal(through_bytes(program, data, np.array([1, -1])).numpy(), data.reshape(1, -1))
    a, b = relay.var("a", shape=(relay.Any(), 2)), relay.var("b", shape=(3, 2))
    one, three = np.ones((1, 2), "float32"), np.ones((3, 2), "float32")
    np.testing.assert_array_equal(through_bytes(relay.Function([a, b], a + b), one, three).numpy(), one + three)


def test_a_network_gives_the_same_as_before_it_was_saved():
    module, params = testing.synthetic.get_workload()
    data = np.random.default_rng(0).random((1, 3, 24, 12), "float32")
    before = relay.create_executor("vm", mod=module, device=tvm.cpu()).evaluate()(data, **params).numpy()
    np.testing.assert_allclose(through_bytes(module, data, params=params).numpy(), before, rtol=1e-5, atol=1e-5)
