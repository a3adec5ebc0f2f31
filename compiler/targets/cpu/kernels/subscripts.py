"""Translates a user's kernel, a Python function over tensors, into the statements of a kernel's text.

The function takes what `toolchain/translate.py` does, and tensors besides: `x[i, j]` to read and to write, `x.shape[0]`,
`len(x)`; and a loop over `prange(n)`, whose iterations threads share.
Every index is checked: an index out of range ends the kernel with its code, and touches no memory. So an expression
with subscripts becomes several statements; the checks of a conditional expression are conditional, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .....formats.dtypes import DType
from .....formats.messages.errors import KernelError
from ....operators.own import literal

OUT_OF_RANGE = 1  # the code of a kernel that was asked for an element out of range (`vm/failures.py`)

# What a user's kernel may call, by the names that Python and NumPy have for it; types convert.
_FUNCTIONS = {
    name: name
    for name in (
        "exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "erf", "floor", "ceil", "trunc",
        "isnan", "isinf", "isfinite", "copysign", "fma", "minimum", "maximum",
    )
} | {"min": "minimum", "max": "maximum", "abs": "absolute", "fabs": "absolute", "rint": "round_even"}  # fmt: skip
_CONVERSIONS = {
    name: f"convert_{name}" for name, dtype in DType.__members__.items() if name != "bool" and dtype.computed is dtype
}
_CONVERSIONS |= {"int": "convert_int64", "float": "convert_float64"}
_MODULES = ("math", "np", "numpy")
# what a kernel's text has names for
_TAKEN = re.compile(r"args|scratch|parts?|words|first|last|units|(d|v|related)\d+")
_CONSTANTS = ("pi", "e", "inf", "nan", "tau")
_MARK, _REMARK = re.compile(r"""\s*('|\"{3})line (\d+)\1"""), re.compile(r"  # line (\d+)$")


@dataclass(frozen=True)
class Tensor:
    """A parameter of the function: the variables of its address and sizes, all words."""

    address: str
    sizes: tuple[str, ...]
    dtype: DType
    is_output: bool


class Subscripts:
    """Rewrites the body of one function, for tensors of known element types and ranks."""

    def __init__(
        self, operator: str, function: ast.FunctionDef, tensors: Mapping[str, Tensor], constants: Mapping[str, Any]
    ) -> None:
        """`constants` are the values of the other parameters: numbers, and tuples of them."""
        self._operator, self._function = operator, function
        self._tensors, self._constants = tensors, constants
        self._reserved = {name for tensor in tensors.values() for name in (tensor.address, *tensor.sizes)}
        self._count = 0
        self._made: set[str] = set()  # variables of this class; a user's variables never have such names
        self._is_in_loop = False  # in the one over prange
        self._within: dict[str, list[str]] = {}  # variables of loops that are indices of an axis of that size

    @property
    def body(self) -> list[ast.stmt]:
        """The function's statements, without its docstring."""
        return self._function.body[ast.get_docstring(self._function) is not None :]

    def shared(self) -> tuple[Sequence[ast.stmt], ast.For | None]:
        """The statements before the shared loop over `prange`, and that loop, which is the last statement."""
        *before, last = self.body
        if not self._is_shared(last):
            return self.body, None
        assert isinstance(last, ast.For)
        for each in before:
            for node in ast.walk(each):
                if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                    raise self._error(node, "elements are written in the loop over prange alone, where there is one")
        return before, last

    @staticmethod
    def _is_shared(node: ast.stmt) -> bool:
        return (
            isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and _dotted(node.iter.func).endswith("prange")
        )

    def statements(self, nodes: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The translated statements."""
        made: list[ast.stmt] = []
        for node in nodes:
            kind = type(node).__name__
            rewrite = getattr(self, f"_rewrite_{kind}", None)
            if rewrite is None:
                raise self._error(node, f"kernels know no {kind}")
            count = len(made)
            rewrite(node, made)
            if len(made) > count:
                made.insert(count, _mark(node))
        return made

    def loop(self, node: ast.For, begin: str, end: str) -> ast.For:
        """The loop over `prange`, from one variable to another."""
        self._is_in_loop = True
        assert isinstance(node.iter, ast.Call)
        bounds = [ast.Constant(0), self.expression(node.iter.args[0], [])]
        target, body = self._rounds(node, bounds)
        return ast.For(target, ast.Call(ast.Name("range"), [ast.Name(begin), ast.Name(end)], []), body, [])

    def _rounds(self, node: ast.For, bounds: Sequence[ast.expr]) -> tuple[ast.Name, list[ast.stmt]]:
        """The variable and the body of a loop. A variable that counts from 0 or more up to an axis's size is an index of the axis
        that needs no check, unless the body assigns to it."""
        target, size = self._target(node.target), ast.unparse(bounds[-1])
        is_counted = len(bounds) == 1 or (len(bounds) == 2 and self._is_natural(bounds[0]))
        if not is_counted or any(
            _stored(each) == _stored(node.target) for part in node.body for each in ast.walk(part)
        ):
            return target, self._suite(node.body)
        within = self._within.setdefault(size, [])
        within.append(target.id)
        body = self._suite(node.body)
        within.pop()
        return target, body

    def _is_natural(self, begin: ast.expr) -> bool:
        """Whether a word is not negative for certain: a number, such a loop's variable, or the sum of two. Numbers of at
        most 31 bits count, since sums of larger ones might overflow."""
        if isinstance(begin, ast.BinOp):
            return isinstance(begin.op, ast.Add) and self._is_natural(begin.left) and self._is_natural(begin.right)
        if isinstance(begin, ast.Constant):
            return isinstance(begin.value, int) and begin.value < 1 << 31
        return isinstance(begin, ast.Name) and any(begin.id in names for names in self._within.values())

    def units(self, node: ast.For, made: list[ast.stmt]) -> ast.expr:
        """The number of iterations of the loop over `prange`."""
        assert isinstance(node.iter, ast.Call)
        if len(node.iter.args) != 1 or node.iter.keywords or node.orelse:
            raise self._error(node, "expected a loop over prange(n), without else")
        return self.expression(node.iter.args[0], made)

    # ---- statements ----

    def _suite(self, nodes: Sequence[ast.stmt]) -> list[ast.stmt]:
        return self.statements(nodes) or [ast.Pass()]

    def _rewrite_Pass(self, node: ast.Pass, made: list[ast.stmt]) -> None:
        pass

    def _rewrite_Break(self, node: ast.Break, made: list[ast.stmt]) -> None:
        made.append(node)

    _rewrite_Continue = _rewrite_Break

    def _rewrite_Return(self, node: ast.Return, made: list[ast.stmt]) -> None:
        if node.value is not None:
            raise self._error(node, "a kernel writes its results into the outputs, and returns nothing")
        if self._is_in_loop:
            raise self._error(node, "a loop over prange cannot be left: other threads do the rest of it; use continue")
        made.append(ast.Return(ast.Constant(0)))

    def _rewrite_Assign(self, node: ast.Assign, made: list[ast.stmt]) -> None:
        value = self.expression(node.value, made)
        for target in node.targets:
            self._assign(target, value, made)
            value = self._again(target, value)

    def _again(self, target: ast.expr, value: ast.expr) -> ast.expr:
        """An assigned value, for a further target."""
        return ast.Name(self._variable(target.id)) if isinstance(target, ast.Name) else value

    def _rewrite_AnnAssign(self, node: ast.AnnAssign, made: list[ast.stmt]) -> None:
        if node.value is not None:
            self._assign(node.target, self.expression(node.value, made), made)

    def _rewrite_AugAssign(self, node: ast.AugAssign, made: list[ast.stmt]) -> None:
        value = self.expression(node.value, made)
        if isinstance(node.target, ast.Subscript):
            tensor, place = self._place(node.target, made)
            self._store(node.target, tensor, place, self._binary(_load(tensor, place), node.op, value), made)
        else:
            name = self._target(node.target)
            made.append(ast.Assign([name], self._binary(ast.Name(name.id), node.op, value)))

    def _assign(self, target: ast.expr, value: ast.expr, made: list[ast.stmt]) -> None:
        if isinstance(target, ast.Subscript):
            tensor, place = self._place(target, made)
            self._store(target, tensor, place, value, made)
        else:
            made.append(ast.Assign([self._target(target)], value))

    def _store(self, node: ast.AST, tensor: Tensor, place: ast.expr, value: ast.expr, made: list[ast.stmt]) -> None:
        if not tensor.is_output:
            raise self._error(node, "an input is not written to")
        if tensor.dtype is not DType.bool:
            value = ast.Call(ast.Name(f"convert_{tensor.dtype.name}"), [value], [])
        store = ast.Call(ast.Name(f"store_{tensor.dtype.name}"), [ast.Name(tensor.address), place, value], [])
        made.append(ast.Expr(store))

    def _target(self, node: ast.expr) -> ast.Name:
        if not isinstance(node, ast.Name):
            raise self._error(node, "names and elements of outputs alone are assigned to")
        if node.id in self._tensors or node.id in self._constants:
            raise self._error(node, f"{node.id} is a parameter, and keeps its value")
        return ast.Name(self._variable(node.id))

    def _rewrite_Expr(self, node: ast.Expr, made: list[ast.stmt]) -> None:
        if not isinstance(node.value, ast.Constant):
            raise self._error(node, "an expression whose value nobody uses")

    def _rewrite_If(self, node: ast.If, made: list[ast.stmt]) -> None:
        test = self.expression(node.test, made)
        made.append(ast.If(test, self._suite(node.body), self._suite(node.orelse) if node.orelse else []))

    def _rewrite_While(self, node: ast.While, made: list[ast.stmt]) -> None:
        if node.orelse:
            raise self._error(node, "a loop has no else")
        before: list[ast.stmt] = []
        test = self.expression(node.test, before)
        body = self._suite(node.body)
        if before:
            body = [*before, ast.If(ast.UnaryOp(ast.Not(), test), [ast.Break()], []), *body]
            test = ast.Constant(True)
        made.append(ast.While(test, body, []))

    def _rewrite_For(self, node: ast.For, made: list[ast.stmt]) -> None:
        if self._is_shared(node):
            raise self._error(
                node, "a loop over prange is the last statement of the function, and the only one of its kind"
            )
        if node.orelse or not isinstance(node.iter, ast.Call) or _dotted(node.iter.func) != "range":
            raise self._error(node, "a for loop is over a range, without else")
        bounds = [self.expression(each, made) for each in node.iter.args]
        target, body = self._rounds(node, bounds)
        made.append(ast.For(target, ast.Call(ast.Name("range"), bounds, []), body, []))

    # ---- expressions ----

    def expression(self, node: ast.expr, made: list[ast.stmt]) -> ast.expr:
        """The translated expression; statements that must run before it are appended to `made`."""
        kind = type(node).__name__
        rewrite = getattr(self, f"_value_of_{kind}", None)
        if rewrite is None:
            raise self._error(node, f"kernels know no {kind}")
        return rewrite(node, made)

    def _value_of_Constant(self, node: ast.Constant, made: list[ast.stmt]) -> ast.expr:
        if not isinstance(node.value, (bool, int, float)):
            raise self._error(node, f"{node.value!r} is not a number")
        return node

    def _value_of_Name(self, node: ast.Name, made: list[ast.stmt]) -> ast.expr:
        if node.id in self._tensors:
            raise self._error(node, f"{node.id} is a tensor, whose elements are {node.id}[…]")
        if node.id in self._constants:
            return self._number(node, self._constants[node.id])
        return node if node.id in self._made else ast.Name(self._variable(node.id))

    def _number(self, node: ast.expr, value: Any) -> ast.expr:
        if not isinstance(value, (bool, int, float)):
            raise self._error(node, f"{ast.unparse(node)} = {value!r} is not a number")
        return literal(value)

    def _value_of_Attribute(self, node: ast.Attribute, made: list[ast.stmt]) -> ast.expr:
        name = _dotted(node)
        module, _, attribute = name.rpartition(".")
        if module in _MODULES and attribute in _CONSTANTS:
            return ast.Attribute(ast.Name("math"), attribute)
        tensor = self._tensors.get(module)
        if tensor is not None and attribute == "ndim":
            return ast.Constant(len(tensor.sizes))
        if tensor is not None and attribute == "size":
            return _product(tensor.sizes)
        raise self._error(node, f"{name} is not known")

    def _value_of_Subscript(self, node: ast.Subscript, made: list[ast.stmt]) -> ast.expr:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            tensor = self._tensor(node.value.value)
            return ast.Name(tensor.sizes[self._axis(node, len(tensor.sizes))])
        if isinstance(node.value, ast.Name) and isinstance(self._constants.get(node.value.id), tuple):
            numbers = self._constants[node.value.id]
            return self._number(node, numbers[self._axis(node, len(numbers))])
        tensor, place = self._place(node, made)
        return _load(tensor, place)

    def _axis(self, node: ast.Subscript, count: int) -> int:
        """An index that stands in the text."""
        try:
            index = ast.literal_eval(node.slice)
        except ValueError:
            index = None
        if not isinstance(index, int) or not -count <= index < count:
            raise self._error(node, f"expected an index from {-count} to {count - 1} that is a number")
        return index % count

    def _value_of_Call(self, node: ast.Call, made: list[ast.stmt]) -> ast.expr:
        name = _dotted(node.func)
        module, _, last = name.rpartition(".")
        if name == "len" and len(node.args) == 1:
            return ast.Name(self._tensor(node.args[0]).sizes[0])
        known = _FUNCTIONS.get(last) or _CONVERSIONS.get(last)
        if known is None or module not in ("", *_MODULES) or node.keywords:
            possible = ", ".join(sorted({*_FUNCTIONS, *_CONVERSIONS}))
            raise self._error(node, f"kernels know no {name or 'such call'}; they know {possible}")
        return ast.Call(ast.Name(known), [self.expression(each, made) for each in node.args], [])

    def _value_of_BinOp(self, node: ast.BinOp, made: list[ast.stmt]) -> ast.expr:
        return self._binary(self.expression(node.left, made), node.op, self.expression(node.right, made))

    @staticmethod
    def _binary(left: ast.expr, op: ast.operator, right: ast.expr) -> ast.expr:
        if isinstance(op, ast.Pow):
            return ast.Call(ast.Name("power"), [left, right], [])
        return ast.BinOp(left, op, right)

    def _value_of_UnaryOp(self, node: ast.UnaryOp, made: list[ast.stmt]) -> ast.expr:
        return ast.UnaryOp(node.op, self.expression(node.operand, made))

    def _value_of_Compare(self, node: ast.Compare, made: list[ast.stmt]) -> ast.expr:
        if len(node.ops) == 1:
            return ast.Compare(self.expression(node.left, made), node.ops, [self.expression(node.comparators[0], made)])
        *firsts, last = [node.left, *node.comparators]
        between = [ast.Name(self._fresh()) for _ in firsts[1:]]
        self._made |= {name.id for name in between}
        for name, value in zip(between, firsts[1:], strict=True):
            made.append(ast.Assign([name], self.expression(value, made)))
        shared = [firsts[0], *between, last]
        pairs = zip(shared, node.ops, shared[1:], strict=False)
        return self._value_of_BoolOp(ast.BoolOp(ast.And(), [ast.Compare(a, [op], [b]) for a, op, b in pairs]), made)

    def _value_of_BoolOp(self, node: ast.BoolOp, made: list[ast.stmt]) -> ast.expr:
        """Later operands are evaluated, and their subscripts checked, only where the earlier ones leave it open."""
        values, befores = [], []
        for each in node.values:
            before: list[ast.stmt] = []
            values.append(self.expression(each, before))
            befores.append(before)
        made.extend(befores[0])
        if not any(befores[1:]):
            return ast.BoolOp(node.op, values)
        name = self._fresh()
        made.append(ast.Assign([ast.Name(name)], values[0]))
        for value, before in zip(values[1:], befores[1:], strict=True):
            is_open: ast.expr = ast.Name(name)
            if isinstance(node.op, ast.Or):
                is_open = ast.UnaryOp(ast.Not(), is_open)
            made.append(ast.If(is_open, [*before, ast.Assign([ast.Name(name)], value)], []))
        return ast.Name(name)

    def _value_of_IfExp(self, node: ast.IfExp, made: list[ast.stmt]) -> ast.expr:
        test = self.expression(node.test, made)
        befores: tuple[list[ast.stmt], list[ast.stmt]] = [], []
        values = [self.expression(each, before) for each, before in zip((node.body, node.orelse), befores, strict=True)]
        if not any(befores):
            return ast.IfExp(test, *values)
        name = self._fresh()
        then, otherwise = (
            [*before, ast.Assign([ast.Name(name)], value)] for before, value in zip(befores, values, strict=True)
        )
        made.append(ast.If(test, then, otherwise))
        return ast.Name(name)

    # ---- tensors ----

    def _tensor(self, node: ast.expr) -> Tensor:
        tensor = self._tensors.get(node.id) if isinstance(node, ast.Name) else None
        if tensor is None:
            raise self._error(node, f"{ast.unparse(node)} is not a tensor parameter")
        return tensor

    def _place(self, node: ast.Subscript, made: list[ast.stmt]) -> tuple[Tensor, ast.expr]:
        """The byte offset of an element in its tensor; the checks of its indices are appended."""
        tensor = self._tensor(node.value)
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if any(isinstance(part, ast.Slice) for part in parts) or len(parts) != len(tensor.sizes):
            raise self._error(
                node, f"expected {len(tensor.sizes)} indices, each an integer: kernels work element by element"
            )
        place: ast.expr | None = None
        for part, size in zip(parts, tensor.sizes, strict=True):
            index = self._index(part, size, made)
            place = index if place is None else _add(_times(place, size), index)
        item = tensor.dtype.itemsize
        offset = place or ast.Constant(0)
        return tensor, offset if item == 1 else ast.BinOp(offset, ast.Mult(), ast.Constant(item))

    def _index(self, node: ast.expr, size: str, made: list[ast.stmt]) -> ast.expr:
        """A word that is an index of an axis."""
        index = self.expression(node, made)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            index = ast.BinOp(ast.Name(size), ast.Sub(), node.operand)
        if not isinstance(index, (ast.Name, ast.Constant)):
            name = self._fresh()
            made.append(ast.Assign([ast.Name(name)], index))
            index = ast.Name(name)
        if ast.unparse(index) in self._within.get(size, ()):
            return index
        outside = ast.BoolOp(
            ast.Or(),
            [ast.Compare(index, [ast.Lt()], [ast.Constant(0)]), ast.Compare(index, [ast.GtE()], [ast.Name(size)])],
        )
        made.append(ast.If(outside, [ast.Return(ast.Constant(OUT_OF_RANGE))], []))
        return index

    # ---- names ----

    def _variable(self, name: str) -> str:
        """A user's variable, renamed apart from names of kernels."""
        return f"{name}_" if name.endswith("_") or name in self._reserved or _TAKEN.fullmatch(name) else name

    def _fresh(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _error(self, node: ast.AST, message: str) -> KernelError:
        line = getattr(node, "lineno", 0)
        return KernelError(f"operator {self._operator!r}: line {line} of its kernel: {message}")


def _stored(node: ast.AST) -> str | None:
    """The name that an expression gives a value, if it is one."""
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else None


def _mark(node: ast.stmt) -> ast.stmt:
    return ast.Expr(ast.Constant(f"line {node.lineno}"))


def _unparsed(statements: Sequence[ast.stmt]) -> list[str]:
    return ast.unparse(ast.fix_missing_locations(ast.Module([*statements], []))).splitlines()


def lines_of(statements: Sequence[ast.stmt]) -> list[str]:
    """The lines of statements."""
    return [line for line in _unparsed(statements) if not _MARK.fullmatch(line)]


def text_of(statements: Sequence[ast.stmt]) -> list[str]:
    """The lines of statements, each with a comment that names the user's line."""
    lines, mark = [], ""
    for line in _unparsed(statements):
        found = _MARK.fullmatch(line)
        if found is None:
            lines.append(f"{line}{mark}")
        else:
            mark = f"  # line {found[2]}"
    return lines


def users_line(line: str) -> int | None:
    """The user's line that a line of `text_of` was made from."""
    found = _REMARK.search(line)
    return int(found[1]) if found else None


def variable(name: str) -> str:
    """A parameter's name, apart from names of kernels' texts."""
    return f"{name}_" if _TAKEN.fullmatch(name) else name


def _load(tensor: Tensor, place: ast.expr) -> ast.expr:
    load = ast.Call(ast.Name(f"load_{tensor.dtype.name}"), [ast.Name(tensor.address), place], [])
    computed = tensor.dtype.computed
    return load if computed is tensor.dtype else ast.Call(ast.Name(f"convert_{computed.name}"), [load], [])


def _dotted(node: ast.expr) -> str:
    """The dotted text of a name, `math.exp`; empty for other expressions."""
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return base and f"{base}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _times(place: ast.expr, size: str) -> ast.expr:
    return ast.BinOp(place, ast.Mult(), ast.Name(size))


def _add(place: ast.expr, index: ast.expr) -> ast.expr:
    return ast.BinOp(place, ast.Add(), index)


def _product(sizes: Sequence[str]) -> ast.expr:
    result: ast.expr = ast.Constant(1)
    for number, size in enumerate(sizes):
        result = _times(result, size) if number else ast.Name(size)
    return result
