"""Parts of programs: fused functions, intermediate values, what quantisation surrounds, data for calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....formats.messages.errors import ArgumentError
from ..build_module import create_executor
from ..expr import Call, Expr, Function, GlobalVar, Tuple, TupleGetItem
from ..infer import infer_module
from ..module import IRModule
from ..passes.core import op_of
from ..structural import structural_hash
from ..ty import TupleType
from ..visit import children, postorder


def extract_fused_functions(mod: IRModule) -> dict[str, Function]:
    """The functions that `FuseOps` makes of the module's main after `SimplifyInference`, by their hashes."""
    from ...transform import Sequential
    from ..transform import FuseOps, SimplifyInference

    fused = Sequential([SimplifyInference(), FuseOps(3)])(mod)["main"]
    several = (each for each in postorder(fused) if isinstance(each, Function) and each.attrs.get("Primitive"))
    return {str(structural_hash(each)): each for each in several}


def extract_intermediate_expr(mod: IRModule, expr_id: int) -> IRModule:
    """A module whose main gives the call, tuple or field of this number, counted in the order of evaluation. Raises
    ArgumentError."""
    several = [each for each in postorder(mod["main"]) if isinstance(each, (Call, Tuple, TupleGetItem))]
    if not 0 <= expr_id < len(several):
        raise ArgumentError(f"extract_intermediate_expr: there are {len(several)} expressions, got {expr_id}")
    return IRModule.from_expr(several[expr_id])


extract_intermdeiate_expr = extract_intermediate_expr  # TVM's spelling


def list_fake_quantized_op_freqs(mod: IRModule) -> dict[str, int]:
    """How often each operator is called between `qnn.dequantize` and `qnn.quantize`."""
    counts: dict[str, int] = {}
    for quantize in postorder(mod["main"]):
        if op_of(quantize) == "qnn.quantize":
            for name in _region(quantize):
                counts[name] = counts.get(name, 0) + 1
    return counts


def _region(quantize: Any) -> list[str]:
    """The operators between what is quantized and what was dequantized; none if something else goes in."""
    found, seen, waiting = [], set(), [quantize.args[0]]
    while waiting:
        expr = waiting.pop()
        name = op_of(expr)
        if id(expr) in seen or name == "qnn.dequantize":
            continue
        seen.add(id(expr))
        if isinstance(expr, (Tuple, TupleGetItem)):
            waiting += children(expr)
        elif name and name != "qnn.quantize":
            found.append(name)
            waiting += expr.args
        elif not hasattr(expr, "array"):
            return []
    return found


def get_calibration_data(mod: IRModule, data: Mapping[str, Any]) -> dict[GlobalVar, dict[str, list[Any]]]:
    """For each function of the attribute `Compiler`, the inputs and outputs that it has when main gets `data`."""
    made = infer_module(mod.shallow_copy())
    main = made["main"]
    calls = [each for each in postorder(main.body) if isinstance(each, Call) and isinstance(each.op, GlobalVar)]
    calls = [each for each in calls if "Compiler" in getattr(mod[each.op], "attrs", {})]
    wanted: list[Expr] = []
    places: dict[GlobalVar, tuple[int, int, int]] = {}
    for call in calls:
        type_ = call.checked_type
        outputs = (
            [TupleGetItem(call, at) for at in range(len(type_.fields))] if isinstance(type_, TupleType) else [call]
        )
        places[call.op] = len(wanted), len(call.args), len(outputs)
        wanted += [*call.args, *outputs]
    made["main"] = Function(main.params, Tuple(wanted))
    for name, function in list(made._functions.items()):
        if isinstance(function, Function):
            made._functions[name] = function.without_attr("Compiler")
    values = create_executor("vm", made).evaluate()(**data) if wanted else []
    return {
        name: {
            "inputs": list(values[start : start + count]),
            "outputs": list(values[start + count : start + count + given]),
        }
        for name, (start, count, given) in places.items()
    }
