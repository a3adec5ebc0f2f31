"""`tvm.relay.prelude`: the library of generic functions (`libraries.py`) in a module."""

from __future__ import annotations

from . import libraries
from .module import IRModule


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
