"""What users install: the wheel and the sdist hold what they need, and README's first example runs from them in odd places.

Packages are built as pip builds them, from the files that git tracks, without a network. They use the libraries of the
environment that runs the tests.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from treadle.tools import cli
from treadle.vm import core

from . import package

ROOT = Path(__file__).parents[1]
NOBODY = 65534
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, 'build_' + sys.argv[1])(sys.argv[2]))"

# README's own text, in the package that is meant
EXAMPLE = """
import sys, treadle
assert treadle.__file__.startswith(sys.argv[1]), treadle.__file__
exec(open("example.py").read())
"""


def build(kind: str, source: Path, target: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, kind, target], cwd=source, check=True, capture_output=True, text=True, timeout=300
    )
    return target / done.stdout.splitlines()[-1]


def installed(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:  # that is what installing a wheel of Python modules is
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel, the sdist, and the wheel that is built from the sdist."""
    folder = tmp_path_factory.mktemp("packages")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "source" / name)
    sdist = build("sdist", folder / "source", folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    (folder / "again").mkdir()
    wheel = build("wheel", folder / "source", folder)
    return {"sdist": sdist, "wheel": wheel, "wheel of the sdist": build("wheel", unpacked, folder / "again")}


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename for info in archive.infolist() if info.filename.startswith("treadle/")}


@pytest.fixture
def site(built: dict[str, Path], tmp_path: Path) -> Path:
    return installed(built["wheel"], tmp_path / "site")


