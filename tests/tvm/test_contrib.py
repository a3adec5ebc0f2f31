"""`tvm.contrib.cc` and `tvm.contrib.tar`: the system's linker, and archives."""

import gzip
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import treadle
import treadle.tvm as tvm
from treadle.compiler.builder.programs import Module, function, op, var
from treadle.formats.messages.errors import FileError, FormatError
from treadle.tvm.contrib import cc, tar
from treadle.tvm.modules.kinds import ExecutableModule

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")


@pytest.fixture(scope="module")
def module() -> ExecutableModule:
    x = var("x", (4,))
    return ExecutableModule(treadle.compile(Module(main=function([x], op.relu(x))), embed_native=False))


def test_a_program_is_made_of_sources(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 7; }")
    cc.create_executable(str(tmp_path / "main"), str(tmp_path / "main.c"))
    assert subprocess.run([tmp_path / "main"]).returncode == 7
    assert cc.get_cc()


@pytest.mark.parametrize("name", ["model.so", "model.tar"])
def test_a_module_is_linked_by_a_function_that_is_handed_over(
    name: str, module: ExecutableModule, tmp_path: Path
) -> None:
    link = cc.cross_compiler("cc") if name.endswith(".so") else tar.tar
    module.export_library(str(tmp_path / name), link)
    x = np.array([-1, 1, -2, 2], np.float32)
    assert tvm.runtime.load_module(str(tmp_path / name))["main"](x).numpy().tolist() == [0, 1, 0, 2]


def test_archives_are_unpacked_where_they_say(module: ExecutableModule, tmp_path: Path) -> None:
    module.export_library(str(tmp_path / "model.tar"))
    tar.untar(str(tmp_path / "model.tar"), str(tmp_path / "files"))
    assert (tmp_path / "files" / "devc.o").exists()
    whole = gzip.compress((tmp_path / "model.tar").read_bytes())
    sum_of_others = whole[:-8] + bytes(4) + whole[-4:]
    for bad in (b"no archive", whole[: len(whole) // 2], whole[:500] + bytes(100) + whole[600:], sum_of_others):
        (tmp_path / "bad.tar").write_bytes(bad)
        with pytest.raises(FormatError, match="cannot be unpacked"):
            tar.untar(str(tmp_path / "bad.tar"), str(tmp_path / "files"))
    with pytest.raises(FileError, match="cannot be unpacked"):
        tar.untar(str(tmp_path / "none.tar"), str(tmp_path / "files"))
