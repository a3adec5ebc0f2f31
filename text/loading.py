"""The door: `treadle.text.load` and `treadle.text.resume`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..decode.adapters import Adapter
from ..formats.container import Source
from ..formats.executable import Executable
from ..formats.executable import load as load_executable
from ..formats.messages.calling import public, told
from ..formats.messages.errors import ArgumentError
from ..formats.text_model import CLASSIFY, EMBED, GENERATE, SCORE
from ..vm.machine import VirtualMachine
from .generator import Chat, Generator
from .models import Classifier, Encoder, Reranker, Texts

_ROWS: dict[str, type[Encoder | Reranker | Classifier]] = {EMBED: Encoder, SCORE: Reranker, CLASSIFY: Classifier}


@public
def load(source: Any, *, threads: int | None = None, **options: Any) -> Texts:
    """What computes with the texts of an executable, the path of one, or a model's folder, which is compiled (`options` are those
    of `treadle.compile`): an Encoder, Reranker, Classifier or Generator. `threads` may share a kernel; None: all.

    Raises FileError, FormatError, ArgumentError, CompileError, MissingPackageError.
    """
    if isinstance(source, (str, os.PathLike)) and Path(source).is_dir():
        from ..compiler.driver import compile

        source = compile(source, **options)
    elif options:
        raise ArgumentError(
            f"load: {next(iter(options))}: options of treadle.compile are for folders, which are compiled"
        )
    executable = source if isinstance(source, Executable) else load_executable(source)
    return of(executable, VirtualMachine(executable, threads=threads))


@public
def resume(source: Source, model: Any, *, adapter: Adapter | None = None) -> Chat:
    """The chat in a file that `Chat.save` wrote, or in its bytes, to go on with identical tokens; `model` is a Generator, or what
    `load` makes one of, `adapter` the one that the chat was saved with. Raises FormatError (ChecksumError where a byte is another
    one), FileError, and ArgumentError where it is of another model or adapter."""
    generator = model if isinstance(model, Texts) else load(model)
    if not isinstance(generator, Generator):
        raise ArgumentError(f"resume: model: expected a Generator, which makes texts, got {told(generator)}")
    return generator.resume(source, adapter=adapter)


def of(
    executable: Executable, machine: VirtualMachine, max_steps: int | None = None, cache_tokens: int | None = None
) -> Texts:
    """The same, by an existing machine; `max_steps` bounds each call, `cache_tokens` what a generator's engine holds. Raises
    ArgumentError, FormatError, MissingPackageError."""
    text = executable.text_model
    if text is None:
        raise ArgumentError("the executable has no tokenizer; treadle.compile puts that of a model's folder into it")
    if text.task == GENERATE:
        return Generator(text, executable, machine, max_steps, cache_tokens)
    return _ROWS[text.task](text, executable, machine, max_steps)
