"""Modules: functions by name, imports, and files that hold them."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import treadle
from treadle.compiler.builder.programs import Module as Program
from treadle.compiler.builder.programs import function, op, var
from treadle.formats import bundle
from treadle.formats.messages.errors import ArgumentError, ChecksumError, FormatError, LinkerError
from treadle.tvm.modules import registry
from treadle.tvm.modules.kinds import ExecutableModule, KernelModule, system_lib
from treadle.tvm.modules.load import enabled, load_module, load_static_library
from treadle.tvm.modules.module import Module
from treadle.vm import library

X = np.arange(12, dtype=np.float32).reshape(4, 3)
LINKS = [".so", ".o", ".tar"]
needs_linker = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")


@pytest.fixture(scope="module")
def executable() -> treadle.Executable:
    x, w = var("x", (4, 3)), var("w", (3, 2))
    program = Program(main=function([x, w], op.relu(x @ w - 5.0)))
    return treadle.compile(program, params={"w": np.ones((3, 2), np.float32)})


EXPECTED = np.maximum(X @ np.ones((3, 2), np.float32) - 5, 0)


# ---- functions ----


def test_functions_are_found_by_name() -> None:
    module = Module({"add": lambda x, y: x + y, "__tvm_main__": lambda: "entry"})
    assert module["add"](1, 2) == module.get_function("add")(1, 2) == 3
    assert module.implements_function("add")
    assert module() == module.entry_func() == "entry"
    with pytest.raises(AttributeError, match="Module has no function 'nope'; it has add"):
        module["nope"]
    with pytest.raises(ValueError, match="Can only take string as function name"):
        module[3]


def test_imports_are_looked_through_where_that_is_asked_for() -> None:
    outer, inner = Module({}), Module({"f": lambda: 1})
    outer.import_module(inner)
    assert outer.imported_modules == [inner]
    assert outer.get_function("f", query_imports=True)() == 1
    assert outer.implements_function("f", query_imports=True)
    assert not outer.implements_function("f")
    with pytest.raises(AttributeError):
        outer.get_function("f")
    for circle in (lambda: inner.import_module(outer), lambda: inner.import_module(inner)):
        with pytest.raises(ArgumentError, match="Cyclic dependency"):
            circle()


def test_what_a_module_can_do() -> None:
    plain = Module({"f": len})
    assert (plain.is_runnable, plain.is_binary_serializable, plain.is_dso_exportable) == (True, False, False)
    assert plain.type_key == "functions"
    assert repr(plain).startswith("Module(functions, 0x")


def test_a_time_evaluator() -> None:
    calls, prepared = [], []
    registry.register_func("tests.prepare", prepared.append)
    try:
        module = Module({"f": calls.append})
        evaluator = module.time_evaluator(
            "f", treadle.cpu(), number=3, repeat=2, cache_flush_bytes=1 << 16, f_preproc="tests.prepare"
        )
        assert len(evaluator(7).results) == 2
        assert calls == [7] * 7
        assert prepared == [7, 7]
    finally:
        registry.remove_global_func("tests.prepare")
    with pytest.raises(ArgumentError, match="a device that exists"):
        module.time_evaluator("f", treadle.Device("cuda"))
    with pytest.raises(AttributeError, match="no function 'g'"):
        module.time_evaluator("g", treadle.cpu())


def test_functions_of_the_process_are_a_module() -> None:
    registry.register_func("mine_f", lambda: 1)
    try:
        assert system_lib("mine_")["f"]() == 1
        assert "mine_f" in system_lib().function_names()
    finally:
        registry.remove_global_func("mine_f")
    assert not system_lib("mine_").implements_function("f")


def test_what_is_enabled() -> None:
    assert [enabled(name) for name in ("cpu", "llvm", "cuda", "gpu", "vulkan", "llvm -mcpu=core-avx2")] == [
        1,
        1,
        0,
        0,
        0,
        1,
    ]
    with pytest.raises(RuntimeError, match="Unknown optional runtime 'quark'"):
        enabled("quark")


# ---- executables and kernels ----


def test_an_executable_is_a_module(executable: treadle.Executable) -> None:
    module = ExecutableModule(executable)
    np.testing.assert_array_equal(module["main"](X).numpy(), EXPECTED)
    np.testing.assert_array_equal(module(X).numpy(), EXPECTED)
    assert "func @main" in module.get_source()
    assert "define" in module.get_source("llvm")
    assert (module.is_runnable, module.is_binary_serializable, module.is_dso_exportable) == (True, True, True)


def test_its_kernels_are_functions_that_write_into_their_last_arguments(executable: treadle.Executable) -> None:
    x, y = var("x", ("n",)), var("y", ("n",))
    kernels = KernelModule(treadle.compile(Program(main=function([x, y], x + y)), embed_native=False))
    (name,) = kernels.function_names()
    result = treadle.Tensor(np.zeros(3, np.float32))
    kernels[name](np.ones(3, np.float32), np.full(3, 2, np.float32), result)
    assert result.numpy().tolist() == [3, 3, 3]
    kernels[name](np.ones(5, np.float32), np.ones(5, np.float32), larger := np.zeros(5, np.float32))
    assert larger.tolist() == [2, 2, 2, 2, 2]
    with pytest.raises(ArgumentError, match="expected 2 inputs and 1 outputs, got 1 arguments"):
        kernels[name](result)
    with pytest.raises(ValueError, match=r"argument 1: expected float32\[d0\], got float32\[4\]"):
        kernels[name](np.ones(3, np.float32), np.ones(4, np.float32), result)


# ---- files ----


@needs_linker
@pytest.mark.parametrize("suffix", LINKS)
def test_a_library_is_loaded_again(suffix: str, executable: treadle.Executable, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    ExecutableModule(executable).export_library(path)
    module = load_module(path)
    assert module.type_key == "executable"
    np.testing.assert_array_equal(module["main"](X).numpy(), EXPECTED)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]  # nothing else is left


@needs_linker
@pytest.mark.parametrize("suffix", LINKS)
def test_our_own_api_does_the_same(suffix: str, executable: treadle.Executable, tmp_path: Path) -> None:
    executable.export_library(tmp_path / f"model{suffix}")
    loaded = treadle.load(tmp_path / f"model{suffix}")
    assert loaded.as_bytes() == executable.as_bytes()
    assert all(constant.ctypes.data % 64 == 0 for constant in loaded.constants)
    np.testing.assert_array_equal(treadle.VirtualMachine(loaded)["main"](X).numpy(), EXPECTED)


@needs_linker
def test_a_shared_library_has_its_kernels_and_its_data_under_c_names(
    executable: treadle.Executable, tmp_path: Path
) -> None:
    executable.export_library(tmp_path / "model.so")
    code = f"""
