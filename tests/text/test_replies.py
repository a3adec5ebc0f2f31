"""Thoughts, texts and calls of tools, read piece by piece from what models write."""

from __future__ import annotations

import pytest
from treadle.text.replies import BARE, FORMS, Form, Reply, form_of

HERMES, MISTRAL, PHI, LLAMA = FORMS
TOOLS = ("f", "g")


def read(text: str, form: Form | None = None, **thoughts: bool) -> tuple[str, str, list[tuple[str, str]]]:
    """Text, thoughts and calls, the same for pieces of any size."""
    found = []
    for size in (1, 2, 5, len(text) or 1):
        reply = Reply(form, TOOLS, **thoughts)
        parts = [part for at in range(0, len(text), size) for part in reply.take(text[at : at + size])]
        parts += reply.end()
        calls = [tuple(part.call) for part in parts if part.call]
        found.append(("".join(part.text for part in parts), "".join(part.thought for part in parts), calls))
        assert all(len([each for each in part if each]) == 1 for part in parts)
    assert all(each == found[0] for each in found)
    return found[0]  # type: ignore[return-value]


F, G = ("f", '{"a": 1}'), ("g", "{}")


@pytest.mark.parametrize(
    ("form", "text", "said", "calls"),
    [
        (HERMES, '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', "", [F]),
        (HERMES, 'I call.\n<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>\n'
                 '<tool_call>{"name": "g", "arguments": {}}</tool_call>\n', "I call.", [F, G]),
        (HERMES, '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}', "", [F]),  # cut at the end
        (MISTRAL, '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]', "", [F, G]),
        (MISTRAL, 'Well [TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}', "Well", [F, G]),
        (PHI, '<|tool_call|>[{"name": "f", "arguments": {"a": 1}}]<|/tool_call|>', "", [F]),
        (LLAMA, '{"name": "f", "parameters": {"a": 1}}', "", [F]),
        (LLAMA, '\n{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}', "", [F, G]),
        (LLAMA, '<|python_tag|>{"type": "function", "function": {"name": "g", "parameters": {}}}', "", [G]),
        (BARE, '{"name": "f", "arguments": {"a": 1}}', "", [F]),
    ],
)  # fmt: skip
def test_the_forms_of_calls(form: Form, text: str, said: str, calls: list[tuple[str, str]]) -> None:
    assert read(text, form) == (said, "", calls)


@pytest.mark.parametrize("form", [*FORMS, None])
@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "plain text ",
        "{",
        '{"name": 3}',
        '{"name": "unknown", "arguments": {}}',
        '<tool_call>{"name": "f"}</tool_call>',
        "<tool_call>no JSON</tool_call> and more <tool",
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        '[TOOL_CALLS]f[ARGS]{"a"',
        "[TOOL_CALLS]" + "[" * 5000,
        "<|tool_call|><|/tool_call|>",
        "<|python_tag|>print(1)",
    ],
)
def test_what_is_no_call_is_text(form: Form | None, text: str) -> None:
    assert read(text, form) == (text, "", [])


def test_thoughts() -> None:
    assert read("<think>\nhm\n</think>\n\nso", thinks=True) == ("so", "\nhm\n", [])
    assert read("hm</think>so </think>", is_thinking=True) == ("so </think>", "hm", [])
    assert read("no <think>so</think>", thinks=True) == ("no <think>so</think>", "", [])
    assert read("<think>no end", thinks=True) == ("", "no end", [])
    assert read("<thin", thinks=True) == ("<thin", "", [])
    assert read("<think>not asked</think>") == ("<think>not asked</think>", "", [])
    call = '<think>hm</think>\n\n<tool_call>{"name": "g", "arguments": {}}</tool_call>'
    assert read(call, HERMES, thinks=True) == ("", "hm", [G])
    bare = '<think>hm</think>\n{"name": "g", "parameters": {}}'
    assert read(bare, LLAMA, thinks=True) == ("", "hm", [G])


@pytest.mark.parametrize(
    ("template", "form"),
    [
        ("{{ messages }}", None),
        ("{% for t in tools %}<tool_call>{% endfor %}", HERMES),
        ("{% for t in tools %}[TOOL_CALLS]{% endfor %}", MISTRAL),
        ("{% for t in tools %}<|tool_call|>{% endfor %}", PHI),
        ("<|start_header_id|>{{ tools }}", LLAMA),
        ("{{ tools }}", HERMES),
    ],
)
def test_the_template_tells_the_form(template: str, form: Form | None) -> None:
    assert form_of(template) is form
