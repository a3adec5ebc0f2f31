"""`from tvm.script import ir as I`: what a module's text says beside its functions."""

from __future__ import annotations

from typing import Any

from ..relax.module import DummyGlobalInfo, VDevice
from .reader import ir_module

__all__ = ["dummy_global_info", "ir_module", "module_attrs", "module_global_infos", "vdevice"]

vdevice, dummy_global_info = VDevice, DummyGlobalInfo


def module_attrs(attrs: Any) -> None:
    """Attributes of the module, which the reader takes from the text."""


def module_global_infos(infos: Any) -> None:
    """Devices and other information of the module, which the reader takes from the text."""
