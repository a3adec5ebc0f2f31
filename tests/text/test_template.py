"""Chat templates: what transformers renders, and what an enemy's may not do."""

from __future__ import annotations

import threading
import time

import pytest
from treadle.formats.messages.errors import ArgumentError, BudgetExceededError
from treadle.text import template
from treadle.text.template import Renderer

pytest.importorskip("jinja2")
CHAT = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "bos_token": "<s>"}


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "{{ bos_token }}{% for m in messages %}\n{{ m['role'] }}:{{ m.content | trim }}\n{% endfor %}",
            "<s>user:a\nassistant:b\n",
        ),
        ("{% for m in messages %}{% if m.role == 'assistant' %}{% break %}{% endif %}{{ m.role }}{% endfor %}", "user"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "2"),
        ("{{ {'a': 'ü<'} | tojson }}", '{"a": "ü<"}'),
        ("{%- if tools is defined %}t{% else %}n{% endif -%} ", "n"),
    ],
)
def test_what_templates_of_models_use(renderer: Renderer, text: str, expected: str) -> None:
    assert renderer.render(text, CHAT) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "the chat template: roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "unsafe|undefined"),
        ("{{ messages.append(1) }}", "unsafe|safely"),
        ("{{ cycler.__init__.__globals__.os.system('id') }}", "unsafe|undefined"),
        ("{{ self.__init__.__globals__ }}", "unsafe|undefined"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{% import 'os' as os %}", "no loader"),
        ("{{ open('/etc/passwd') }}", "'open' is undefined"),
        ("{% for", "the chat template: "),
        ("{{ 'a' * 10 ** 10 }}", "took too much: MemoryError"),
        ("{{ 'a' | center(10000000000) }}", "took too much: MemoryError"),
        ("{{ 'a'.ljust(10000000000) }}", "took too much: MemoryError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "took too much|recursion"),
    ],
)
def test_templates_of_an_enemy_are_refused_by_name(renderer: Renderer, text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        renderer.render(text, CHAT)


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 10 ** (10 ** 9) > 1 }}",
        "{% for a in range(99999) %}{{ 'aaaaaaaaaa' * 9999 }}{% endfor %}",
        "{{ 'a' * 5000000 }}",
    ],
)
def test_templates_that_take_too_long_or_give_too_much_end(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "SECONDS", 0.3)
    renderer = Renderer()
    renderer.render("", {})
    start = time.monotonic()
    with pytest.raises((BudgetExceededError, ArgumentError), match=r"took (more|too much)"):
        renderer.render(text, CHAT)
    assert time.monotonic() - start < 20
    assert renderer.render("{{ 1 }}", {}) == "1"  # by another process


def test_formats_reach_no_attributes_of_python(renderer: Renderer) -> None:
    assert "class" not in renderer.render(
        "{{ '{0.__class__}'.format(1) }}{{ '%s' | format(messages.__class__) }}", CHAT
    )


def test_variables_are_json(renderer: Renderer) -> None:
    with pytest.raises(ArgumentError, match="its variables are not JSON"):
        renderer.render("", {"messages": [object()]})


def test_an_interrupted_chat_is_not_taken_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = Renderer()
    assert renderer.render("{{ 1 }}", {}) == "1"

    def interrupt(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        assert renderer._process is not None
        process = renderer._process._process
        assert process.stdout is not None
        patched.setattr(process.stdout, "readline", interrupt, raising=False)
        with pytest.raises(KeyboardInterrupt):
            renderer.render("{{ 2 }}", {})
    assert renderer.render("{{ 3 }}", {}) == "3"
    assert process.poll() is not None


def test_of_a_process_that_the_system_ended_nothing_stays() -> None:
    renderer, others = Renderer(), set(threading.enumerate())
    assert renderer.render("{{ 1 }}", {}) == "1"
    (thread,) = set(threading.enumerate()) - others
    assert renderer._process is not None
    ended = renderer._process._process
    time.sleep(0.2)  # the thread waits for the next request
    ended.kill()
    ended.wait()
    assert renderer.render("{{ 2 }}", {}) == "2"
    assert ended.stdout is not None
    assert ended.stdout.closed
    thread.join(10)
    assert not thread.is_alive()
