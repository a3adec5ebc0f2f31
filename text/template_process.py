"""Renders chat templates, in a process that can do nothing else: `template.py` runs this file, a JSON line for each request.

Templates come with models, from anywhere. Jinja's sandbox keeps them from Python's names; this process' limits keep what they do
within bounds of memory, and its parent's clock within bounds of time. It opens no file once it runs.
"""

import contextlib
import json
import sys


def main(modules: "list[str]", memory: int) -> None:
    """Answers requests from standard input until it ends."""
    sys.path[:] = modules
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
    try:
        import resource
    except ImportError:  # Windows: time and what is read back are bounded
        pass
    else:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    for line in sys.stdin:
        try:
            request = json.loads(line)
            template = environment.from_string(request["template"])
            answer = {"text": template.render(**request["variables"])}
        except (MemoryError, RecursionError) as error:
            answer = {"error": f"it took too much: {type(error).__name__}"}
        except Exception as error:
            answer = {"error": f"{error}"[:500] or type(error).__name__}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