import ctypes
library = ctypes.CDLL({str(tmp_path / "model.so")!r})
assert ctypes.addressof(ctypes.c_char.in_dll(library, "treadle_modules")) % 4096 == 0
for name in {executable.primitive_ops}:
    getattr(library, "treadle_" + name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@needs_linker
def test_an_object_file_can_be_linked_into_a_program(executable: treadle.Executable, tmp_path: Path) -> None:
    executable.export_library(tmp_path / "model.o")
    (tmp_path / "main.c").write_text(
        "extern const char treadle_modules[]; const char *modules(void) { return treadle_modules; }"
    )
    command = ["cc", "-shared", "-fPIC", "-o", "program.so", "main.c", "model.o", "-Wl,-z,notext", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    library = ctypes.CDLL(str(tmp_path / "program.so"))
    library.modules.restype = ctypes.c_void_p
    assert ctypes.string_at(library.modules(), len(bundle.MARKER)) == bundle.MARKER
    np.testing.assert_array_equal(
        treadle.VirtualMachine(treadle.load(tmp_path / "program.so"))["main"](X).numpy(), EXPECTED
    )


@needs_linker
def test_an_archive_is_the_object_files(executable: treadle.Executable, tmp_path: Path) -> None:
    executable.export_library(tmp_path / "one.tar")
    executable.export_library(tmp_path / "two.tar")
    with tarfile.open(tmp_path / "one.tar") as tar:
        assert tar.getnames()[0] == "devc.o"
        assert len(tar.getnames()) == 1 + len(executable.primitive_ops)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


@needs_linker
def test_modules_come_back_with_what_they_import(executable: treadle.Executable, tmp_path: Path) -> None:
    root, shared = ExecutableModule(executable), KernelModule(executable)
    middle = ExecutableModule(executable)
    root.import_module(shared)
    root.import_module(middle)
    middle.import_module(shared)
    root.export_library(tmp_path / "model.so")
    loaded = load_module(tmp_path / "model.so")
    kernels, again = loaded.imported_modules
    assert (kernels.type_key, again.type_key) == ("library", "executable")
    assert again.imported_modules == [kernels]
    assert loaded.get_function(executable.primitive_ops[0], query_imports=True)


@needs_linker
def test_kinds_of_others_are_loaded_by_who_registered_them(tmp_path: Path) -> None:
    class Mine(Module):
        type_key = "tests.mine"

        def __init__(self, text: str) -> None:
            super().__init__({"text": lambda: text})
            self.text = text

        def pieces(self) -> list:
            return [self.text.encode()]

    Mine("hello").export_library(tmp_path / "mine.so")
    with pytest.raises(FormatError, match=r"kind 'tests\.mine', for which nobody has registered a loader"):
        load_module(tmp_path / "mine.so")
    registry.register_loader("tests.mine", lambda data, trust_native: Mine(bytes(data).decode()))
    assert load_module(tmp_path / "mine.so")["text"]() == "hello"
    damaged = bytearray((tmp_path / "mine.so").read_bytes())
    damaged[damaged.index(b"hello")] ^= 1
    (tmp_path / "damaged.so").write_bytes(damaged)
    with pytest.raises(ChecksumError, match=r"tests\.mine.*is damaged"):
        load_module(tmp_path / "damaged.so")


def test_a_trdl_file_is_a_module_and_needs_no_linker(
    executable: treadle.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ExecutableModule(executable).export_library(tmp_path / "model.trdl")
    np.testing.assert_array_equal(load_module(tmp_path / "model.trdl")["main"](X).numpy(), EXPECTED)


@pytest.mark.parametrize("suffix", LINKS)
def test_without_a_linker_the_error_says_so(
    suffix: str, executable: treadle.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        LinkerError, match=r"there is none on PATH \(looked for cc, gcc, clang\).*'model\.trdl', which needs none"
    ):
        executable.export_library(tmp_path / f"model{suffix}")
    assert list(tmp_path.iterdir()) == []


@needs_linker
def test_a_linker_that_fails_is_heard(executable: treadle.Executable, tmp_path: Path) -> None:
    module = ExecutableModule(executable)
    with pytest.raises(LinkerError, match=r"cc failed; export to a \.trdl file(.|\n)*no_such_library"):
        module.export_library(tmp_path / "model.so", options=["-lno_such_library"])
    with pytest.raises(LinkerError, match="looked for no-such-compiler"):
        module.export_library(tmp_path / "model.so", cc="no-such-compiler")
    assert list(tmp_path.iterdir()) == []


@needs_linker
def test_another_linker_may_be_handed_over(executable: treadle.Executable, tmp_path: Path) -> None:
    seen: dict = {}

    def link(path: str, objects: list[str], **options: object) -> None:
        seen.update(path=path, names=[os.path.basename(each) for each in objects], options=options)
        shutil.copy(objects[0], path)

    (tmp_path / "work").mkdir()
    ExecutableModule(executable).export_library(
        tmp_path / "model.so", link, addons=["more.o"], workspace_dir=tmp_path / "work", options=["-O2"]
    )
    assert (seen["names"][0], seen["names"][-1], seen["options"]) == ("devc.o", "more.o", {"options": ["-O2"]})
    assert (tmp_path / "work" / "devc.o").exists()
    assert load_module(tmp_path / "model.so")["main"](X).shape == (4, 2)


@needs_linker
def test_a_static_library_is_linked_in(executable: treadle.Executable, tmp_path: Path) -> None:
    (tmp_path / "seven.c").write_text("int seven(void) { return 7; }")
    subprocess.run(["cc", "-fPIC", "-c", "seven.c", "-o", "seven.o"], cwd=tmp_path, check=True)
    static = load_static_library(tmp_path / "seven.o", ["seven"])
    assert (static.type_key, static.is_dso_exportable, static.implements_function("seven")) == (
        "static_library",
        True,
        True,
    )
    module = ExecutableModule(executable)
    module.import_module(static)
    module.export_library(tmp_path / "model.so")
    assert ctypes.CDLL(str(tmp_path / "model.so")).seven() == 7
    assert load_module(tmp_path / "model.so").imported_modules == []


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="kind 'functions' cannot be saved"):
        Module({"f": len}).export_library(tmp_path / "model.so")
    with pytest.raises(ArgumentError, match="there is no folder"):
        Module({}).export_library(tmp_path / "none" / "model.so")


def test_an_unknown_suffix_is_refused(executable: treadle.Executable, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"expected a suffix of \.so"):
        ExecutableModule(executable).export_library(tmp_path / "model.txt")


def test_sources_are_saved_by_suffix(executable: treadle.Executable, tmp_path: Path) -> None:
    KernelModule(executable).save(tmp_path / "kernels.ll")
    assert "define" in (tmp_path / "kernels.ll").read_text()


def test_files_that_are_not_there_or_hold_no_module(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot find file"):
        load_module(tmp_path / "none.so")
    with pytest.raises(FileNotFoundError):
        load_module(tmp_path / "none.so")
    (tmp_path / "other.so").write_bytes(b"\x7fELF" + bytes(1000))
    for read in (load_module, treadle.load):
        with pytest.raises(FormatError, match="holds no module of Treadle"):
            read(tmp_path / "other.so")


def test_formats_of_others_are_read_by_registered_functions(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    registry.register_func("runtime.module.loadfile_json", lambda path, fmt: Module({"path": lambda: path}))
    try:
        assert load_module(tmp_path / "x.json")["path"]() == str(tmp_path / "x.json")
    finally:
        registry.remove_global_func("runtime.module.loadfile_json")


@needs_linker
def test_native_code_of_a_library_is_run_if_the_user_vouches_for_it(
    executable: treadle.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable.export_library(tmp_path / "model.so")
    real = library.compiler()

    class Compiler:
        target_key = staticmethod(real.target_key)

        @staticmethod
        def build(*args: object, **options: object) -> None:
            raise ArgumentError("a kernel is built")

    monkeypatch.setattr(library, "find_kernels", lambda keys: {})  # as with an empty cache
    monkeypatch.setattr(library, "compiler", lambda: Compiler)
    trusted = load_module(tmp_path / "model.so", trust_native=True)
    np.testing.assert_array_equal(trusted["main"](X).numpy(), EXPECTED)
    with pytest.raises(ArgumentError, match="a kernel is built"):
        load_module(tmp_path / "model.so")["main"](X)
