"""Effects of a program besides its result: calls of the Python functions that it imports.

Every pass keeps a call of an import, and whatever may lead to one, exactly once and in order.
"""

from __future__ import annotations

from .. import ir


class Effects:
    """Asks for the effects of a module's expressions."""

    def __init__(self, module: ir.Module) -> None:
        self._is_pure = not module.imports
        self._functions = frozenset[str]()
        while not self._is_pure:
            found = frozenset(name for name, function in module.functions.items() if self._in(function.body))
            if found == self._functions:
                return
            self._functions = found

    def has(self, expr: ir.Expr) -> bool:
        """Whether an expression may come to an import. A closure that is called may be any."""
        if self._is_pure:
            return False
        if isinstance(expr, ir.Call):
            return not isinstance(expr.callee, ir.GlobalRef) or expr.callee.name in self._functions
        if isinstance(expr, ir.Function):
            return False  # it is made, not called
        return isinstance(expr, ir.ImportCall) or any(map(self._in, ir.blocks_of(expr)))

    def _in(self, block: ir.Block) -> bool:
        return any(self.has(binding.value) for binding in block.bindings)
