"""Compares the kernels that a program calls with those of another library, call by call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...modules.module import Module
from ...runtime.ndarray import NDArray, array, empty
from ...testing.utils import assert_allclose


class LibCompareVMInstrument:
    """An instrument for `set_instrument`: after each call the library's function of that name is called on the same inputs."""

    def __init__(self, mod: Module, device: Any, verbose: bool = True, rtol: float = 1e-5, atol: float = 1e-5) -> None:
        self.mod, self.device, self.verbose, self.rtol, self.atol = mod, device, verbose, rtol, atol
        self.counter = 0

    def compare(
        self, name: str, ref_args: Sequence[NDArray], new_args: Sequence[NDArray], ret_indices: Iterable[int]
    ) -> None:
        """Calls the library's function; its results must be near those of the program. Raises AssertionError."""
        function = self.mod.get_function(name, query_imports=True)
        function(*new_args)
        for place in ret_indices:
            assert_allclose(new_args[place].numpy(), ref_args[place].numpy(), atol=self.atol, rtol=self.rtol)
        if self.verbose:
            print(f"[{self.counter}] {name} is the same")
        self.counter += 1

    def skip_instrument(self, func: Any, name: str, before_run: bool, ret_val: Any, *args: Any) -> bool:
        """Whether a call is left out; classes made of this one say so."""
        return False

    def __call__(self, func: Any, name: str, before_run: bool, ret_val: Any, *args: Any) -> None:
        if before_run or name.startswith("vm.builtin.") or not all(isinstance(each, NDArray) for each in args):
            return
        try:
            self.mod.get_function(name, query_imports=True)
        except AttributeError:
            if self.verbose:
                print(f"{name}: the library has no such function")
            return
        if args and not self.skip_instrument(func, name, before_run, ret_val, *args):
            copies = [*(array(each.numpy(), self.device) for each in args[:-1]), empty(args[-1].shape, args[-1].dtype)]
            self.compare(name, args, copies, (len(args) - 1,))
