"""Files that TVM's Relay VM compiler wrote: run where their primitives are handed over or registered."""

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.formats.messages.errors import ArgumentError, BudgetExceededError, ExecutionError, UnknownFunctionError
from treadle.tvm.runtime.container import ADT
from treadle.tvm.runtime.vm import Executable, VirtualMachine

from ...formats.relay_files import EVERYTHING, PRIMITIVES, WEIGHTS, everything, relay_file

X = np.full(4, 2, "float32")


def library():
    """What its primitives do: inputs, then outputs, into which they write."""
    functions = {"add": np.add, "subtract": np.subtract}
    return tvm.runtime.Module(
        {
            f"vm_mod_fused_{name}": lambda a, b, out, f=f: out.copyfrom(f(a.numpy(), b.numpy()))
            for name, f in functions.items()
        }
    )


def machine(data, lib=None):
    return VirtualMachine(Executable.load_exec(data, library() if lib is None else lib), tvm.cpu())


def test_every_instruction_runs():
    result = machine(everything()).run(X, 1)
    assert isinstance(result, ADT)
    copied, field, tag = result
    np.testing.assert_array_equal(copied.numpy(), WEIGHTS)  # (x + w) - x
    np.testing.assert_array_equal(field.numpy(), WEIGHTS)
    assert tag.numpy().tolist() == [0]


def test_what_an_if_chooses():
    result = machine(everything()).run(X, 5)
    assert result.tag == 3
    np.testing.assert_array_equal(result[0].numpy(), X)


def test_a_pattern_that_nothing_matches_is_an_error():
    with pytest.raises(ExecutionError, match="VM encountered fatal error"):
        machine(everything()).invoke("fails")


def test_registered_functions_will_do_where_they_are_handed_over(tmp_path):
    (tmp_path / "code.ro").write_bytes(everything())
    for name in PRIMITIVES:
        tvm.register_func(name, library()[name])
    try:
        with pytest.raises(UnknownFunctionError, match="Cannot find the primitives"):
            VirtualMachine(Executable.load_exec(everything(), None), tvm.cpu())
        assert VirtualMachine(Executable.load_exec(everything(), tvm.runtime.system_lib()), tvm.cpu()).run(X, 1)
        module = tvm.runtime.load_module(tmp_path / "code.ro", imports=list(PRIMITIVES))
        result = VirtualMachine(module, tvm.cpu()).run(X, 1)
        np.testing.assert_array_equal(result[0].numpy(), WEIGHTS)
    finally:
        for name in PRIMITIVES:
            tvm._ffi.registry.remove_global_func(name)


def test_all_primitives_that_are_missing_are_named_at_once():
    with pytest.raises(
        UnknownFunctionError, match=r"vm_mod_fused_add, vm_mod_fused_subtract: .* load_module\(path, imports="
    ):
        VirtualMachine(Executable.load_exec(everything(), None), tvm.cpu())


def test_what_an_executable_of_tvms_tells():
    found = Executable.load_exec(everything(), library())
    assert found.globals == ["main", "scaled", "first", "fails"]
    assert found.primitive_ops == list(PRIMITIVES)
    assert found.get_function_params("main") == ["x", "n"]
    assert "VM Function[1]: scaled(captured, x)" in found.bytecode
    assert '(#4): [("main", 0)' in found.stats
    assert "NDArray[(4),float32" in found.constants
    assert "device type 1, id 0" in found.virtual_devices
    assert found.lib["vm_mod_fused_add"] is not None
    with pytest.raises(ArgumentError, match="keep its file"):
        found.save()


def test_modules_of_files_run_too(tmp_path):
    for name, data in (
        ("code.ro", everything()),
        ("lib.so", b"\x7fELF" + len(everything()).to_bytes(8, "little") + everything()),
    ):
        (tmp_path / name).write_bytes(data)
        module = tvm.runtime.load_module(tmp_path / name)
        module.import_module(library())
        np.testing.assert_array_equal(VirtualMachine(module, tvm.cpu()).run(X, 1)[0].numpy(), WEIGHTS)
        np.testing.assert_array_equal(
            Executable(module).module["main"](tvm.nd.array(X), tvm.nd.array(np.array(1)))[0].numpy(), WEIGHTS
        )


