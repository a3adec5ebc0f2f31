"""Short innermost axes of elementwise work, such as the colours of pixels: one is walked together with the axis
before it, so that vectors are whole.

A tensor with only one of the two axes is not a vector then. What has the short axis alone is *periodic*: it is written twice or
more, consecutively, into scratch, and read from the current phase of the period. What has the other one alone is
*repeated*: each element serves as many neighbours as the axis has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .....formats import dims
from .....formats.dtypes import DType
from .. import costs
from ..target import Target
from .loops import Axis
from .writer import Writer, scaled, widened

_MOST = 1 << 26  # elements of both axes, of which 32 bits tell by a product where the period stands
_REPEATED_BITS = 16  # likewise, of the places in a vector and a period


@dataclass(frozen=True)
class ShortAxis:
    """An axis of `size` elements after one of `before`. Tensors are numbered as in a chain."""

    size: int
    before: int
    periodic: tuple[int, ...]
    repeated: tuple[int, ...]

    @staticmethod
    def of(axes: Sequence[Axis], dtypes: Sequence[DType], target: Target) -> tuple[tuple[Axis, ...], ShortAxis] | None:
        """The axes with the last two merged, and the short axis; None if that does not pay or is impossible."""
        if len(axes) < 2:
            return None
        *outer, before, last = axes
        if not isinstance(last.size, int) or not isinstance(before.size, int) or not 1 < last.size < costs.SHORT_AXIS:
            return None
        pairs = list(zip(before.present, last.present, strict=True))
        periodic, repeated = (
            tuple(k for k, pair in enumerate(pairs) if pair == kind) for kind in ((False, True), (True, False))
        )
        if before.size * last.size >= _MOST or (repeated and not target.looks_up):
            return None
        if any(dtypes[k].itemsize != 4 for k in repeated):
            return None
        both = Axis(dims.multiply(before.size, last.size), tuple(pair == (True, True) for pair in pairs))
        return (*outer, both), ShortAxis(last.size, before.size, periodic, repeated)

    @property
    def tensors(self) -> tuple[int, ...]:
        return (*self.periodic, *self.repeated)

    def table_bytes(self, lanes: int) -> int:
        """Bytes of the tables in the scratch memory."""
        return len(self.periodic) * self._table_bytes(lanes)

    def _table_bytes(self, lanes: int) -> int:
        return 8 * (self.size + 3 * lanes) + 63 & -64

    def write_sizes(self, write: Writer) -> None:
        write.sizes(period=self.size, before=self.before, inverse=-(-(1 << 32) // self.size))

    def write_places(self, write: Writer, rows: dict[int, str], dtypes: Sequence[DType], tables: int) -> None:
        """Defines the current block's phase in the period, and its start in each tensor, whose row numbers are given; the tables
        begin `tables` bytes into the scratch memory."""
        write("phase = begin % period")
        for k in self.repeated:
            start = f"({rows[k]}) * before + begin // period" if rows[k] else "begin // period"
            write(f"p{k} = t{k} + {scaled(start, dtypes[k].itemsize)}")
            write("left = before - begin // period")
        for number, k in enumerate(self.periodic):
            itemsize = dtypes[k].itemsize
            type_ = f"uint{8 * itemsize}"
            write(f"p{k} = t{k}" + (f" + {scaled(f'({rows[k]}) * period', itemsize)}" if rows[k] else ""))
            write(f"q{k} = scratch + {tables + number * self._table_bytes(write.lanes)}")
            with write.block(f"for j in range(0, period, {write.lanes})"):
                write(f"w{k} = vload_{type_}(p{k}, {scaled('j', itemsize)}, period - j)")
                with write.block(f"for place in range(j, period + {write.lanes}, period)"):
                    write(f"vstore(q{k}, {scaled('place', itemsize)}, w{k}, period - j)")

    def write_load(self, write: Writer, tensor: int, name: str, dtype: DType, index: str) -> None:
        """Defines `name`: a vector of one of the tensors, at that place of the block."""
        write(f"turn = ((phase + {index}) * inverse) >> 32", f"stand = phase + {index} - turn * period")
        if tensor in self.periodic:
            loaded = f"vload_{dtype.name}(q{tensor}, {scaled('stand', dtype.itemsize)})"
        else:
            few = -(-(1 << _REPEATED_BITS) // self.size)
            near = f"w{tensor}"
            write(f"{near} = vload_{dtype.name}(p{tensor}, {scaled('turn', dtype.itemsize)}, left - turn)")
            loaded = f"looked_up({near}, {near}, ((iota_int32() + stand) * {few}) >> {_REPEATED_BITS})"
        write(f"{name} = {widened(loaded, dtype)}")
