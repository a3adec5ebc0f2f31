"""`tvm.relax`: the Relax VM, and what makes programs for it."""

from .._lazy import lazy

printer = f"{__package__.rpartition('.')[0]}.script.printer"  # whose `script(node)` is a node's text
binder = f"{__name__}.passes"  # whose `with_params` and `with_symbols` bind a function's

_OTHERS = {"vm_build": ".build_module"}

_NAMES = {
    ".block_builder": "BlockBuilder",
    ".build_module": "build",
    ".exec_builder": "ExecBuilder VMFuncKind VMFuncScope",
    ".executable": "Executable",
    ".expr": """
        Binding BindingBlock Call Constant DataTypeImm DataflowBlock DataflowVar Expr ExternFunc Function GlobalVar If
        MatchCast Op PrimValue SeqExpr StringImm Tuple TupleGetItem Var VarBinding const get_shape_of
    """,
    ".op": "call_dps_packed call_packed call_pure_packed call_tir call_tir_inplace call_tir_with_grad",
    ".struct_info": """
        FuncStructInfo ObjectStructInfo PrimStructInfo ShapeExpr ShapeStructInfo StructInfo TensorStructInfo TupleStructInfo
    """,
    ".module": "IRModule",
    ".transform": "get_pipeline",
    ".ty": "DynTensorType FuncType ObjectType PackedFuncType PrimType ShapeType TupleType",
    ".vm": "VMInstrumentReturnKind VirtualMachine",
}

__getattr__, __dir__ = lazy(
    __name__, "analysis expr frontend op struct_info testing transform ty vm", others=_OTHERS, names=_NAMES
)
