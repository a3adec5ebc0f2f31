"""Steps of random graphs: what is computed element by element, casts, and reductions."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from .judges import as_array
from .walk import FLOATS, MOVED, NUMBERS, SIGNED, UNSIGNED, Dead, Walk, Ways, step

INTEGERS = (*SIGNED, *UNSIGNED)

# operator: bounds of its operand
_SMOOTH: dict[str, tuple[float | None, float | None]] = {
    **dict.fromkeys(("Atan", "Asinh", "Cos", "Sin", "Sigmoid", "Softplus", "Softsign", "Tanh", "Erf"), (None, None)),
    **dict.fromkeys(("Elu", "Celu", "Selu", "HardSigmoid", "HardSwish", "Mish", "Gelu", "Swish"), (None, None)),
    **dict.fromkeys(("Exp", "Sinh", "Cosh"), (-6, 6)),
    **dict.fromkeys(("Log", "Reciprocal"), (0.125, None)),
    "Sqrt": (0.125, None),
    "Acosh": (1.125, None),
    "Atanh": (-0.875, 0.875),
    "Asin": (-0.875, 0.875),
    "Acos": (-0.875, 0.875),
    "Tan": (-1.25, 1.25),
}
_ALPHA = {"Elu", "Celu", "HardSigmoid", "Selu", "Swish", "LeakyRelu", "ThresholdedRelu"}


@step(*_SMOOTH)
def _smooth(w: Walk, op: str) -> None:
    low, high = _SMOOTH[op]
    x = w.tensor(w.allowed(op, among=FLOATS), low=low, high=high)
    attributes: Ways = {}
    if op in _ALPHA and w.chance(0.5):
        attributes["alpha"] = w.one(0.5, 1.5, 0.25)
    if op == "HardSigmoid" and w.chance(0.5):
        attributes["beta"] = 0.25
    if op == "Gelu" and w.chance(0.5):
        attributes["approximate"] = "tanh"
    w.add(op, [x], **attributes)


@step("Abs", "Neg", "Relu", "Identity", "LeakyRelu")
def _exact_unary(w: Walk, op: str) -> None:
    alpha = 0.5 if op == "LeakyRelu" and w.chance(0.5) else None
    w.add(op, [w.tensor(w.allowed(op, "V" if op == "Identity" else "T"))], exact=True, alpha=alpha)


@step("Ceil", "Floor", "Round", "Sign", "ThresholdedRelu", "Shrink")
def _jumping(w: Walk, op: str) -> None:
    more: Ways = {"ThresholdedRelu": {"alpha": 1.5}, "Shrink": {"lambd": 1.25, "bias": 0.25}}.get(op, {})
    w.add(op, [w.tensor(w.allowed(op), exact=True)], exact=True, **more)


@step("Not")
def _not(w: Walk, op: str) -> None:
    w.add(op, [w.tensor("bool")])


@step("IsNaN", "IsInf")
def _classes(w: Walk, op: str) -> None:
    kinds = w.allowed(op, "T1", among=FLOATS)
    if w.chance(0.5):
        shape = w.shape()
        array = w.rng.choice([1.0, -2.0, np.nan, np.inf, -np.inf], shape).astype(w.random.choice(kinds))
        x = w.put(np.asarray(array))
        x.usable = False
    else:
        x = w.tensor(kinds)
    ways: Ways = {name: int(w.chance(0.5)) for name in ("detect_negative", "detect_positive")} if op == "IsInf" else {}
    w.add(op, [x], **ways)


@step("Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean")
def _arithmetic(w: Walk, op: str) -> None:
    a = w.tensor(w.allowed(op))
    operands = [a, w.partner(a)]
    if op in ("Max", "Min", "Sum", "Mean"):
        operands = operands[: w.one(1, 2, 2)]
        if w.chance(0.3):
            operands.append(w.partner(a, low=None))
    w.random.shuffle(operands)
    w.add(op, operands, exact=op != "Mean")


@step("Div")
def _div(w: Walk, op: str) -> None:
    a = w.tensor(w.allowed(op))
    b = w.partner(a, nonzero=True) if a.dtype in INTEGERS else w.partner(a, low=0.5)
    w.add(op, [a, b])


@step("Mod")
def _mod(w: Walk, op: str) -> None:
    a = w.tensor(w.allowed(op), exact=True)
    b = w.partner(a, nonzero=True, exact=True)
    w.add(op, [a, b], exact=True, fmod=1 if a.dtype not in INTEGERS else w.one(None, 0, 1))


@step("Pow")
def _pow(w: Walk, op: str) -> None:
    among: tuple[str, ...] = ("float32", "float64", "float16", "int32", "int64")
    if w.outer:  # powers of powers leave the range of integers
        among = among[:3]
    base = w.tensor(w.allowed(op, among=among))
    if base.dtype in INTEGERS:
        w.add(op, [base, w.partner(base, low=0, high=3)])
    elif w.chance(0.5):
        w.add(op, [base, w.partner(base, w.one(base.dtype, "int64", "int32"), low=2, high=2)])
    else:
        base = w.tensor(base.dtype, low=0.125)
        w.add(op, [base, w.partner(base, w.one(base.dtype, "int64", "int32", "float32"), low=-3, high=3)])


@step("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def _compare(w: Walk, op: str) -> None:
    among = MOVED if op == "Equal" else NUMBERS
    a = w.tensor(w.allowed(op, among=among), exact=True)
    w.add(op, [a, w.partner(a, exact=True)])


@step("And", "Or", "Xor")
def _logic(w: Walk, op: str) -> None:
    a = w.tensor("bool")
    w.add(op, [a, w.partner(a)])


@step("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
def _bits(w: Walk, op: str) -> None:
    a = w.tensor(w.allowed(op, among=INTEGERS))
    w.add(op, [a] if op == "BitwiseNot" else [a, w.partner(a)])


@step("BitShift")
def _shift(w: Walk, op: str) -> None:
    a = w.tensor(w.allowed(op, among=UNSIGNED))
    w.add(op, [a, w.partner(a, high=7)], direction=w.one("LEFT", "RIGHT"))


@step("Where")
def _where(w: Walk, op: str) -> None:
    a = w.tensor(w.allowed(op, among=MOVED))
    b = w.partner(a)
    if np.prod(np.broadcast_shapes(a.shape, b.shape)) > 2000:
        raise Dead("large")
    condition = w.partner(a if a.rank > b.rank else b, "bool")
    np.broadcast_shapes(a.shape, b.shape)
    w.add(op, [condition, a, b], exact=True)


@step("Clip")
def _clip(w: Walk, op: str) -> None:
    x = w.tensor(w.allowed(op))
    bounds = [w.setting(b, x.dtype) if w.chance(0.7) else None for b in ((1 if x.dtype in UNSIGNED else -1), 2)]
    w.add(op, [x, *bounds], exact=True)


@step("PRelu")
def _prelu(w: Walk, op: str) -> None:
    x = w.tensor(w.allowed(op))
    slope = w.tensor(x.dtype, tuple(size if w.chance(0.6) else 1 for size in x.shape)[w.random.randrange(x.rank + 1) :])
    w.add(op, [x, slope])


def code_of(dtype: str) -> int:
    """The number that ONNX has for an element type."""
    return TensorProto.STRING if dtype == "string" else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


@step("Cast", "CastLike")
def _cast(w: Walk, op: str) -> None:
    if op == "Cast" and w.chance(0.1):
        _cast_texts(w)
        return
    x = w.tensor(w.allowed(op, "T1"))
    to = w.random.choice(w.allowed(op, "T2"))
    if x.dtype in FLOATS and to in (*INTEGERS, "bool"):
        low = 0 if to in UNSIGNED else None
        x = w.tensor(x.dtype, exact=True, low=low)
    elif to in UNSIGNED and x.dtype in SIGNED:
        x = w.tensor(x.dtype, low=0)
    elif to in INTEGERS and x.dtype in INTEGERS:
        x = w.tensor(x.dtype, low=0 if to in UNSIGNED else -100, high=100)
    if op == "Cast":
        w.add(op, [x], exact=True, to=code_of(to))
    else:
        w.add(op, [x, w.tensor(to)], exact=True)


def _cast_texts(w: Walk) -> None:
    """Numbers as texts, or texts as numbers."""
    kind = w.one("int64", "int32", "float32", "float64")
    if w.chance(0.5):
        w.add("Cast", [w.tensor(kind, exact=True)], to=TensorProto.STRING)
        return
    numbers = w.array(kind, w.shape((0, 1, 2)))
    w.add("Cast", [w.put(as_array(numbers.astype(str)))], exact=True, to=code_of(kind))


@step("BitCast")
def _bit_cast(w: Walk, op: str) -> None:
    x = w.tensor(w.allowed(op, "T1"), exact=True)
    same = [name for name in w.allowed(op, "T2") if np.dtype(name).itemsize == x.array.dtype.itemsize]
    w.add(op, [x], to=code_of(w.random.choice(same)))[0].usable = False


@step("Dropout")
def _dropout(w: Walk, op: str) -> None:
    x = w.tensor(w.allowed(op))
    ratio = w.setting(0.25, "float32") if w.chance(0.5) else None
    w.add(op, [x, ratio], exact=True, outputs=w.one(1, 2))


# ---- reductions ----

_REDUCTIONS = {
    f"Reduce{kind}" for kind in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
}


@step(*sorted(_REDUCTIONS))
def _reduce(w: Walk, op: str) -> None:
    low = 0.125 if op == "ReduceLogSum" else None
    kinds = w.allowed(op, among=(*FLOATS, *NUMBERS))
    if op in ("ReduceL2", "ReduceMean", "ReduceLogSum", "ReduceLogSumExp"):  # of integers each rounds as it likes
        kinds = tuple(kind for kind in kinds if kind in FLOATS)
    x = w.tensor(kinds, low=low)
    keepdims = w.one(None, 0, 1)
    axes = sorted(w.random.sample(range(x.rank), w.random.randrange(x.rank + 1)))
    axes = [axis - x.rank if w.chance(0.3) else axis for axis in axes]
    by_operand = "axes" not in w.schema(op).attributes
    more: Ways = {"noop_with_empty_axes": w.one(None, 0, 1)} if by_operand else {}
    exact = op in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceL1")
    if by_operand:
        w.add(op, [x, w.setting(axes) if axes or w.chance(0.3) else None], exact=exact, keepdims=keepdims, **more)
    else:
        w.add(op, [x], exact=exact, keepdims=keepdims, axes=axes or None)


@step("ArgMax", "ArgMin")
def _arg(w: Walk, op: str) -> None:
    x = w.tensor(w.allowed(op), exact=True, fits=lambda shape: len(shape) > 0 and 0 not in shape)
    ways: Ways = {"keepdims": w.one(None, 0, 1), "select_last_index": w.one(None, 0, 1)}
    w.add(op, [x], axis=w.axis(x.rank), **ways)


@step("CumSum", "CumProd")
def _cumulative(w: Walk, op: str) -> None:
    x = w.tensor(w.allowed(op), rank=(1, 2, 3))
    axis = w.setting(w.axis(x.rank), w.one("int64", "int32"))
    ways: Ways = {name: w.one(None, 0, 1) for name in ("exclusive", "reverse")}
    w.add(op, [x, axis], exact=True, **ways)


@step("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
def _along_an_axis(w: Walk, op: str) -> None:
    x = w.tensor(w.allowed(op), rank=(1, 2, 3, 4), exact=op == "Hardmax")
    p = w.one(None, 1, 2) if op == "LpNormalization" else None
    if p is not None or op == "LpNormalization":
        x = w.tensor(x.dtype, rank=(1, 2, 3), low=0.5)
    axis = w.axis(x.rank) if w.chance(0.7) else None
    w.add(op, [x], axis=axis, p=p)


@step("Gemm")
def _gemm(w: Walk, op: str) -> None:
    a = w.tensor(w.allowed(op, among=("float32", "float32", "float64", "float16", "int32")), rank=2)
    trans_a, trans_b = w.one(None, 0, 1), w.one(None, 0, 1)
    rows, inner = a.shape[::-1] if trans_a else a.shape
    columns = w.one(1, 3, 5, 16, 17)
    b = w.tensor(a.dtype, (columns, inner) if trans_b else (inner, columns))
    c = None
    if w.chance(0.6):
        c = w.tensor(a.dtype, w.one((), (columns,), (1, columns), (rows, 1), (rows, columns), (1,)))
    scales: Ways = {} if a.dtype == "int32" else {name: w.one(None, 0.5, 2.0) for name in ("alpha", "beta")}
    w.add(op, [a, b, c], transA=trans_a, transB=trans_b, **scales)


@step("MatMul")
def _matmul(w: Walk, op: str) -> None:
    a = w.tensor(w.allowed(op, among=("float32", "float32", "float64", "float16", "int32", "int64")), rank=(1, 2, 3, 4))
    columns = w.one(1, 2, 4, 16, 19)
    inner = a.shape[-1]
    batch = tuple(size if w.chance(0.6) else 1 for size in a.shape[:-2])
    shape = w.one((inner,), (inner, columns), (*batch, inner, columns), (2, *batch, inner, columns))
    if len(shape) > 4:
        shape = shape[1:]
    w.add(op, [a, w.tensor(a.dtype, shape)])


_EQUATIONS = {
    "ij,jk->ik": 2, "ij,jk": 2, "i,j->ji": 2, "bij->bji": 1, "bij->b": 1, "ij,ij,j->i": 3, "bhqd,bhkd->bhqk": 2,
    "bqhd,bkhd->bhqk": 2, "abc,cd,def->fa": 3, "ii->i": 1, "ij->": 1, "ij,kj->ikj": 2, "...ij,...jk->...ik": 2,
    "i,i->": 2, "bij,bjk->bik": 2, "i...->...": 1, "ab,bc,cd->ad": 3,
}  # fmt: skip


@step("Einsum")
def _einsum(w: Walk, op: str) -> None:
    equation = w.random.choice(list(_EQUATIONS))
    sizes = {letter: w.one(1, 2, 3, 4) for letter in "abcdefhijkq"}
    kind = w.random.choice(w.allowed(op, among=("float32", "float64", "float32", "int32")))
    dots = w.shape((0, 1, 2)) if "..." in equation else ()
    terms = equation.partition("->")[0].split(",")
    shapes = []
    for term in terms:
        before, found, after = term.partition("...")
        shapes.append((*(sizes[i] for i in before), *(dots if found else ()), *(sizes[i] for i in after)))
    w.add(op, [w.tensor(kind, shape) for shape in shapes], equation=equation)


@step("Constant")
def _constant(w: Walk, op: str) -> None:
    way = w.random.randrange(4)
    if way == 0:
        w.add(op, [], exact=True, value=helper.make_tensor("c", TensorProto.FLOAT, [2, 2], [1.0, 2.0, -0.5, 0.25]))
    elif way == 1:
        w.add(op, [], exact=True, value_floats=[1.0, -0.5, 2.0])
    elif way == 2:
        w.add(op, [], exact=True, value_ints=[1, 0, 3])
    else:
        w.add(op, [], exact=True, value_float=0.5)
