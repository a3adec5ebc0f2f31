"""What fuzzers feed: one function of bytes for each reader of things from outside; and what comes of an input, or of any trial.

A target returns, or raises an error of Treadle's; whatever else it raises is a finding (`judged`).
`tests/corpus/<target>.txt` holds a small corpus of each, one input in base64 on a line, which the tests replay.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import struct
import time
import traceback
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ....formats.codec import Buffer
from ....formats.constants import aligned
from ....formats.container import HEADER, INDEX, Container, layout
from ....formats.messages.errors import (
    ExecutionError,
    FormatError,
    InferenceError,
    MiscompilationError,
    TreadleError,
)
from ....formats.primitive import Primitive, PrimitiveDefinition
from ....formats.schema import BY_NAME, REQUIRED, SECTIONS
from ....formats.sections import decode_definition

if TYPE_CHECKING:
    from ....decode.engine import Engine
    from ....text.template import Renderer
    from ....vm.machine import VirtualMachine

CORPUS = Path(__file__).parents[3] / "tests" / "corpus"
TEXT_BYTES = 1 << 14  # of an input: what is read is no longer than it takes to make a mistake

Target = Callable[[bytes], object]


def is_fault(error: TreadleError) -> bool:
    """Whether the error says itself that it is a fault of Treadle's: a template or a pass that failed, whatever the input."""
    return "Treadle's fault" in error.message or isinstance(error, MiscompilationError)


# ---- what comes of a trial ----


def reset_peak() -> int:
    """Begins to count the most memory in use anew, where the system can; bytes in use."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return 0


Meter = tuple[Callable[[], int], Callable[[], int]]  # begins to count the most bytes in use; says how many these were


def judged(act: Callable[[], object], seconds: float, memory: float, meter: Meter = (reset_peak, peak)) -> str:
    """What comes of a trial: what it says, "refused …" for an error of Treadle's, or "finding: …" for any other error, and for
    more of the processor's time or of memory than that."""
    before, begin = meter[0](), time.process_time()
    try:
        said = act()
        outcome = said if isinstance(said, str) else "taken"
    except TreadleError as error:
        outcome = f"finding: {error}" if is_fault(error) else f"refused {type(error).__name__}"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"finding: {type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {error}"
    worked, taken = time.process_time() - begin, meter[1]() - before
    if worked > seconds:
        return f"finding: took {worked:.1f} s of {seconds}, {outcome}"
    if taken > memory:
        return f"finding: took {taken >> 20} MiB of {memory / (1 << 20):.0f}, {outcome}"
    return outcome


# ---- readers ----


def file(data: bytes) -> None:
    """An executable: its container, its sections, the verifier."""
    from ....formats.executable import load
    from ....vm.verify.verifier import verify

    executable = load(data)
    executable.check_constants()
    verify(executable.program)


def sections(data: bytes) -> None:
    """One section, which the first byte chooses, without a container's checksums around it."""
    codecs = [section for section in SECTIONS if section.codec is not None]
    section = codecs[data[0] % len(codecs)] if data else codecs[0]
    assert section.codec is not None
    section.codec.decode(data[1:], section.name)


def assembly(data: bytes) -> None:
    """The assembler's text, what it makes verified, printed and read again."""
    from ....formats.text.assembly import parse_assembly, print_assembly
    from ....vm.verify.verifier import verify

    program = parse_assembly(data[:TEXT_BYTES].decode(errors="replace"))
    verify(program)
    again = print_assembly(program)
    if print_assembly(parse_assembly(again)) != again:
        raise AssertionError("a printed program reads back as another")


def module(data: bytes) -> None:
    """The text of the IR, typed."""
    from ....compiler.ir.infer import infer_types
    from ....compiler.ir.text import parse_module, print_module

    typed = infer_types(parse_module(data[:TEXT_BYTES].decode(errors="replace")))
    print_module(typed)


def definition(data: bytes) -> None:
    """A primitive's definition: decoded, checked, lowered to the text of a kernel."""
    from ....compiler.check import check_definition
    from ....compiler.targets.cpu.kernels.lower import lower
    from ....compiler.targets.cpu.target import host

    found = decode_definition(data)
    check_definition(found)
    lower(found, host())


def onnx(data: bytes) -> None:
    """A model in ONNX's format."""
    from ....compiler.onnx.importer import from_onnx

    from_onnx(data)


def argument(data: bytes) -> None:
    """A tensor on the command line: small ones are made."""
    from ...arguments import parse

    found = parse(data[:TEXT_BYTES].decode(errors="replace"))
    elements = 1
    for size in found.shape or ():
        elements *= size
    if not found.source.startswith("@") and elements < 1 << 20:
        found.load()


def array(data: bytes) -> None:
    """A tensor in a file of NumPy's."""
    from ...arguments import read_array

    read_array(_saved(data, ".npy"))


def constants(data: bytes) -> None:
    """A file of late-bound constants."""
    from ....formats.constants_file import ConstantsFile

    ConstantsFile(_saved(data, ".constants")).check()


