"""`tvm.target`: what code is made for. Here that is the CPU; other kinds are names."""

from __future__ import annotations

import json
import re
import shlex
import threading
from collections.abc import Mapping
from typing import Any

from ..formats.messages.errors import ArgumentError, FormatError
from ..vm.device import device
from ._lazy import lazy

# kind → the keys that say which operators' strategies TVM takes
_KINDS: dict[str, tuple[str, ...]] = {
    "llvm": ("cpu",),
    "c": ("cpu",),
    "stackvm": ("cpu",),
    "composite": ("cpu",),
    "hybrid": ("cpu",),
    "test": ("cpu",),
    "cuda": ("cuda", "gpu"),
    "nvptx": ("cuda", "gpu"),
    "rocm": ("rocm", "gpu"),
    "opencl": ("opencl", "gpu"),
    "vulkan": ("vulkan", "gpu"),
    "metal": ("metal", "gpu"),
    "webgpu": ("webgpu", "gpu"),
    "hexagon": ("hexagon",),
    "ext_dev": ("ext_dev",),
    "aocl": ("aocl", "hls"),
    "sdaccel": ("sdaccel", "hls"),
}
_LISTS = ("keys", "libs", "mattr")
_MOVED = ("executor", "interface-api", "link-params", "runtime", "system-lib", "unpacked-api")  # no target's since 0.9