def test_inputs_are_set_and_results_kept():
    vm = machine(everything())
    vm.set_input("main", X, n=1)
    vm.invoke_stateful("main")
    np.testing.assert_array_equal(vm.get_outputs()[0].numpy(), WEIGHTS)
    assert vm.get_input_index("n") == 1
    with pytest.raises(UnknownFunctionError, match="Cannot find function other in executable; it has main, scaled"):
        vm.invoke("other", X)


def test_constants_that_are_bound_later(tmp_path):
    data = relay_file(EVERYTHING, ("weights",), PRIMITIVES)
    found = Executable.load_exec(data, library())
    with pytest.raises(ArgumentError, match="Need to load late-bound-constants before creating VM: weights"):
        VirtualMachine(found, tvm.cpu())
    with pytest.raises(ArgumentError, match="No binding for late-bound constant at index 0 with name 'weights'"):
        found.load_late_bound_consts_from_map({})
    with pytest.raises(ArgumentError, match="1 unused"):
        found.load_late_bound_consts_from_map({"weights": WEIGHTS, "other": WEIGHTS})
    tvm.runtime.save_param_dict_to_file({"weights": tvm.nd.array(WEIGHTS)}, tmp_path / "consts")
    found.load_late_bound_consts(tmp_path / "consts")
    np.testing.assert_array_equal(VirtualMachine(found, tvm.cpu()).run(X, 1)[0].numpy(), WEIGHTS)
    found.load_late_bound_consts(tmp_path / "none")  # none is missing: nothing is read


def test_tuples_go_in_and_a_primitive_gets_their_fields():
    seen = []
    code = [(4, 0, 1, 0, 0), (9, 0, 1, 1), (1, 1)]  # a primitive is called with a tuple; get_field
    data = relay_file({"main": (("pair",), 2, code)}, (), ("look",))
    vm = machine(data, tvm.runtime.Module({"look": lambda *args: seen.append([arg.numpy().item() for arg in args])}))
    assert vm.run([1, (2, 3.5)])[1].numpy() == 3.5
    assert seen == [[1, 2, 3.5]]


def test_faults_of_a_program_are_named():
    storage = [(14, 4, 0), (14, 0, 1), (16, 0, 64, 2, 32, 1, 0, 0, 2)]
    cases = [
        ([*storage, (5, 2, 1, 2, 32, 1, 1, 3, 2), (1, 3)], "8 bytes at 0 do not lie in a storage of 4"),
        ([*storage, (5, 0, 1, 2, 32, 1, 1, 3, 1), (1, 3)], "expected a storage"),
        ([(14, -1, 0), (16, 0, 64, 2, 32, 1, 0, 0, 2), (1, 2)], "-1 bytes are asked for"),
        ([(14, 1, 0), (9, 0, 0, 1), (1, 1)], "get_field: expected a data value or a tuple"),
        ([(7, 0, 0, 0), (9, 0, 3, 1), (1, 1)], "there is no field 3 of 0"),
        ([(14, 1, 0), (3, 0, 0, 1), (1, 1)], "expected a closure"),
        ([(7, 0, 0, 0), (10, 0, 0, 1, 1), (1, 0)], "expect a Tensor"),
        ([(7, 0, 0, 0), (17, 0, 1), (1, 1)], "shape_of expect a Tensor"),
    ]
    for code, message in cases:
        with pytest.raises(ExecutionError, match=message):
            machine(relay_file({"main": ((), 4, code)})).run()


def test_recursion_ends_by_name():
    deep = relay_file({"main": (("x",), 2, [(2, 0, 1, 1, 0), (1, 1)])})
    with pytest.raises(BudgetExceededError, match="deep"):
        machine(deep).run(X)
    closures = relay_file({"main": (("x",), 3, [(8, 0, 0, 1), (3, 1, 1, 2, 0), (1, 2)])})
    with pytest.raises(BudgetExceededError, match="deep"):
        machine(closures).run(X)
