"""`relay.testing`: networks to try things with. `get_workload` gives a module and weights, the same ones each time."""

from __future__ import annotations

from typing import Any

from ...runtime.ndarray import cpu
from ..build_module import create_executor
from ..expr import Expr, Function
from ..module import IRModule
from ..prelude import Prelude
from ..transform import infer_module
from . import (  # noqa: F401
    dcgan,
    densenet,
    dqn,
    inception_v3,
    init,
    layers,
    lstm,
    mlp,
    mobilenet,
    nat,
    resnet,
    squeezenet,
    synthetic,
    temp_op_attr,
    vgg,
)
from .gradients import check_grad, count_ops, rand  # noqa: F401
from .init import create_workload  # noqa: F401
from .nat import count, make_nat_expr, make_nat_value  # noqa: F401


def enabled_targets() -> list[tuple[str, Any]]:
    """The targets that programs can be compiled for and run on."""
    return [("llvm", cpu(0))]


def run_opt_pass(expr: Expr, opt_pass: Any, import_prelude: bool = False) -> Expr:
    """What a pass makes of an expression."""
    module = IRModule.from_expr(expr)
    if import_prelude:
        Prelude(module)
    main = opt_pass(infer_module(module))["main"]
    return main if isinstance(expr, Function) else main.body


def run_infer_type(expr: Expr) -> Expr:
    """The expression, typed."""
    main = infer_module(IRModule.from_expr(expr))["main"]
    return main if isinstance(expr, Function) else main.body


infer_type = run_infer_type


def run_as_python(expr: Expr, mod: Any = None, target: Any = None) -> Any:
    """The value of an expression. TVM turns it into Python for this; here the machine evaluates it."""
    return create_executor("debug", mod=mod, target=target or "llvm").evaluate(expr)
