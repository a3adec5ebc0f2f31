"""TVM's own tests, run against `treadle.tvm`: a line for each, which says that it passes, or why it cannot.

    python -m treadle.tools.dev.tvm_tests /path/to/tvm tests/python/relay/test_vm.py …
    python -m treadle.tools.dev.tvm_tests /path/to/tvm/.git --tag v0.14.0 tests/python/relay/test_vm.py …

The first argument is a folder with TVM's sources, or a git directory, of which `--tag` says the version; TVM's files
are never part of this repository. Each file runs in a process of its own, in which `tvm` is `treadle.tvm`. What a test
needs and Treadle does not have, as TE schedules, a GPU or another compiler, is told apart from failures by `CANNOT`; what it
wants that is otherwise here on purpose, by `DIFFERS`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ...native import processes

# the tests that issue 19 names, by the version of TVM that has them
DEFAULT = {
    "v0.14.0": (
        "tests/python/relay/test_vm.py",
        "tests/python/relay/test_vm_serialization.py",
        "tests/python/relay/test_param_dict.py",
        *(
            f"tests/python/unittest/test_runtime_{name}.py"
            for name in (
                *("container", "measure", "dlpack", "graph", "graph_debug"),
                *("vm_profiler", "profiling", "module_load", "module_based_interface"),
            )
        ),
        *(f"tests/python/all-platform-minimal-test/test_runtime_{name}.py" for name in ("ndarray", "packed_func")),
    ),
    "v0.18.0": tuple(
        f"tests/python/relax/{name}.py" for name in ("test_vm_execbuilder", "test_vm_instrument", "test_vm_profiler")
    ),
}

# what an error's text tells of a test that is not about these systems → the reason
CANNOT = (
    (
        r"te\.(placeholder|compute|create_schedule|thread_axis|extern|create_prim_func|sum|reduce_axis)",
        "needs TE schedules",
    ),
    (r"tvm\.[\w.]+ is not here: Treadle's compiler makes", "needs TE schedules"),
    (r"tir' has no attribute|decl_buffer", "needs TIR"),
    (r"no attribute '(placeholder|compute|create_schedule|create_prim_func|extern)'", "needs TE schedules"),
    (r"of TIR\b|got a Missing|TE schedules", "needs TIR"),
    (r"tvm\.(topi|autotvm|auto_scheduler|meta_schedule|micro|driver|dlight|tir\.\w+)\b", "needs TVM's own compiler"),
    (r"no attribute 'cblas'", "needs TVM's own compiler"),
    (r"tvm\.rpc\.(tracker|proxy)\b", "needs a tracker of devices"),
    (
        r"treadle\.tvm has no tvm\.relay\.(collage|quantize|frontend|debug|backend\.(aot|utils|\w+_codegen))",
        "needs TVM's own compiler",
    ),
    (r"tvm\.relay\.transform\.\w+ is not here", "needs a pass that is refused by name"),
    (r"no attribute 'max_function_args'", "needs the limits of GPUs"),
    (r"shape_func", "looks at TVM's own IR"),
    (r"programs here have no references|gradient\.rly", "needs references, which TVM's VM did not run"),
    (r"a step of TVM's compiler|function_metadata|VirtualDevice|get_source\('c'\)", "needs TVM's own compiler"),
    (r"does not exist here; there is cpu", "needs a GPU"),
    (r"No module named '(?!tvm|treadle)(\w+)'", "needs a package that is not installed"),
    (r"nvcc|no CUDA device|there is no cuda", "needs a GPU"),
    (r"ccompiler", "needs TVM's own compiler"),
    (r"tvm\.relay\.quantize is not here|pipeline_executor_build|example_target_hook", "needs TVM's own compiler"),
    (r"contrib_\w+_nchwc is not here", "needs an operator that TVM's passes put in the place of another"),
    (r"NOT_IMPLEMENTED .* for \w+\(2[1-9]\)", "onnxruntime does not know this version of ONNX"),
    (r"'-c', .import tvm", "imports TVM in a process of its own"),
    (r"object_use_count", "counts the references that C++ holds"),
    (r"ffi_testing\.cc", "looks for a C++ file's name in an error"),
    (r"global function testing\.|runtime\._ffi_api", "needs functions that TVM has in C++ for this test"),
)

# tests that want what Treadle does otherwise on purpose, by file and name → why
_SHAPES = "gives a float32[41] for a float32[1]: shapes of arguments are checked"
_TYPES = "reads elements of one type as those of another: element types are checked"
_WEIGHTS = "looks at the shapes of TVM's packed weights"
_INSTRUCTIONS = "counts instructions that Treadle's passes make away with"
DIFFERS = {
    "test_vm.py::test_tuple_fst": _SHAPES,
    "test_vm.py::test_tuple_second": _SHAPES,
    "test_vm_serialization.py::test_tuple": _SHAPES,
    "test_vm.py::test_vm_reshape_tensor": _INSTRUCTIONS,
    "test_vm.py::test_vm_reshape_and_copy": _INSTRUCTIONS,
    "test_vm_instrument.py::test_conv2d_cpu": "looks for matmul alone: what is built is fused",
    "test_runtime_graph_debug.py::test_multiple_output": _WEIGHTS,
    "test_runtime_module_based_interface.py::test_cpu_get_graph_params_compare": _WEIGHTS,
    "test_backend_graph_executor.py::test_reshape_nop": "looks at the storage that TVM's planner shares",
    "test_external_codegen.py::test_extern_gcc_single_op_int": _TYPES,
    "test_forward.py::test_reshape": _TYPES,
    "test_forward.py::test_double_reshape": _TYPES,
    "test_forward.py::test_shape": _TYPES,
    "test_any.py::test_any_concat": "wants less to be known of a shape than is",
    "test_ir_module.py::test_constructor_tag_round_trip": "wants tags that are hashes of types' names",
    "test_ir_module.py::test_constructor_tag_differences": "wants tags that are hashes of types' names",
}

REFERENCES = "python/tvm/topi"  # what TVM's tests compare with: NumPy's functions, which are read from TVM's sources
HELPERS = "tests/python/relay/utils"  # what several folders of tests import
TIMEOUT = 900  # seconds for a file


def sources(source: Path, tag: str | None, files: Sequence[str], into: Path) -> Path:
    """A folder with the tests: `source` itself, or what `git archive` gives of it."""
    if tag is None and not (source / "HEAD").exists():
        return source
    git = ["git", f"--git-dir={source}"]
    listed = processes.run_program([*git, "ls-tree", f"refs/tags/{tag}", REFERENCES], capture_output=True)
    references = {REFERENCES} if listed.stdout else set()  # which older releases have elsewhere
    helpers = processes.run_program([*git, "ls-tree", f"refs/tags/{tag}", HELPERS], capture_output=True)
    references |= {HELPERS} if helpers.stdout else set()
    folders = sorted({str(Path(file).parent) for file in files} | references)
    archive = processes.run_program([*git, "archive", f"refs/tags/{tag}", *folders], capture_output=True)
    archive.check_returncode()
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(into, filter="data")
    return into


def run_file(folder: Path, file: str, selected: str = "") -> list[dict[str, str]]:
    """The outcome of each test of a file: its name, "passes", "cannot" or "fails", and why."""
    if not (folder / file).exists():
        return [{"name": Path(file).name, "outcome": "fails", "why": "there is no such file"}]
    with tempfile.TemporaryDirectory() as temporary:
        results = Path(temporary) / "results.json"
        module = f"{__package__}.tvm_tests_child"
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        try:
            done = processes.run(
                processes.module(module),
                *(results, file, *([selected] if selected else [])),
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
            )
        except processes.TimeoutExpired:
            return [{"name": file, "outcome": "fails", "why": f"it took more than {TIMEOUT} s"}]
        if not results.exists():
            last = (done.stderr or done.stdout).strip().splitlines()[-1:] or [""]
            return [{"name": file, "outcome": "fails", "why": f"the process ended with {done.returncode}: {last[0]}"}]
        found = json.loads(results.read_text())
    return [judged(Path(file).name, each) for each in found]


def judged(file: str, result: dict[str, str]) -> dict[str, str]:
    """A failure that says what it lacks, and lacks what is not part of these systems, is one that cannot pass; one of a test that
    wants what is otherwise here on purpose differs."""
    if result["outcome"] != "fails":
        return result
    reason = DIFFERS.get(f"{file}::{result['name'].partition('[')[0]}")
    if reason is not None:
        return {**result, "outcome": "differs", "why": f"{reason}: {result['why']}"}
    for pattern, reason in CANNOT:
        if re.search(pattern, result["why"]):
            return {**result, "outcome": "cannot", "why": f"{reason}: {result['why']}"}
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a line for each test and a sum. 1 if a test fails that could pass."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="a folder with TVM's sources, or a git directory")
    parser.add_argument("files", nargs="*", help="test files; by default those of issue 19 for the tag")
    parser.add_argument("--tag", help="the version, where the source is a git directory")
    parser.add_argument("-k", default="", help="only tests whose names contain this")
    options = parser.parse_intermixed_args(argv)
    is_git = (options.source / "HEAD").exists()
    tag = options.tag or ("v0.14.0" if is_git else None)
    files = options.files or DEFAULT[tag or "v0.14.0"]
    counts = {"passes": 0, "cannot": 0, "differs": 0, "fails": 0}
    with tempfile.TemporaryDirectory() as temporary:
        folder = sources(options.source.resolve(), tag, files, Path(temporary))
        for file in files:
            for result in run_file(folder, file, options.k):
                counts[result["outcome"]] += 1
                name = f"{Path(file).name}::{result['name']}"
                print(f"{result['outcome']:7} {name}{'  ' + result['why'] if result['why'] else ''}", flush=True)
    able = sum(counts.values()) - counts["cannot"]
    print(f"{counts['passes']} of {able} pass; {counts['differs']} differ, {counts['cannot']} cannot")
    return 1 if counts["fails"] else 0


if __name__ == "__main__":
    sys.exit(main())
