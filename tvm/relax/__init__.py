"""`tvm.relax`: the Relax VM, and what makes programs for it."""

from .._lazy import lazy

_OTHERS = {"expr": ".module", "struct_info": ".struct_info", "vm_build": ".build_module"}

_NAMES = {
    ".block_builder": "BlockBuilder If Tuple TupleGetItem const",
    ".build_module": "build",
    ".exec_builder": "ExecBuilder VMFuncKind VMFuncScope",
    ".executable": "Executable",
    ".module": "BindingBlock DataflowBlock Function SeqExpr VarBinding",
    ".op.packed": "Call ExternFunc call_dps_packed call_packed call_pure_packed",
    ".struct_info": """
        FuncStructInfo ObjectStructInfo PrimStructInfo ShapeExpr ShapeStructInfo StructInfo TensorStructInfo TupleStructInfo
    """,
    ".transform": "get_pipeline",
    ".values": "DataflowVar Expr Var",
    ".vm": "VMInstrumentReturnKind VirtualMachine",
}

__getattr__, __dir__ = lazy(__name__, "frontend op testing transform vm", others=_OTHERS, names=_NAMES)
