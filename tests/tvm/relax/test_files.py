"""Programs of the Relax VM in files: written, read, and run where what they call is handed over or registered."""

import contextlib
from random import Random

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.formats.messages.errors import (
    ArgumentError,
    FormatError,
    TreadleError,
    UnknownFunctionError,
    UnknownGlobalFunctionError,
)
from treadle.tools.cli import main
from treadle.tools.dev.fuzz.changes import mutate_bytes
from treadle.tools.dev.fuzz.targets import read_corpus
from treadle.tvm import relax
from treadle.tvm.files.relax_executable import save_relax_executable
from treadle.tvm.files.relax_program import VOID, Call, Kind, Operand, RelaxFunction, RelaxProgram, Ret
from treadle.tvm.machines.relax.machine import RelaxMachine
from treadle.tvm.machines.relax.module import load_relax_program
from treadle.tvm.modules.registry import contained_names, list_global_func_names

A = tvm.nd.array(np.arange(4.0))


def built():
    """main(x) = x + a constant, its shape, and more constants."""
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=1, param_names=["x"]):
        ib.emit_call(
            "test.files.add", args=[ib.r(0), A, (2, 3), "text", 0.5, 1 << 60, tvm.DataType("float32")], dst=ib.r(1)
        )
        ib.emit_ret(ib.r(1))
    return ib.get()


def library():
    return tvm.runtime.Module({"test.files.add": lambda x, a, *rest: tvm.nd.array(x.numpy() + a.numpy())})


@pytest.mark.parametrize("name", ["model.ro", "model.tar", "model.so"])
def test_what_execbuilder_made_goes_into_a_file_and_comes_back(name, tmp_path, capsys):
    built().export_library(tmp_path / name)
    assert main(["dis", str(tmp_path / name)]) == 0
    assert capsys.readouterr().out == built().as_text()
    module = tvm.runtime.load_module(tmp_path / name)
    assert module["as_text"]() == built().as_text()
    assert module["stats"]() == built().stats()
    module.import_module(library())
    np.testing.assert_array_equal(relax.VirtualMachine(module, tvm.cpu())["main"](A).numpy(), 2 * A.numpy())
    np.testing.assert_array_equal(module["main"](A).numpy(), 2 * A.numpy())
    executable = relax.Executable(module)  # and functions of what the module imports
    assert executable.as_text() == built().as_text()
    np.testing.assert_array_equal(relax.VirtualMachine(executable, tvm.cpu())["main"](A).numpy(), 2 * A.numpy())
    with_library = built()
    with_library.mod.import_module(library())
    np.testing.assert_array_equal(relax.VirtualMachine(with_library, tvm.cpu())["main"](A).numpy(), 2 * A.numpy())


def test_all_functions_that_are_missing_are_named_at_once(tmp_path):
    program = RelaxProgram(
        (
            RelaxFunction("main", (), (Call(1, (), VOID), Call(2, (), VOID), Call(3, (), VOID), Ret(VOID)), 0),
            RelaxFunction("matmul"),
            RelaxFunction("softmax"),
            RelaxFunction("compiled", (), None, 1, is_native=True),
        ),
        (),
    )
    save_relax_executable(program, tmp_path / "model.ro")
    module = tvm.runtime.load_module(tmp_path / "model.ro")
    with pytest.raises(UnknownFunctionError, match=r"matmul, softmax, compiled \(native code of TVM's\)"):
        relax.VirtualMachine(module, tvm.cpu())


def test_functions_of_native_code_are_not_taken_from_the_registry(tmp_path):
    program = RelaxProgram((RelaxFunction("test.files.native", (), None, 1, is_native=True),), ())
    save_relax_executable(program, tmp_path / "model.ro")
    tvm.register_func("test.files.native", lambda: None)
    with pytest.raises(UnknownFunctionError, match="native code"):
        relax.VirtualMachine(tvm.runtime.load_module(tmp_path / "model.ro"), tvm.cpu())


def test_constants_that_no_file_has_are_named(tmp_path):
    ib = relax.ExecBuilder()
    with ib.function("main"):
        ib.emit_call("test.files.add", args=[ib.c(0)])
        ib.emit_ret(ib.void_arg())
    program = RelaxProgram(
        (RelaxFunction("main", (), (Call(1, (Operand(Kind.CONSTANT, 0),), VOID), Ret(VOID)), 0), RelaxFunction("f")),
        (object(),),
    )
    with pytest.raises(FormatError, match="constant 0: a object is none of"):
        relax.Executable(program).export_library(tmp_path / "model.ro")
    assert not (tmp_path / "model.ro").exists()


class Enough(Exception):
    """A program ran for long enough."""


def test_whatever_a_changed_program_does_its_errors_are_named():
    functions = dict.fromkeys(("add", "matmul", "relu", "softmax", "shape_func", "test.add", "test.mul"), lambda *_: A)
    outcomes = {"refused": 0, "ran": 0}
    for number in range(3000):
        random = Random(number)
        try:
            program = load_relax_program(mutate_bytes(random, random.choice(read_corpus("relax"))))
            machine = RelaxMachine(program, functions)
        except TreadleError:
            outcomes["refused"] += 1
            continue
        left = iter(range(2000))

        def watch(*_, left=left):
            if next(left, None) is None:
                raise Enough

        machine.instrument = watch
        for function in program.own():
            with contextlib.suppress(TreadleError, Enough):
                machine.call(function.name, [random.choice((A, 3, None, (A, A))) for _ in function.params])
            outcomes["ran"] += 1
    assert min(outcomes.values()) > 200


