"""`tvm.relax`: the Relax VM, and what makes programs for it."""

from .._lazy import lazy

_OTHERS = {"expr": ".block_builder", "struct_info": ".block_builder", "vm_build": ".build_module"}

_NAMES = {
    ".block_builder": "BlockBuilder DataflowVar Expr If TensorStructInfo Tuple TupleGetItem TupleStructInfo Var const",
    ".build_module": "build",
    ".exec_builder": "ExecBuilder VMFuncKind VMFuncScope",
    ".executable": "Executable",
    ".op.packed": "Call ExternFunc call_dps_packed call_packed call_pure_packed",
    ".transform": "get_pipeline",
    ".vm": "VMInstrumentReturnKind VirtualMachine",
}

__getattr__, __dir__ = lazy(__name__, "frontend op testing transform vm", others=_OTHERS, names=_NAMES)