def recording(data: bytes) -> None:
    """A recording of calls, with the checksums that fit: what is read is written as it was, and its calls are made again,
    whatever the program that it names."""
    from ....debug.recording import Recorded
    from ....formats.recording import encode, load

    found = load(_summed(data))
    if b"".join(encode(load(b"".join(encode(found))))) != b"".join(encode(found)):
        raise AssertionError("a written recording reads back as another")
    Recorded(found).replay(_recorded_program())


@functools.cache
def _recorded_program() -> VirtualMachine:
    """What the recordings of the corpus are of."""
    from ....formats.executable import Executable
    from ....formats.text.assembly import parse_assembly
    from ....vm.machine import VirtualMachine

    text = """
    data List = Nil | Cons(float32[2], List)
    import f: fn(float32[n, 2], float32[n]) -> float32[2*n]
    import g: fn((float32[2], List)) -> (int64[], bool[])
    func @main(x: float32[?, 2], y: float32[?]) -> float32[?] {
      call_import r2, f (r0, r1)
      ret r2
    }
    func @tuples(x: float32[2], y: List, s: string[2]) -> (int64[], bool[]) {
      alloc_data r3, (float32[2], List), 0 (r0, r1)
      call_import r4, g (r3)
      ret r4
    }
    """

    def missing(*_: object) -> None:
        raise ExecutionError("the recording ends before this call")

    return VirtualMachine(Executable(parse_assembly(text)), imports={"f": missing, "g": missing}, kernels="cached")


def _summed(data: bytes) -> bytes:
    """The bytes of a container, whose checksums are made right as far as its index can be read: what is behind them is of
    interest."""
    try:
        magic, version, index_bytes, _, _, _ = HEADER.unpack_from(data)
        rows = list(INDEX.decode(data[HEADER.size : HEADER.size + index_bytes], "index"))
    except (struct.error, FormatError):
        return data
    end, summed = HEADER.size + index_bytes, []
    for name, length, _, required in rows:
        start = aligned(end)
        end = start + length
        summed.append((name, length, zlib.crc32(data[start:end]), required))
    index = INDEX.encode(summed, "index")
    if len(index) != index_bytes:  # a checksum may take fewer bytes
        return data
    head = HEADER.pack(magic, version, index_bytes, len(data), zlib.crc32(index), 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head)) + index + data[HEADER.size + index_bytes :]


def session(data: bytes) -> None:
    """A session: as it is, taken only if it is as it was written; and with checksums and a digest that fit, resumed."""
    from ....decode.session import resumed
    from ....formats.session import encode, load

    with contextlib.suppress(FormatError):
        if b"".join(encode(load(data))) != data:
            raise AssertionError("a changed session is taken")
    found = load(_signed(data))
    written = b"".join(encode(found))
    if b"".join(encode(load(written))) != written:
        raise AssertionError("a written session reads back as another")
    engine = _resuming_engine()
    made = resumed(replace(found, program=engine.digest, function=engine.function), engine, "the session")
    list(made.generate(1))


@functools.cache
def _resuming_engine() -> Engine:
    """An engine of the program that the sessions of the corpus are of, computed by NumPy."""
    from ....decode.engine import Engine
    from ....formats.executable import Executable
    from ....formats.text.assembly import parse_assembly
    from ....vm.machine import VirtualMachine

    text = """
    import decode: fn(int64[b, n], float32[b, past, 2]) -> (float32[b, n, 8], float32[b, n + past, 2])
    func @main(input_ids: int64[b, n], past_0: float32[b, past, 2]) -> (float32[b, n, 8], float32[b, n + past, 2])
        as (logits, present_0) {
      call_import r2, decode (r0, r1)
      ret r2
    }
    """

    def decode(ids: np.ndarray, past: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = np.asarray(ids)[..., None] * np.array([1, 0.5], np.float32)
        known = np.concatenate([np.asarray(past), rows.astype(np.float32)], axis=1)
        sums = np.cumsum(known, axis=1)[:, -rows.shape[1] :]
        with np.errstate(all="ignore"):
            return np.cos(sums[..., :1] * np.arange(8, dtype=np.float32) + sums[..., 1:]), known

    machine = VirtualMachine(Executable(parse_assembly(text)), imports={"decode": decode}, kernels="cached")
    return Engine(machine, cache_tokens=256)


def _signed(data: bytes) -> bytes:
    """The bytes of a session, whose checksums and digest are made right as far as its index can be read."""
    from ....formats.session import SECTIONS, contents_digest

    with contextlib.suppress(TreadleError):
        contents = Container(_summed(data), SECTIONS).contents
        digest = contents_digest({name: [view] for name, view in contents.items()}).encode()
        if len(place := contents["digest"]) >= len(digest):
            at = data.rfind(place)
            data = data[: at + len(place) - len(digest)] + digest + data[at + len(place) :]
    return _summed(data)


def tokenizer(data: bytes) -> None:
    """A tokenizer, as models' folders have it: read, and asked for the tokens of texts, and for the text of these."""
    from ....formats.text_model import EMBED, TextModel
    from ....text.tokens import Tokenizer

    made = Tokenizer(TextModel(EMBED, data, 64))
    for each in made.tokens(["a text of some words", "", "ü\0\U0001f600 [MASK]", ("a pair", "of texts")]):
        made.decode(each.ids.tolist())


def template(data: bytes) -> None:
    """The template of a chat."""
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": []}]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    given = {
        "messages": messages,
        "tools": tools,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "add_generation_prompt": True,
    }
    renderer().render(data[:TEXT_BYTES].decode(errors="replace"), given)


