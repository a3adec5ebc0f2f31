"""What the user wrote where: errors of a run, profiles and listings of a program name the file and line of each expression."""

import inspect
import textwrap
from pathlib import Path

import numpy as np
import pytest
import treadle
from treadle import Module, function, named, op, var
from treadle.compiler.builder import user_lines

FILE = Path(__file__).name


def here(offset: int = 0) -> str:
    """The caller's line."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{FILE}:{frame.f_back.f_lineno + offset}"


def origins(
    result: treadle.compiler.builder.programs.Expression, *parameters: treadle.compiler.builder.programs.Expression
) -> list[str]:
    return [binding.origin for binding in Module(main=function(parameters, result)).functions["main"].body.bindings]


def test_each_way_to_build_an_expression_names_the_line_that_asks_for_it() -> None:
    x = var("x", ("n", 4))
    for built in (
        lambda: op.exp(x),
        lambda: x + 1,
        lambda: 1 - x,
        lambda: -x,
        lambda: x.sum(axis=1),
        lambda: np.exp(x),
        lambda: np.stack([x, x]),
        lambda: x[0],
        lambda: treadle.tuple_(x, x),
        lambda: treadle.if_(x.sum() > 0, x, x + 1),
        lambda: treadle.for_loop(3, lambda i, y: y + 1, [x]),
        lambda: treadle.match_shape(x, ("m", 4)),
    ):
        line = f"{FILE}:{built.__code__.co_firstlineno}"
        assert set(origins(built(), x)) == {line}


def test_a_line_is_that_of_the_nearest_function_of_the_user() -> None:
    def dense(x: treadle.compiler.builder.programs.Expression) -> treadle.compiler.builder.programs.Expression:
        return x @ np.ones((4, 4), np.float32)

    x = var("x", ("n", 4))
    assert origins(dense(x), x) == [f"{FILE}:{dense.__code__.co_firstlineno + 1}"]


def test_a_name_of_the_users_own_stands_in_its_place() -> None:
    x = var("x", ("n", 4))
    assert origins(named("attention", op.exp(x)), x) == ["attention"]


def test_an_error_of_a_run_names_the_line() -> None:
    x, at = var("x", ("n", 4)), var("at", ("m",), "int64")
    exponents = op.exp(x)
    taken, line = op.take(exponents, at, axis=0), here()
    machine = treadle.VirtualMachine(treadle.compile(function([x, at], taken), progress=False))
    with pytest.raises(treadle.errors.IndexOutOfRangeError, match=f"node '{line}'") as caught:
        machine["main"](np.zeros((3, 4), np.float32), np.array([0, 7]))
    assert caught.value.node == line


def test_a_profile_and_a_listing_name_the_lines() -> None:
    x = var("x", ("n", 4))
    first, one = x @ np.eye(4, dtype=np.float32), here()
    second, two = op.softmax(first), here()
    executable = treadle.compile(function([x], second), progress=False)
    profile = treadle.VirtualMachine(executable).profile("main", np.zeros((3, 4), np.float32))
    assert {row.node for row in profile} == {one, two}
    assert one in str(profile)
    assert f'from "{two}"' in executable.as_text()


def test_fused_expressions_of_one_line_name_it_once() -> None:
    x = var("x", ("n", 4))
    both, line = np.exp(x) * 2 + 1, here()
    executable = treadle.compile(function([x], both), progress=False)
    assert {row.node for row in executable.program.source_map} == {line}


def test_a_program_has_the_same_bytes_wherever_it_lies(tmp_path: Path) -> None:
    text = textwrap.dedent("""
        import treadle
        x = treadle.var("x", ("n", 4))
        data = treadle.compile(treadle.function([x], x + 1), progress=False).save()
    """)
    made = []
    for folder in ("a", "b"):
        names: dict[str, object] = {"__name__": "program"}
        exec(compile(text, str(tmp_path / folder / "program.py"), "exec"), names)
        made.append(names["data"])
    assert made[0] == made[1]


def test_what_treadle_builds_by_itself_has_no_line() -> None:
    names: dict[str, object] = {"__name__": f"{treadle.__name__}.vm.something", "of": user_lines.line_of_user}
    exec("found = of()", names)
    assert names["found"] == ""


def test_a_cell_is_named_as_the_notebook_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiler:
        def format_code_name(self, path: str) -> tuple[str, str] | None:
            return ("Cell", "In[3]") if path == "/tmp/ipykernel_12/34.py" else None

    class Notebook:
        compile = Compiler()

        @classmethod
        def get_ipython(cls) -> type:
            return cls

    monkeypatch.setitem(user_lines.sys.modules, "IPython", Notebook)  # type: ignore[arg-type]
    names: dict[str, object] = {"__name__": "__main__", "of": user_lines.line_of_user}
    exec(compile("\nfound = of()", "/tmp/ipykernel_12/34.py", "exec"), names)
    assert names["found"] == "In[3]:2"
