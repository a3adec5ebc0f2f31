"""The instruction table is the one place that knows where an instruction's fields are and what it may do."""

import inspect
import re

import pytest
from treadle.formats import bytecode, isa
from treadle.formats.isa import OPERATIONS, Kind, Role
from treadle.vm import layout
from treadle.vm.verify import flow

from .. import package

FIELDS = "99  blend  dst:r*! factor:d sources:r* label amount:imm"
MADE_UP = f"{FIELDS:63}r[dst] := a blend of r[sources]  // works grows"


@pytest.fixture
def blend(monkeypatch) -> isa.Operation:
    (operation,) = isa.parse_table(MADE_UP)
    monkeypatch.setitem(isa.BY_NAME, "blend", operation)
    monkeypatch.setitem(isa.BY_OPCODE, 99, operation)
    return operation


def test_a_row_says_all_of_an_instruction(blend):
    assert (blend.opcode, blend.name, blend.roles) == (99, "blend", {Role.WORKS, Role.GROWS})
    assert [field.kind for field in blend.fields] == [Kind.REF, Kind.DIM, Kind.REF, Kind.LABEL, Kind.IMM]
    assert not blend.ends_block


def test_a_row_gives_the_places_of_its_fields(blend):
    assert blend.places() == {"dst": 1, "factor": 0, "sources": 1, "label": 0, "amount": 1, "END": 2}


def test_a_row_is_encoded_and_decoded(blend):
    fields = {"dst": [3, 4], "factor": 7, "sources": [5], "label": 0, "amount": -1}
    words = bytecode.encode("blend", fields)
    assert words == [99, 2, 3, 4, 7, 1, 5, 0, -1]
    (found,) = bytecode.scan(words)
    assert (found.list("dst"), found.word("factor"), found.list("sources")) == ((3, 4), 7, (5,))
    assert found.written(Kind.REF) == (3, 4)
    assert found.size == len(words)
    assert bytecode.jump_target(found) == 0


def test_the_engine_finds_fields_where_the_encoder_puts_them():
    for operation in OPERATIONS:
        fields = {field.name: [] if field.is_list else 100 + at for at, field in enumerate(operation.fields)}
        words, at = bytecode.encode(operation.name, fields), 0
        places = getattr(layout.AT, "if_" if operation.name == "if" else operation.name)
        for field in operation.fields:
            place = at + getattr(places, field.name)
            assert words[place] == (0 if field.is_list else fields[field.name])
            at = place + 1 if field.is_list else at
        assert at + places.END == len(words)


def test_the_verifiers_methods_take_the_fields_of_their_instruction_in_order():
    for operation in OPERATIONS:
        names = [field.name for field in operation.fields]
        assert list(inspect.signature(flow._HANDLERS[operation.opcode]).parameters)[1:] == names


def test_nobody_else_counts_an_instructions_words():
    by_number = re.compile(
        r"instruction\.values\[\d|\bitem\.operands\[\d|load\(pc, [1-9]|pc \+=? \d|\d \* WORD\)* *- code"
    )
    for name, path in package.modules(without={"formats"}).items():
        found = by_number.search(path.read_text())
        assert found is None, f"{name}: {found[0]}; name the field instead"
