"""Child processes import what this one does, and nothing that lies in the folder that a user stands in."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import treadle
from treadle.formats.messages.errors import ExecutionError
from treadle.native import processes

from .. import package

PACKAGE = Path(treadle.__file__).parent
BESIDE_THE_MODEL = ("msgpack", "numpy", "numba", "llvmlite", "tqdm", "platformdirs", "onnx", "yaml", "sitecustomize")

BUILD = """
from treadle.compiler.targets.cpu.toolchain.compile_pool import Text, compile_texts
from treadle.compiler.targets.cpu.target import host
source = "def kernel(args, scratch, part, parts):\\n    return part\\n"
print(len(list(compile_texts([Text(f"kernel_{i}", source, 4) for i in range(3)], host().native, jobs=1))))
"""


@pytest.fixture
def downloads(tmp_path: Path) -> Path:
    """A folder whose modules leave a mark when they are run."""
    folder = tmp_path / "downloads"
    folder.mkdir()
    for name in BESIDE_THE_MODEL:
        (folder / f"{name}.py").write_text(
            f"open({str(tmp_path / 'run')!r}, 'a').write({name!r})\nraise SystemExit(66)\n"
        )
    return folder


def marks(downloads: Path) -> str:
    path = downloads.parent / "run"
    return path.read_text() if path.exists() else ""


def test_compile_workers_run_no_code_of_the_working_directory(tmp_path: Path, downloads: Path):
    script = tmp_path / "script.py"
    script.write_text(BUILD)
    done = subprocess.run([sys.executable, script], cwd=downloads, capture_output=True, text=True, check=False)
    assert (done.stdout, marks(downloads)) == ("3\n", ""), done.stderr


@pytest.mark.parametrize("entry", ["", ".", "{here}", "../downloads"])
def test_nor_do_they_where_it_was_on_this_process_path_as_in_a_session(entry, downloads, tmp_path):
    late = f"import sys, numpy, msgpack, llvmlite, platformdirs, tqdm; sys.path.insert(0, {entry.format(here=downloads)!r})"
    script = tmp_path / "script.py"
    script.write_text(late + BUILD)
    done = subprocess.run([sys.executable, script], cwd=downloads, capture_output=True, text=True, check=False)
    assert (done.stdout, marks(downloads)) == ("3\n", ""), done.stderr


def test_nor_does_a_path_of_the_environment_that_names_it(tmp_path, downloads):
    script = tmp_path / "script.py"
    script.write_text(f"import os; os.environ['PYTHONPATH'] = os.pathsep.join(['', '.', {str(downloads)!r}])" + BUILD)
    done = subprocess.run([sys.executable, script], cwd=downloads, capture_output=True, text=True, check=False)
    assert (done.stdout, marks(downloads)) == ("3\n", ""), done.stderr


def test_the_command_started_by_its_modules_name_leaves_the_folder_out(downloads: Path):
    command = [sys.executable, "-m", "treadle.tools.cli", "doctor"]
    # the interpreter itself, and not Treadle, would run a sitecustomize.py
    (downloads / "sitecustomize.py").unlink()
    subprocess.run(command, cwd=downloads, capture_output=True, text=True, check=False)
    assert marks(downloads) == ""


def test_children_import_this_package_and_what_this_process_may(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    code = "import only_here, sys, treadle\nprint(only_here.answer, treadle.__file__, sys.argv[1:])"
    done = processes.run(code, 7, Path("a b"), capture_output=True, text=True)
    assert done.stdout == f"42 {PACKAGE / '__init__.py'} ['7', 'a b']\n"


def test_relative_entries_are_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", ".", "lib", str(tmp_path), os.sep])
    assert processes.search_path() == [str(tmp_path / "lib"), os.sep]


def test_a_process_that_cannot_be_started_is_a_named_error(monkeypatch):
    for path in ("", "/no/such/python"):
        monkeypatch.setattr(sys, "executable", path)
        with pytest.raises(ExecutionError, match="no process can be started"):
            processes.start("pass")


FAIL_IN_TURN = """
import os, sys
from treadle.formats.messages.errors import ExecutionError
from treadle.native import processes

events, failing = 0, -1

def hook(event, arguments):
    global events
    if failing >= 0 and (event == "subprocess.Popen" or event == "open" and isinstance(arguments[0], int)):
        events += 1
        if events - 1 == failing:
            raise OSError("it fails")

sys.addaudithook(hook)
before = os.listdir("/proc/self/fd")
for number in range(100):
    events, failing = 0, number
    try:
        print(number, processes.run("print(input())", input="what is said", capture_output=True, text=True).stdout)
        break
    except ExecutionError:
        failing = -1
        assert os.listdir("/proc/self/fd") == before, number
"""


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_no_end_of_a_pipe_stays_open_where_no_file_can_be_made_of_one():
    done = subprocess.run([sys.executable, "-c", FAIL_IN_TURN], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    number, said = done.stdout.split(maxsplit=1)
    assert (int(number) >= 3, said) == (True, "what is said\n\n")


# What starts processes, or names the interpreter to do so
STARTERS = {
    "subprocess",
    "multiprocessing",
    "pty",
    "ProcessPoolExecutor",
    "create_subprocess_exec",
    "create_subprocess_shell",
}
STARTERS_OF = {
    "os": ("fork", "forkpty", "exec", "spawn", "posix_spawn", "system", "popen", "startfile"),
    "sys": ("executable",),
}


def starters(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = {alias.name.partition(".")[0] for alias in node.names} | {getattr(node, "module", None) or ""}
            yield from names & STARTERS
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            prefixes = STARTERS_OF.get(node.value.id, ())
            if node.attr in STARTERS or (
                node.attr.startswith(prefixes) and prefixes and node.attr != "register_at_fork"
            ):
                yield f"{node.value.id}.{node.attr}"


def test_one_place_starts_processes():
    found = {name for name, path in package.modules().items() if any(starters(ast.parse(path.read_text())))}
    assert found == {
        "native/processes.py",
        "tvm/_ffi/base.py",
    }  # base.py names it in the place of TVM's library
