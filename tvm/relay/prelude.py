"""`tvm.relay.prelude`: the library of generic functions (`libraries.py`) in a module, and tensor arrays (`tensor_arrays.py`)."""

from __future__ import annotations

from typing import Any

from . import libraries
from .adt import Constructor
from .expr import GlobalVar
from .module import IRModule
from .tensor_arrays import StaticTensorArrayOps, TensorArrayOps, static_name
from .ty import GlobalTypeVar

__all__ = ["Prelude", "StaticTensorArrayOps", "TensorArrayOps"]

_DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16")  # of tensor arrays


class Prelude:
    """Puts the library into a module; each function is an attribute, a global variable."""

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        self.load_prelude()

    def load_prelude(self) -> None:
        self.mod.import_from_std("prelude.rly")
        for name in libraries.library("prelude.rly").functions:
            setattr(self, name, self.mod.get_global_var(name))
        # the data types and their constructors have names too, as before 0.8
        self.l, self.cons, self.nil = self.mod.get_type("List")
        self.optional, self.some, self.none = self.mod.get_type("Option")
        self.tree, self.rose = self.mod.get_type("Tree")
        for dtype in _DTYPES:
            TensorArrayOps(self, dtype).define_tensor_adt()

    # ---- tensor arrays, by element type, or element type and shape ----

    def get_name(self, canonical: str, dtype: str) -> str:
        return TensorArrayOps(self, dtype).get_name(canonical)

    def get_global_var(self, canonical: str, dtype: str) -> GlobalVar:
        return TensorArrayOps(self, dtype).get_global_var(canonical)

    def get_type(self, canonical: str, dtype: str) -> GlobalTypeVar:
        return TensorArrayOps(self, dtype).get_type(canonical)

    def get_ctor(self, ty_name: str, canonical: str, dtype: str) -> Constructor:
        return TensorArrayOps(self, dtype).get_ctor(canonical)

    def get_tensor_ctor(self, canonical: str, dtype: str) -> Constructor:
        return TensorArrayOps(self, dtype).get_ctor(canonical)

    def get_name_static(self, canonical: str, dtype: str, shape: Any, batch_dim: int | None = None) -> str:
        return static_name(canonical, dtype, shape, batch_dim)

    def get_global_var_static(self, canonical: str, dtype: str, shape: Any, batch_dim: int | None = None) -> GlobalVar:
        return StaticTensorArrayOps(self, dtype, shape, batch_dim).get_global_var(canonical)

    def get_type_static(self, canonical: str, dtype: str, shape: Any) -> GlobalTypeVar:
        return StaticTensorArrayOps(self, dtype, shape).get_type(canonical)

    def get_ctor_static(self, ty_name: str, name: str, dtype: str, shape: Any) -> Constructor:
        return StaticTensorArrayOps(self, dtype, shape).get_ctor(name)

    def get_tensor_ctor_static(self, name: str, dtype: str, shape: Any) -> Constructor:
        return StaticTensorArrayOps(self, dtype, shape).get_ctor(name)
