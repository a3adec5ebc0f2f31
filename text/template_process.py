"""Renders chat templates, in a process that can do nothing else: `confined_process.py` runs this file.

Templates come with models, from anywhere. Jinja's sandbox keeps them from Python's names.
"""

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any


def prepare() -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """The function that renders."""
    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def tojson(value, indent=None, ensure_ascii=False, separators=None, sort_keys=False):  # type: ignore[no-untyped-def]
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def refuse(message: object) -> None:
        raise jinja2.TemplateError(str(message))

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = tojson  # as transformers has it
    environment.globals["raise_exception"] = refuse
    for warm in (
        "{% macro a(b) %}{{ b }}{% endmacro %}{{ a(1) | indent }}{{ 'c\\n' | pprint }}",
        "{% for",
        "{{ a.b.c }}",
    ):
        with contextlib.suppress(jinja2.TemplateError):  # Jinja imports modules on first use, some of them for errors
            environment.from_string(warm).render()
    return lambda request: {"text": environment.from_string(request["template"]).render(**request["variables"])}
