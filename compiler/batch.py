"""Options and report of a compilation with a symbolic batch: `treadle.compile(model, batch="n")`.

The work is done while a model is imported: `onnx/batch.py` follows the batch through the graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..formats import dims
from ..formats.messages.calling import Suggesting, public_class
from ..formats.messages.errors import CompileError, ParseError


@dataclass(frozen=True)
class BatchChange:
    """A change at a node of the model that had the exported batch size as a constant."""

    node: str
    what: str

    def __str__(self) -> str:
        return f"{self.node}: {self.what}"


@public_class
@dataclass
class Batch(Suggesting):
    """The name of the batch's size, and, after a compilation, what was changed for it.

    `size` is the batch that the model was exported with; None: what its inputs declare, or 1 where they declare a symbol.
    """

    symbol: str
    size: int | None = None
    changes: list[BatchChange] = field(default_factory=list)

    @classmethod
    def of(cls, value: object) -> Batch:
        """Raises CompileError for what is neither the name of a size nor a Batch."""
        batch = value if isinstance(value, cls) else cls(value) if isinstance(value, str) else None
        if batch is None or not _is_name(batch.symbol):
            number = str(getattr(batch, "symbol", value)).isdigit()
            fixed = f"; a size that does not change is one of a shape: shapes={{name: ({value}, …)}}" if number else ""
            raise CompileError(
                f'batch={value!r}: expected a name for the size of the batch, such as "n", or a treadle.Batch{fixed}'
            )
        if batch.size is not None and (type(batch.size) is not int or batch.size < 1):
            raise CompileError(f"batch: size {batch.size!r} is not a batch size; expected an integer, 1 or more")
        return batch

    def __str__(self) -> str:
        count = (
            f"{len(self.changes)} node{'' if len(self.changes) == 1 else 's'} changed"
            if self.changes
            else "no node had to be changed"
        )
        return "\n".join([f"batch {self.symbol}: {count}", *(f"  {change}" for change in self.changes)])


def _is_name(text: object) -> bool:
    try:
        return isinstance(text, str) and dims.is_variable(dims.parse(text))
    except ParseError:
        return False