class TargetKind:
    """A kind of target; equal to its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def options(self) -> dict[str, str]:
        """The options that targets of this kind have: any, as text."""
        return {}

    def __eq__(self, other: object) -> bool:
        return self.name == (other.name if isinstance(other, TargetKind) else other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


class Target:
    """A kind and options: of text as "llvm -mcpu=core-avx2", of a mapping with "kind", or of another target."""

    kind: TargetKind
    host: Target | None
    attrs: dict[str, Any]
    _entered = threading.local()

    def __init__(
        self, target: str | Mapping[str, Any] | Target, host: str | Mapping[str, Any] | Target | None = None
    ) -> None:
        """Raises FormatError, a ValueError, for an unknown kind, ArgumentError, a TypeError."""
        if isinstance(target, Target):
            options: dict[str, Any] = {"kind": target.kind.name, **target.attrs}
            host = host if host is not None else target.host
        elif isinstance(target, Mapping):
            options = dict(target)
        elif isinstance(target, str):
            options = _parsed(target)
        else:
            raise ArgumentError(f"Target: target has to be a string or dictionary, got a {type(target).__name__}")
        kind = options.pop("kind", "")
        if not isinstance(kind, str) or kind not in _KINDS:
            raise FormatError(f"Target kind {kind!r} is not defined; there are {', '.join(_KINDS)}")
        if moved := [name for name in options if name in _MOVED]:
            raise FormatError(
                f"Target: Cannot recognize '-{moved[0]}': relay.build takes that as an option of its executor or runtime, as in "
                'executor=relay.backend.Executor("graph", {"link-params": True})'
            )
        for name in _LISTS:
            texts = options.get(name, [])
            if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
                raise FormatError(f"Target: {name} has to be a list of texts, got {texts!r}")
        own_host = options.pop("host", None)
        host = own_host if host is None else host
        self.kind = TargetKind(kind)
        self.host = None if host is None else Target(host)
        self.tag = options.pop("tag", "")
        self.attrs = options

    @property
    def keys(self) -> list[str]:
        """What the target is called where an operator has several strategies."""
        return list(dict.fromkeys([*self.attrs.get("keys", ()), *_KINDS[self.kind.name]]))

    @property
    def libs(self) -> list[str]:
        return list(self.attrs.get("libs", ()))

    @property
    def mcpu(self) -> str:
        """The CPU's name, "" where it is this one."""
        return self.attrs.get("mcpu", "")

    @property
    def mattr(self) -> list[str]:
        """Features of the CPU, as "+avx2"."""
        return list(self.attrs.get("mattr", ()))

    @property
    def model(self) -> str:
        return self.attrs.get("model", "unknown")

    def get_target_device_type(self) -> int:
        """DLPack's code of its device."""
        return device(self.kind.name).device_type

    @property
    def native(self) -> str | None:
        """The CPU as `treadle.compile` names it; None for this one."""
        if not self.mcpu:
            return None
        return f"{self.mcpu}:{','.join(self.mattr)}" if self.mattr else self.mcpu

    def export(self) -> dict[str, Any]:
        """Kind, keys and options as a mapping, of which a target can be made."""
        host = {} if self.host is None else {"host": self.host.export()}
        return {"kind": self.kind.name, "tag": self.tag, "keys": self.keys, **_without(self.attrs, "keys"), **host}

    def with_host(self, host: Any) -> Target:
        """The same target with another host."""
        return Target(self, host)

    def __str__(self) -> str:
        options = {"keys": self.keys, **_without(self.attrs, "keys")}
        return " ".join([self.kind.name, *(f"-{name}={_shown(value)}" for name, value in sorted(options.items()))])

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self.export() == other.export()

    def __hash__(self) -> int:
        return hash(str(self))

    # ---- the current one ----

    def __enter__(self) -> Target:
        self._stack().append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack().pop()

    @classmethod
    def _stack(cls) -> list[Target]:
        if not hasattr(cls._entered, "stack"):
            cls._entered.stack = []
        return cls._entered.stack

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The target of the innermost `with`. Raises FormatError, a ValueError, where there is none, unless that is allowed."""
        stack = Target._stack()
        if not stack and not allow_none:
            raise FormatError(
                "Target.current: Target context required. Please set it by constructing a target: with target: …"
            )
        return stack[-1] if stack else None

    @staticmethod
    def list_kinds() -> list[str]:
        """The names of all kinds."""
        return list(_KINDS)

    @staticmethod
    def canon_target(target: Any) -> Target | None:
        """A target of whatever stands for one; None for None."""
        return target if target is None or isinstance(target, Target) else Target(target)

    @staticmethod
    def canon_target_and_host(target: Any, target_host: Any = None) -> tuple[Target | None, Target | None]:
        """Both as targets, the host in the target too."""
        found = Target.canon_target(target)
        if found is not None and target_host is not None:
            found = Target(found, target_host)
        return found, None if found is None else found.host


def _parsed(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            return dict(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"Target({text!r}): this is not JSON: {error}") from None
    try:
        kind, *words = shlex.split(text) or [""]
    except ValueError as error:
        raise FormatError(f"Target({text!r}): {error}") from None
    options: dict[str, Any] = {"kind": kind}
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not name:
            raise FormatError(f"Target({text!r}): expected -name=value, got {word!r}")
        options[name] = value.split(",") if name in _LISTS else _value(value) if equals else True
    return options


def _value(text: str) -> Any:
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text


def _shown(value: Any) -> str:
    return (
        ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(int(value) if value is True else value)
    )


def _without(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != name}


def create(target: Any) -> Target:
    """A target, as older programs make it."""
    return Target(target)


def _of_kind(kind: str, model: str = "unknown", options: Any = None) -> Target:
    words = [options] if isinstance(options, str) else list(options or ())
    return Target(" ".join([kind, *([f"-model={model}"] if model != "unknown" else []), *words]))


def cuda(model: str = "unknown", arch: str | None = None, options: Any = None) -> Target:
    """A GPU of NVIDIA's: a name, which is not here."""
    return _of_kind("cuda", model, [*([f"-arch={arch}"] if arch else []), *_words(options)])


def rocm(model: str = "unknown", options: Any = None) -> Target:
    """A GPU of AMD's: a name, which is not here."""
    return _of_kind("rocm", model, options)


def arm_cpu(model: str = "unknown", options: Any = None) -> Target:
    """An ARM CPU."""
    return _of_kind("llvm", model, ["-keys=arm_cpu,cpu", "-device=arm_cpu", *_words(options)])


__getattr__, __dir__ = lazy(__name__, others={"target": __name__})  # tvm.target.target, where TVM defines Target


class codegen:
    """`tvm.target.codegen`: what compiles."""

    @staticmethod
    def llvm_version_major(allow_none: bool = False) -> int:
        """LLVM's version, as llvmlite has it."""
        from llvmlite import binding

        return int(binding.llvm_version_info[0])


def _words(options: Any) -> list[str]:
    return [options] if isinstance(options, str) else list(options or ())


class VirtualDevice:
    """Where TVM's passes put a value: a device, the target of its programs, and a memory scope. There is one here."""

    def __init__(self, device: Any = None, target: Any = None, memory_scope: str = "") -> None:
        self.device, self.target, self.memory_scope = device, target, memory_scope
