"""What the machine's tests share: machines made from assembly, without native kernels, and a check that nothing leaks."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from treadle.compiler.ir.evaluate import evaluate_definition
from treadle.formats.executable import Executable
from treadle.formats.primitive import PrimitiveDefinition
from treadle.formats.text.assembly import parse_assembly
from treadle.vm import context, library
from treadle.vm.machine import VirtualMachine


class ReferenceCompiler:
    """Has no native code for anything."""

    @staticmethod
    def target_key() -> str:
        return "reference"

    @staticmethod
    def build(definitions: Sequence[PrimitiveDefinition], **options: Any) -> list[None]:
        return [None] * len(definitions)

    @staticmethod
    def evaluator(definition: PrimitiveDefinition) -> library.Evaluate:
        return lambda arrays, sizes: evaluate_definition(definition, arrays, sizes)


MachineMaker = Callable[..., VirtualMachine]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> MachineMaker:
    """`machine(text, **options)`: a machine for a program in assembly, its primitives done by the reference evaluator."""
    monkeypatch.setattr(library, "compiler", lambda: ReferenceCompiler)

    def make(text: str, **options: Any) -> VirtualMachine:
        return VirtualMachine(Executable(parse_assembly(text)), **options)

    return make


@pytest.fixture
def no_leak() -> Iterator[None]:
    """Fails a test after which the machines' heaps hold more than before."""
    gc.collect()
    gc.freeze()  # the second search is through what the test has made
    before = context.live_bytes()
    yield
    gc.collect()
    assert context.live_bytes() == before
