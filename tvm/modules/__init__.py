"""Modules, registered functions, and their export to libraries and object files.

What other folders add to them is said here, and imported when it is first asked for.
"""

from typing import Any

from . import registry


def _builtins() -> None:
    from ..machines.relax import builtins  # noqa: F401


def _graph_factory(executable: Any) -> Any:
    from ..graphs.factory import GraphFactory

    return GraphFactory(executable)


def _load_graph_factory(data: memoryview, trust_native: bool) -> Any:
    from ..graphs.factory import GraphFactory

    return GraphFactory.load(data)


def _load_relax(data: memoryview, trust_native: bool) -> Any:
    from ..machines.relax.module import RelaxModule

    return RelaxModule.load(data)


def _load_relay(data: memoryview, trust_native: bool) -> Any:
    from ..machines.relay.module import RelayModule

    return RelayModule.load(data)


def _relax_machine(executable: Any) -> Any:
    from ..relax.vm import loader

    return loader(executable)


for _prefix in (registry.BUILTIN, "relax.run."):
    registry.provide(_prefix, _builtins)
registry.register_loader("GraphExecutorFactory", _load_graph_factory)
registry.register_loader("relax.Executable", _load_relax)
registry.register_loader("relay.Executable", _load_relay)
registry.extensions.update(
    dict.fromkeys(("default", "debug_create", "get_graph_json", "get_graph_params", "remove_params"), _graph_factory)
)
registry.extensions["vm_load_executable"] = _relax_machine