@functools.cache
def renderer() -> Renderer:
    from ....text.template import Renderer

    return Renderer()


def params(data: bytes) -> None:
    """A parameter file of TVM's; what is read is written as it was, but for names of element types that have two codes."""
    from ....formats.param_dict import load_param_dict, save_param_dict

    found = load_param_dict(data)
    again = load_param_dict(save_param_dict(found))
    for name, array in found.items():
        if again[name].dtype != array.dtype or again[name].tobytes() != array.tobytes():
            raise AssertionError(f"{name!r} reads back as another")


def relay(data: bytes) -> None:
    """An executable of TVM's Relay VM: read, whatever the hashes of its instructions, shown, made a program, which is checked."""
    from ....tvm.files.executables import open_file
    from ....tvm.files.relax_program import check
    from ....tvm.files.relay_executable import Reader, information_text, load_relay_executable
    from ....tvm.machines.relay.program import make_program

    class Careless(Reader):
        def check_hash(self, what: str, found: int, expected: int) -> None:
            pass

    with contextlib.suppress(FormatError):
        load_relay_executable(data)
    found = Careless(open_file(data)).executable()
    (found.bytecode + information_text(found)).encode()
    check(make_program(found))


def relax(data: bytes) -> None:
    """An executable of the Relax VM: read, shown, checked, written and read again."""
    from ....tvm.files.relax_executable import information_text, load_relax_executable, pieces
    from ....tvm.files.relax_program import as_text, check, statistics

    found = load_relax_executable(data)
    (as_text(found) + statistics(found) + information_text(found)).encode()
    check(found)
    if as_text(load_relax_executable(b"".join(pieces(found)))) != as_text(found):
        raise AssertionError("a written program reads back as another")


def graph(data: bytes) -> None:
    """A graph JSON: read, written, read again; as far as its functions are known here, made a program, which is verified."""
    from ....tvm.files.graph_json import parse_graph
    from ....tvm.graphs.program import make_program
    from ....vm.verify.verifier import verify

    found = parse_graph(data.decode(errors="replace"))
    again = found.as_text()
    if parse_graph(again) != found:
        raise AssertionError("a printed graph reads back as another")
    verify(make_program(found, _primitives(), python=("python",)).program)


@functools.cache
def _primitives() -> tuple[Primitive, ...]:
    """What the graphs of the corpus call."""
    from ....formats.text.assembly import parse_assembly

    text = """
    prim add(%0: float32[4, 8], %1: float32[4, 8]) -> float32[4, 8] {
      %2 = add(%0, %1) : float32[4, 8]
      return %2
    }
    prim scale[n](%0: float32[n, 8]) -> float32[n, 8] {
      %1 = add(%0, %0) : float32[n, 8]
      return %1
    }
    """
    return parse_assembly(text).primitives


def modules(data: bytes) -> None:
    """Modules in a library, whatever is around them."""
    from ....formats.bundle import unpack

    for each in unpack(memoryview(data), "the data"):
        each.check()


def _saved(data: bytes, suffix: str) -> str:
    """The path of a file that holds the bytes, the same one for each process and kind."""
    import os
    import tempfile

    path = Path(tempfile.gettempdir()) / f"treadle-fuzz-{os.getpid()}{suffix}"
    path.write_bytes(data)
    return str(path)


_FUNCTIONS: tuple[Target, ...] = (
    *(file, sections, assembly, module, definition, onnx, argument),
    *(array, constants, recording, session, tokenizer, template, params, relay, relax, graph, modules),
)
TARGETS = {target.__name__: target for target in _FUNCTIONS}


def read_corpus(name: str) -> list[bytes]:
    """The inputs of a target that are kept in the repository."""
    path = CORPUS / f"{name}.txt"
    return [base64.b64decode(line) for line in path.read_text().split()] if path.exists() else []


def known_definitions() -> list[PrimitiveDefinition]:
    """The well-formed definitions of the corpus."""
    from ....compiler.check import check_definition

    found = []
    for data in read_corpus("definition"):
        with contextlib.suppress(FormatError, InferenceError):
            definition = decode_definition(data)
            check_definition(definition)
            found.append(definition)
    return found


def with_changed_section(data: bytes, number: int, change: Callable[[bytes], bytes]) -> bytes:
    """A container's bytes with one section changed, and checksums that fit; `data` itself where it is no container."""
    try:
        opened = Container(data, frozenset(BY_NAME))
    except (TreadleError, ValueError, OverflowError):
        return data
    contents: dict[str, list[Buffer]] = {name: [view] for name, view in opened.contents.items()}
    if not contents:
        return data
    name = sorted(contents)[number % len(contents)]
    contents[name] = [change(bytes(opened.contents[name]))]
    return b"".join(layout(contents, REQUIRED))