def file_that_calls(name, folder, args=(), constants=()):
    """A file whose main calls a function by its name, with these constants."""
    operands = tuple(Operand(Kind.CONSTANT, number) for number in range(len(constants)))
    code = (Call(1, operands, 0), Ret(0))
    program = RelaxProgram((RelaxFunction("main", (), code, 1), RelaxFunction(name)), tuple(constants))
    save_relax_executable(program, folder / "model.ro")
    return folder / "model.ro"


# All that a file's program may call without being handed it: what works on its arguments alone. A new one is looked at by
# somebody before it stands here.
CONTAINED = """
alloc_shape_heap alloc_storage alloc_tensor apply_presence_and_frequency_penalty apply_repetition_penalty
apply_softmax_with_temperature attention_kv_cache_append attention_kv_cache_array_clear attention_kv_cache_array_popn
attention_kv_cache_attention_with_fused_qkv attention_kv_cache_commit_accepted_token_tree_nodes
attention_kv_cache_create attention_kv_cache_debug_get_kv attention_kv_cache_empty
attention_kv_cache_enable_sliding_window_for_seq attention_kv_cache_get_num_available_pages
attention_kv_cache_get_query_positions attention_kv_cache_get_total_sequence_length attention_kv_cache_update
attention_kv_cache_view attention_kv_cache_window_override attention_kv_cache_window_override_with_sinks call_tir_dyn
check_func_info check_prim_value_info check_shape_info check_tensor_info check_tuple_info compute_condition compute_size
copy cuda_graph.get_cached_alloc cuda_graph.run_or_capture debug_print ensure_zero_offset hexagon.dma_copy
hexagon.dma_wait invoke_closure kv_state_add_sequence kv_state_begin_forward kv_state_clear kv_state_end_forward
kv_state_fork_sequence kv_state_popn kv_state_remove_sequence make_closure make_prim_value make_shape make_tuple
match_prim_value match_shape multinomial_from_uniform null_value paged_attention_kv_cache_create
paged_attention_kv_cache_create_reduced read_if_cond reshape rnn_state_create rnn_state_debug_get rnn_state_get
rnn_state_set sample_top_p_from_logits sample_top_p_from_prob shape_of shape_to_tensor tensor_to_shape to_device
tuple_getitem tuple_reset_item
"""


def test_a_program_from_a_file_reaches_contained_builtins_alone(tmp_path):
    names = {f"vm.builtin.{name}" for name in CONTAINED.split()}
    assert contained_names() == {*names, "relax.run.assert_op", "relax.run.print"}
    tvm.register_func("test.files.registered", lambda: "reached", override=True)
    tvm.get_global_func("runtime.ModuleLoadFromFile")  # registers TVM's own
    for name in list_global_func_names():
        path = file_that_calls(name, tmp_path)
        if name in contained_names():
            RelaxMachine(load_relax_program(path))
            continue
        for load in (tvm.runtime.load_module(path), load_relax_program(path)):
            with pytest.raises(UnknownFunctionError, match=r"load_module\(path, imports="):
                relax.VirtualMachine(load, tvm.cpu())


def test_what_a_file_is_handed_it_reaches(tmp_path):
    path = file_that_calls("test.files.registered", tmp_path)
    tvm.register_func("test.files.registered", lambda: "reached", override=True)
    for imports in (["test.files.registered"], {"test.files.registered": lambda: "reached"}):
        module = tvm.runtime.load_module(path, imports=imports)
        assert module["main"]() == "reached"
        assert relax.VirtualMachine(module, tvm.cpu())["main"]() == "reached"
    with pytest.raises(UnknownGlobalFunctionError, match="Cannot find global function other"):
        tvm.runtime.load_module(path, imports=["other"])
    with pytest.raises(ArgumentError, match=r"imports='test\.files\.registered': expected functions by name"):
        tvm.runtime.load_module(path, imports="test.files.registered")


def test_a_builtin_that_somebody_registered_anew_is_not_what_a_file_reaches(tmp_path):
    path = file_that_calls("vm.builtin.make_tuple", tmp_path)
    before = tvm.get_global_func("vm.builtin.make_tuple")
    tvm.register_func("vm.builtin.make_tuple", lambda *_: "another", override=True)
    try:
        assert tvm.runtime.load_module(path)["main"]() == ()
    finally:
        tvm.register_func("vm.builtin.make_tuple", before, override=True)


def test_a_program_made_here_reaches_the_registry_as_ever():
    tvm.register_func("test.files.registered", lambda: "reached", override=True)
    ib = relax.ExecBuilder()
    with ib.function("main"):
        ib.emit_call("test.files.registered", args=[], dst=ib.r(0))
        ib.emit_ret(ib.r(0))
    assert relax.VirtualMachine(ib.get(), tvm.cpu())["main"]() == "reached"
