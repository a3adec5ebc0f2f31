"""The common part of assembly and the IR's text: constants (`const`) and primitives (`prim`), printed and parsed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from .. import limits
from ..constants import constant_bytes, constant_type, from_bytes
from ..constants_file import ConstantsFile, add_constants, beside, constant_key
from ..dtypes import DType
from ..messages.errors import FormatError
from ..primitive import Primitive, PrimitiveDefinition, PrimitiveNode
from ..types import TensorType, size_problem
from . import notation
from .notation import Scanner, print_name, quote

INLINE_ELEMENTS = 64  # constants of more are written as base64, or in a file
ELIDED = "elided"


class TableParser:
    """A parser of texts with constants and primitives. `folder` is where the constants files lie that the text names."""

    def __init__(self, text: str, folder: str | os.PathLike | None) -> None:
        self.scanner = Scanner(text)
        self.folder = folder
        self.files: dict[str, ConstantsFile] = {}
        self.constants: list[np.ndarray] = []
        self.placed: dict[int, str] = {}
        self.constant_names: dict[str, int] = {}
        self.primitives: list[Primitive] = []
        self.primitive_names: dict[str, int] = {}

    def read_sections(self, sections: Mapping[str, Callable[[], object]]) -> None:
        """The whole text: each section begins with the word by which its reader is found."""
        *others, last = sections
        expected = f"{', '.join(others)} or {last}"
        while not self.scanner.at_end():
            start = self.scanner.at
            word = self.scanner.word(expected)
            if word not in sections:
                self.scanner.fail(f"expected {expected}, found {word!r}", start)
            sections[word]()

    def declare(self, names: dict[str, int], name: str, what: str, start: int) -> None:
        if name in names:
            self.scanner.fail(f"there is a {what} {name!r} already", start)
        names[name] = len(names)

    def const(self) -> None:
        scanner = self.scanner
        start = scanner.skip()
        self.declare(self.constant_names, scanner.word("a constant's name"), "constant", start)
        start = scanner.skip()
        type_ = notation.scan_placed_type(scanner)
        if type_.device:
            self.placed[len(self.constants)] = type_.device
            type_ = type_.on("")
        if not type_.is_static or type_.nbytes > limits.CONSTANT_BYTES:
            scanner.fail(f"a constant's shape must be known and of moderate size, not {type_}", start)
        if problem := size_problem(type_):
            scanner.fail(f"a constant {type_} {problem}", start)
        scanner.expect("=")
        array = self.elements(type_)
        array.flags.writeable = False
        self.constants.append(array)

    def elements(self, type_: TensorType) -> np.ndarray:
        scanner = self.scanner
        start = scanner.skip()
        if type_.dtype.is_string:
            return notation.scan_tensor(scanner, type_)
        if scanner.accept_word("base64"):
            data = notation.scan_base64(scanner, type_.nbytes)
            return from_bytes(type_, data).copy()
        if scanner.accept_word("file"):
            return self.shared_constant(type_, start)
        if scanner.accept_word(ELIDED):
            scanner.fail(
                "this text was printed without its large constants; `treadle dis FILE -o TEXT` prints them too", start
            )
        return notation.scan_tensor(scanner, type_)

    def shared_constant(self, type_: TensorType, start: int) -> np.ndarray:
        file = self.scanner.string("a file's name in quotes")
        key = self.scanner.string("a constant's key in quotes")
        try:
            path = beside(self.folder, file)
            if file not in self.files:
                self.files[file] = ConstantsFile(path)
                self.files[file].check()
        except (OSError, FormatError) as error:
            self.scanner.fail(str(error), start)
        array = self.files[file].arrays.get(key)
        if array is None or constant_type(array) != type_:
            self.scanner.fail(f"{path} has no constant {key!r} of type {type_}", start)
        return array

    # -- primitives --

    def prim(self) -> None:
        scanner = self.scanner
        start = scanner.skip()
        name = scanner.name("a primitive's name")
        self.declare(self.primitive_names, name, "primitive", start)
        variables = scanner.listed(lambda: scanner.word("a variable"), "[", "]") if scanner.peek("[") else None
        params = self.params_of_primitive()
        at_results = scanner.skip()
        declared = self.result_types() if scanner.accept("->") else None
        device = scanner.word("a device's name") if scanner.accept_word("on") else ""
        nodes, outputs = self.primitive_body(list(params))
        definition = PrimitiveDefinition(params, nodes, outputs, tuple(variables or ()))
        if variables is None:
            definition = PrimitiveDefinition(params, nodes, outputs, derived_variables(definition))
        if declared is not None and declared != definition.results:
            results = types_text(definition.results)
            scanner.fail(f"declares {types_text(declared)} as its result, but returns {results}", at_results)
        self.primitives.append(Primitive(name, definition, device))

    def params_of_primitive(self) -> tuple[TensorType, ...]:
        params: list[TensorType] = []

        def param() -> None:
            if self.scanner.peek("%"):
                self.new_value(len(params))
                self.scanner.expect(":")
            params.append(notation.scan_tensor_type(self.scanner))

        self.scanner.listed(param)
        return tuple(params)

    def new_value(self, expected: int) -> None:
        start = self.scanner.skip()
        self.scanner.expect("%")
        if self.scanner.integer("a value's number") != expected:
            self.scanner.fail(f"values are numbered in order: expected %{expected}", start)

    def old_value(self, known: int) -> int:
        start = self.scanner.skip()
        self.scanner.expect("%")
        number = self.scanner.integer("a value's number")
        if not 0 <= number < known:
            self.scanner.fail(f"there is no value %{number} here", start)
        return number

    def result_types(self) -> tuple[TensorType, ...]:
        if self.scanner.peek("("):
            return tuple(self.scanner.listed(lambda: notation.scan_tensor_type(self.scanner)))
        return (notation.scan_tensor_type(self.scanner),)

    def primitive_body(self, values: list[TensorType]) -> tuple[tuple[PrimitiveNode, ...], tuple[int, ...]]:
        scanner = self.scanner
        nodes: list[PrimitiveNode] = []
        scanner.expect("{")
        while not scanner.accept_word("return"):
            node = self.node(len(values))
            nodes.append(node)
            values += node.results
        outputs: list[int] = []
        while not scanner.accept("}"):
            if outputs:
                scanner.expect(",")
            outputs.append(self.old_value(len(values)))
        return tuple(nodes), tuple(outputs)

    def node(self, known: int) -> PrimitiveNode:
        scanner = self.scanner
        start = scanner.skip()
        count = 0
        while not scanner.accept("="):
            if count:
                scanner.expect(",")
            self.new_value(known + count)
            count += 1
        operator = scanner.name("an operator")
        inputs = tuple(scanner.listed(lambda: self.old_value(known)))
        attributes = tuple(scanner.listed(self.attribute, "{", "}")) if scanner.peek("{") else ()
        scanner.expect(":")
        results = self.result_types()
        if len(results) != count:
            scanner.fail(f"{count} values, but {len(results)} types", start)
        return PrimitiveNode(operator, inputs, results, attributes, self.origin() or "")

    def attribute(self) -> tuple[str, notation.AttributeValue]:
        name = self.scanner.name("an attribute")
        self.scanner.expect("=")
        return name, notation.scan_attribute(self.scanner)

    def origin(self) -> str | None:
        return self.scanner.string("a model node in quotes") if self.scanner.accept_word("from") else None


def is_inline(array: np.ndarray) -> bool:
    """Whether a constant is written element by element: a small one, and one of texts."""
    return array.size <= INLINE_ELEMENTS or DType.of(array.dtype).is_string


def print_constants(
    constants: Sequence[np.ndarray],
    constants_file: str | os.PathLike | None,
    elide: bool,
    placed: Mapping[int, str] = MappingProxyType({}),
) -> list[str]:
    large = [array for array in constants if not is_inline(array)]
    if constants_file is not None and large and not elide:
        add_constants(constants_file, large)
    lines: list[str] = []
    for index, array in enumerate(constants):
        head = f"const c{index} {constant_type(array).on(placed.get(index, ''))} ="
        if is_inline(array):
            lines.append(f"{head} {notation.print_tensor(array)}")
        elif elide:
            lines.append(f"{head} {ELIDED}")
        elif constants_file is not None:
            lines.append(f"{head} file {quote(os.path.basename(constants_file))} {quote(constant_key(array))}")
        else:
            lines += [f"{head} base64 {{", *notation.print_base64(constant_bytes(array)), "}"]
    return lines


def print_primitive(primitive: Primitive) -> str:
    definition = primitive.definition
    variables = f"[{', '.join(definition.variables)}]" if definition.variables or derived_variables(definition) else ""
    params = ", ".join(f"%{number}: {type_}" for number, type_ in enumerate(definition.params))
    place = f" on {primitive.device}" if primitive.device else ""
    lines = [f"prim {print_name(primitive.name)}{variables}({params}) -> {types_text(definition.results)}{place} {{"]
    number = len(definition.params)
    for node in definition.nodes:
        results = ", ".join(f"%{number + i}" for i in range(len(node.results)))
        number += len(node.results)
        lines.append(f"  {results}{' = ' if results else '= '}{_print_node(node)}")
    outputs = ", ".join(f"%{value}" for value in definition.outputs)
    return "\n".join([*lines, f"  return {outputs}".rstrip(), "}"])


def derived_variables(definition: PrimitiveDefinition) -> tuple[str, ...]:
    types = definition.params + tuple(result for node in definition.nodes for result in node.results)
    attributes = tuple(value for node in definition.nodes for _, value in node.attributes)
    return PrimitiveDefinition.variables_of(types, attributes)


def types_text(types: Sequence[TensorType]) -> str:
    return str(types[0]) if len(types) == 1 else f"({', '.join(map(str, types))})"


def _print_node(node: PrimitiveNode) -> str:
    inputs = ", ".join(f"%{value}" for value in node.inputs)
    attributes = ", ".join(f"{print_name(name)}={notation.print_attribute(value)}" for name, value in node.attributes)
    text = f"{print_name(node.operator)}({inputs}){f' {{{attributes}}}' if attributes else ''} : {types_text(node.results)}"
    return f"{text}  from {quote(node.origin)}" if node.origin else text