def python(site: Path, *arguments: object, cwd: Path, user: int | None = None, **environment: str) -> str:
    """What Python prints, with this package and the libraries of the tests."""
    interpreter = sys.executable if user is None else reachable()
    path = os.pathsep.join([str(site), sysconfig.get_path("purelib")])
    found: Mapping[str, str] = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run(
        [interpreter, "-W", "ignore", *map(str, arguments)],
        cwd=cwd,
        env=found,
        user=user,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def reachable() -> str:
    """A Python of this version that other users can run."""
    found = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    if found is None:
        pytest.skip("no Python of this version is there for other users")
    return found


def run_example(site: Path, folder: Path, user: int | None = None, **environment: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    code, printed = blocks[0]
    (folder / "example.py").write_text(code)
    if user is not None:
        os.chown(folder, user, user)
    assert python(site, "-c", EXAMPLE, site, cwd=folder, user=user, **environment) == printed


def test_the_wheel_is_what_users_need(built: dict[str, Path]) -> None:
    found = names(built["wheel"])
    assert {
        f"treadle/{name}"
        for name in ("__main__.py", "py.typed", "compiler/builder/operator_types.pyi", "tools/models/digits.onnx")
    } <= found
    for name in ("zoo", "fuzz", "bench", "race", "mutate", "tests", "setup.py"):
        assert not [each for each in found if f"treadle/{name}" in each or f"/tools/{name}" in each], name


def test_the_wheel_has_all_of_the_package_but_tools(built: dict[str, Path]) -> None:
    assert {f"treadle/{name}" for name in package.modules(without={"tools"})} <= names(built["wheel"])


@pytest.mark.skipif(
    f"{platform.machine()}-{sys.platform}" not in core.RELEASED, reason="releases have no engine for it"
)
def test_a_release_brings_the_engine_and_a_changed_one_compiles_its_own(site: Path, tmp_path: Path) -> None:
    assert {f"treadle/vm/engines/{name}" for name in core.RELEASED} == {
        f"treadle/{path.relative_to(site / 'treadle')}" for path in (site / "treadle" / "vm" / "engines").iterdir()
    }
    used = python(site, "-c", "from treadle.vm import core; print(core._released() is not None)", cwd=tmp_path)
    assert used == "True\n"
    heap = site / "treadle" / "vm" / "heap.py"
    heap.write_text(heap.read_text() + "# changed\n")
    again = python(site, "-c", "from treadle.vm import core; print(core._released() is not None)", cwd=tmp_path)
    assert again == "False\n"


def test_a_wheel_of_the_sdist_is_the_same(built: dict[str, Path]) -> None:
    assert names(built["wheel of the sdist"]) == names(built["wheel"])


@pytest.mark.parametrize("source", ["wheel", "wheel of the sdist"])
def test_the_first_example_runs_when_installed(source: str, built: dict[str, Path], tmp_path: Path) -> None:
    run_example(installed(built[source], tmp_path / "site"), tmp_path / "work")


def test_commands_run_as_a_module(site: Path, tmp_path: Path) -> None:
    assert python(site, "-m", "treadle", "--version", cwd=tmp_path).startswith("treadle ")
    assert "TREADLE_CACHE" in python(site, "-m", "treadle", "knobs", cwd=tmp_path)


def test_a_command_for_developers_says_where_it_is(site: Path, tmp_path: Path) -> None:
    script = "import sys; from treadle.tools.cli import main; sys.stderr = sys.stdout; print(main(sys.argv[1:]))"
    said = python(site, "-c", script, "bench", "models", "--threads", "1", cwd=tmp_path)
    assert "treadle bench: this is for Treadle's developers" in said
    assert "clone Treadle's repository" in said
    assert said.endswith("2\n")


def test_the_list_of_operators_is_installed(site: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    listed = python(site, "-m", "treadle", "ops", cwd=tmp_path)
    assert {"MatMul", "ai.onnx.ml.TreeEnsemble"} <= {line.split()[0] for line in listed.splitlines()}
    assert set(re.findall(r"  (native|host) ", listed)) == {"native", "host"}  # how they run lies beside, as data


def test_the_demo_runs_when_installed(site: Path, tmp_path: Path) -> None:
    assert "accuracy" in python(site, "-m", "treadle.tools.demo", cwd=tmp_path)


def test_folders_may_have_spaces_and_letters_of_any_language(built: dict[str, Path], tmp_path: Path) -> None:
    site = installed(built["wheel"], tmp_path / "mit Leerzeichen" / "Übung 中文")
    run_example(site, tmp_path / "мои модели 1")


@pytest.mark.slow
def test_the_cache_may_lie_in_such_a_folder(site: Path, tmp_path: Path) -> None:
    run_example(site, tmp_path / "work", TREADLE_CACHE=str(tmp_path / "ein Cache ß"))
    assert list((tmp_path / "ein Cache ß").rglob("*"))


@pytest.fixture
def read_only(site: Path) -> Iterator[Path]:
    places = [site, *site.rglob("*")]
    for place in places:
        place.chmod(place.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    yield site
    for place in places:
        place.chmod(place.stat().st_mode | stat.S_IWUSR)


def test_nothing_is_written_beside_the_package(read_only: Path, tmp_path: Path) -> None:
    before = sorted(read_only.rglob("*"))
    run_example(read_only, tmp_path / "work", PYTHONDONTWRITEBYTECODE="")
    assert [each for each in sorted(read_only.rglob("*")) if "__pycache__" not in each.parts] == before


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can be another user")
def test_another_user_runs_it_from_a_folder_of_roots(read_only: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o755)
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    run_example(read_only, tmp_path / "work", NOBODY, HOME=str(home), TREADLE_CACHE=str(home / "cache"))


@pytest.mark.slow
def test_a_cache_that_cannot_be_made_is_done_without(site: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run_example(site, tmp_path / "work", TREADLE_CACHE=str(tmp_path / "file" / "cache"))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_under_the_cache_is_done_without(site: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a small disk")
    try:
        run_example(site, tmp_path / "work", TREADLE_CACHE=str(disk))
    finally:
        subprocess.run(["umount", disk], check=True)


def test_who_imports_a_subpackage_does_not_import_the_compiler() -> None:
    code = "import sys; from treadle import tools, cluster; sys.exit('treadle.compiler' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_errors_are_imported_from_one_module_by_either_name() -> None:
    import treadle.errors
    from treadle.errors import FormatError

    assert treadle.errors is treadle.formats.messages.errors
    assert FormatError is treadle.formats.messages.errors.FormatError


def test_all_commands_are_installed_but_those_for_developers(site: Path, tmp_path: Path) -> None:
    """`--help` imports the modules of all commands."""
    listed = python(site, "-m", "treadle", "--help", cwd=tmp_path)
    missing = re.findall(r"^  (\S+) +for developers: in a clone", listed, re.MULTILINE)
    assert missing == [*cli._DEVELOPERS]
