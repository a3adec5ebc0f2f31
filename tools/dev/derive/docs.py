"""Derives docs/isa.md and docs/format.md from the tables of formats/, docs/operators.md from the importers of ONNX.

python -m treadle.tools.dev.derive.docs
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from ....formats import container, isa, limits, schema
from ....formats.codec import Choice, Codec, Converted, Record, Sequence
from ....formats.dtypes import DType
from ....formats.text import assembly
from . import ROOT, operators, write

NOTICE = "<!-- Derived by tools/dev/derive/docs.py; edit the table instead, then run `make docs`. -->\n"


# ---- docs/isa.md ----


def isa_page() -> str:
    title, _, body = (isa.__doc__ or "").partition("\n\n")
    lines = [NOTICE, "# The instruction set", "", title, "", "```text", body.strip(), "```", ""]
    group = ""
    for operation in isa.OPERATIONS:
        if operation.group != group:
            group = operation.group
            lines += [
                "",
                f"## {group.capitalize()}",
                "",
                "| opcode | instruction | words | meaning |",
                "|--:|--|--|--|",
            ]
        lines.append(
            f"| {operation.opcode} | {_in_text(operation)} | {_words(operation)} | {_cell(operation.meaning)} |"
        )
    _, _, example = (assembly.__doc__ or "").partition("\n\n")
    lines += ["", "## Assembly", "", "`treadle dis` prints this text, and `treadle as` reads it back, exactly.", ""]
    lines += ["```text", example.strip("\n"), "```"]
    return "\n".join(lines).rstrip() + "\n"


def _in_text(operation: isa.Operation) -> str:
    """The instruction as assembly shows it, with the names of its fields."""
    from ....formats.text.disassembly import LAYOUTS

    parts = []
    for operand in LAYOUTS[operation.name]:
        name = operand.field.name
        shown = f"{operand.brackets[0]}{name}…{operand.brackets[1]}" if operand.field.is_list else name
        parts.append(operand.separator + shown)
    return f"`{operation.name} {''.join(parts)}`"


def _words(operation: isa.Operation) -> str:
    words = [f"{operation.opcode}"]
    for field in operation.fields:
        words.append(f"n, {field.name}×n" if field.is_list else field.name)
    return f"`{', '.join(words)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("[", "\\[").replace("*", "\\*")


# ---- docs/format.md ----


def format_page() -> str:
    codec_title, _, codec_body = (sys.modules[Codec.__module__].__doc__ or "").partition("\n\n")
    _, _, container_body = (container.__doc__ or "").partition("\n\n")
    lines = [
        NOTICE,
        "# The file format",
        "",
        f"An executable is one file (`.trdl`), format version {container.FORMAT_VERSION}: a header, an index, sections.",
        "",
        "```text",
        container_body.strip("\n"),
        "```",
        "",
        f"The index is a list of `{container.ENTRY.name}`: {_fields(container.ENTRY)}. A reader skips a section that it does not"
        " know, unless the section is required.",
        "",
        "## Sections",
        "",
        "| section | required | content |",
        "|--|--|--|",
    ]
    for section in schema.SECTIONS:
        content = "raw bytes" if section.codec is None else section.codec.describe()
        required = "yes" if section.required else "where it is there" if section.decides else "no"
        lines.append(f"| `{section.name}` | {required} | {section.meaning}: {content} |")
    lines += ["", "## Tables", "", codec_title, "", codec_body.strip(), "", *_definitions()]
    lines += ["", "## Element types", "", "| code | name |", "|--:|--|"]
    lines += [f"| {dtype.code} | {dtype.name} |" for dtype in DType]
    lines += ["", "## Limits", "", "| limit | value | of what |", "|--|--:|--|", *_limits()]
    return "\n".join(lines) + "\n"


def _limits() -> Iterator[str]:
    """The limits with the comments that stand beside them."""
    for line in inspect.getsource(limits).splitlines():
        name, is_assignment, rest = line.partition(" = ")
        if is_assignment and name.isupper():
            yield f"| {name} | {getattr(limits, name)} | {rest.partition('#')[2].strip()} |"


def _fields(record: Record) -> str:
    return ", ".join(f"{name} ({text})" for name, text in record.describe_fields())


def _definitions() -> list[str]:
    """The records and choices that sections are made of, each once, in order of appearance."""
    lines = ["| name | is |", "|--|--|"]
    for codec in _reachable():
        if isinstance(codec, Record):
            lines.append(f"| {codec.name} | {_fields(codec)} |")
        elif isinstance(codec, Choice):
            kinds = "; or ".join(f"{tag}, then {text}" for tag, _, text in codec.describe_options())
            lines.append(f"| {codec.name} | {kinds} |")
    return [*lines, f"| dimension | {(schema.DIM.__doc__ or '').strip()} |"]


def _reachable() -> list[Codec]:
    seen: dict[int, Codec] = {}

    def visit(codec: Codec) -> None:
        if id(codec) not in seen:
            seen[id(codec)] = codec
            for part in _parts(codec):
                visit(part)

    for section in schema.SECTIONS:
        if section.codec is not None:
            visit(section.codec)
    visit(schema.DEFINITION)
    return list(seen.values())


def _parts(codec: Codec) -> Iterator[Codec]:
    if isinstance(codec, Record):
        yield from codec.fields.values()
    elif isinstance(codec, Choice):
        yield from (option for _, option in codec.options.values())
    elif isinstance(codec, Sequence):
        yield codec.element
    elif isinstance(codec, Converted):
        yield codec.codec


def texts() -> dict[Path, str]:
    pages = {"isa.md": isa_page(), "format.md": format_page(), "operators.md": operators.page(NOTICE)}
    return {ROOT / "docs" / name: page for name, page in pages.items()}


if __name__ == "__main__":
    write(texts())
