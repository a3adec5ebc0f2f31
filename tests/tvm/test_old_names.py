"""Names that TVM's documents and old scripts use, each as TVM has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.tvm import relax, relay
from treadle.tvm.contrib import graph_executor
from treadle.tvm.runtime.profiling import Report
from treadle.tvm.runtime.vm import VirtualMachine

DATA = np.arange(3, dtype="float32")


def module() -> tvm.IRModule:
    x = relay.var("x", shape=(3,))
    return tvm.IRModule.from_expr(relay.Function([x], x + x))


def test_a_graph_module_has_the_functions_under_their_private_names() -> None:
    graph = graph_executor.GraphModule(relay.build(module(), "llvm")["default"](tvm.cpu()))
    graph._set_input("x", DATA)
    graph.run()
    assert graph._get_output(0).numpy().tolist() == [0, 2, 4]
    assert graph._get_input("x").numpy().tolist() == DATA.tolist()
    assert (graph._get_num_outputs(), graph._get_num_inputs(), graph._get_input_index("x")) == (1, 1, 0)
    assert callable(graph._load_params)
    assert callable(graph._share_params)
    with pytest.raises(AttributeError, match="_other"):
        _ = graph._other


def test_a_build_module_gives_the_parts_of_a_build() -> None:
    builder = relay.build_module.BuildModule()
    with pytest.raises(TypeError, match="call build first"):
        builder.get_graph_json()
    text, library, params = builder.build(module(), "llvm")
    graph = graph_executor.create(text, library, tvm.cpu())
    graph.set_input("x", DATA)
    graph.run()
    assert graph.get_output(0).numpy().tolist() == [0, 2, 4]
    assert params == {}
    assert builder.optimize(module(), "llvm")[1] == {}


def test_an_executable_is_one_module_with_the_functions_of_tvms() -> None:
    executable = relay.vm.compile(module(), "llvm")
    assert executable.module is executable.mod
    assert executable.mod["get_function_param_name"]("main", 0) == "x"
    assert isinstance(executable.mod["get_lib"](), tvm.runtime.Module)
    code = executable.mod["save"]()
    assert isinstance(code, tvm._ffi.runtime_ctypes.TVMByteArray)
    machine = VirtualMachine(relay.vm.Executable.load_exec(code, executable.lib))
    machine.init(ctx=tvm.cpu())
    assert machine.mod["invoke"] is not None
    assert machine.invoke("main", DATA).numpy().tolist() == [0, 2, 4]
    with pytest.raises(ValueError, match="no parameters zz"):
        machine.set_input("main", DATA, zz=DATA)


def test_a_vm_executor_has_its_program_and_machine() -> None:
    executor = relay.create_executor("vm", module(), tvm.cpu())
    assert executor.ctx == tvm.cpu()
    assert executor.vm.invoke("main", DATA).numpy().tolist() == [0, 2, 4]
    assert executor.executable.globals == ["main"]


def test_a_compiler_is_a_module_of_functions_and_says_targets_by_numbers_with_a_value() -> None:
    compiler = relay.vm.VMCompiler()
    assert [key.value for key in compiler.update_target("llvm")] == [tvm.cpu().device_type]
    compiler.mod["lower"](module(), "llvm")
    assert compiler.mod["get_executable"]().globals == ["main"]


def test_arguments_are_converted_as_a_machine_takes_them() -> None:
    number, several = relay.vm.convert([1.5, [DATA, 2]])
    assert (number.dtype, several[1].dtype) == ("float32", "int32")
    assert several[0].numpy().tolist() == DATA.tolist()


def test_the_module_of_a_compiled_relax_program_runs_and_is_exported(tmp_path: Any) -> None:
    x, builder = relax.Var("x", relax.TensorStructInfo((3,))), relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    built = relax.build(builder.get(), "llvm")
    for each in (built.mod, built.mod["vm_load_executable"]()):
        main = (
            relax.VirtualMachine(each, tvm.cpu())["main"] if each.type_key != "relax.VirtualMachine" else each["main"]
        )
        assert main(DATA).numpy().tolist() == [0, 2, 4]
    path = tmp_path / "program.trdl"
    built.mod.export_library(path)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    assert machine["main"](DATA).numpy().tolist() == [0, 2, 4]
    seen: list[Any] = []
    tvm.register_func("test.old_names.before", lambda *args: seen.append(len(args)), override=True)
    machine.time_evaluator("main", tvm.cpu(), number=1, f_preproc="test.old_names.before")(tvm.nd.array(DATA))
    assert seen == [1]


def test_export_library_gives_what_fcompile_gives(tmp_path: Any) -> None:
    library = relay.build(module(), "llvm")
    assert library.export_library(str(tmp_path / "a.so"), lambda path, objects, **options: len(objects) > 0) is True


@pytest.mark.parametrize("form", ["o", "obj"])
def test_object_files_have_the_suffix_that_fcompile_says(form: str, tmp_path: Any) -> None:
    def suffixes(path: str, objects: list[str]) -> set[str]:
        return {each.rpartition(".")[2] for each in objects}

    suffixes.object_format = form
    library = relay.build(module(), "llvm")
    assert library.export_library(str(tmp_path / "a.so"), suffixes) == {form}
    suffixes.object_format = "bc"
    with pytest.raises(tvm.TVMError, match="object_format is 'bc'"):
        library.export_library(str(tmp_path / "a.so"), suffixes)


@pytest.mark.parametrize(
    ("name", "instead"), [("driver", "the command treadle"), ("build", r"relay\.build and relax\.build")]
)
def test_names_left_out_say_what_does_their_job(name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=instead):
        getattr(tvm, name)
    with pytest.raises(ModuleNotFoundError, match=instead):
        __import__(f"treadle.tvm.{name}")


def test_small_names() -> None:
    assert tvm.cpu().texture_spatial_limit() is None
    report = Report([{"Name": tvm.runtime.String("f")}])
    assert Report.from_json(s=report.json()).calls == [{"Name": "f"}]
    assert tvm.expr is tvm.tir
    assert tvm.DataType("float32") == "float32"
    assert {tvm.DataType("float"): 1}["float32"] == 1
    assert tvm.DataType("float32") != "int32"
    assert isinstance(relay.build(module(), "llvm")["default"], tvm.runtime.PackedFunc)
    with tvm.transform.PassContext(opt_level=7):
        assert relay.create_executor("vm", module()).evaluate()(DATA).numpy().tolist() == [0, 2, 4]


def test_types_and_constants_are_what_importers_expect() -> None:
    assert relay.op.const is relay.const
    assert relay.TensorType((2,)).span is None
    with pytest.raises(tvm.TVMError, match="expected a dimension"):
        tvm.ir.TensorType("xx", "float32")


def test_a_profile_of_relax_calls_tuples_by_their_builtin() -> None:
    text = "@I.ir_module\nclass M:\n    @R.function\n    def main(x: R.Tensor((3,), 'float32')):\n        return (x, (x,))\n"
    machine = relax.VirtualMachine(relax.build(tvm.script.from_source(text), "llvm"), tvm.cpu())
    assert {call["Name"] for call in machine.profile("main", tvm.nd.array(DATA)).calls} == {"vm.builtin.make_tuple"}
