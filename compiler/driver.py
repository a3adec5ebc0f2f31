"""The front door of the compiler: from a model or a module to an executable.

    executable = compile("model.onnx")

Frontend (for a model), passes, code generation; then the kernels that the machine's cache lacks are built. Nothing here
imports Numba unless there is something to build.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import formats
from ..formats import text_entries
from ..formats.decoders import BATCH, ENCODER, STEP
from ..formats.dtypes import DType
from ..formats.executable import Executable
from ..formats.extensions import needs
from ..formats.host_work import note
from ..formats.messages.calling import mapping, public, told, warn_user
from ..formats.messages.errors import (
    CompileError,
    DTypeError,
    FormatError,
    InferenceError,
    MiscompilationError,
    VerificationError,
    naming,
)
from ..formats.messages.names import near
from ..formats.program import AUTO, CPU, EXACT, PRECISION, TARGET, NativeKernel, Program, ProgramDevice
from ..formats.sections import check_device_name
from ..formats.types import TensorType
from . import bounds, effort, ir
from .batch import Batch
from .builder.anf import Node, distinct
from .codegen.functions import Generated, generate
from .decoders.batch import batch_of
from .decoders.loop import NAME as LOOP
from .decoders.loop import with_decode_loop
from .decoders.step import step_of, with_made, with_sizes_of_caches
from .forced_sizes import forced_text
from .host_work import host_primitives, loop_warning
from .ir.analysis import atoms_in, constant_bytes, tensors_in
from .named_weights import Weights
from .onnx.choice import check_choice
from .operators.paged import STORED
from .passes import Options, PageAttention, Pass, Timings, pipeline, run
from .passes.placed import Placed, with_placed
from .passes.rewriting import Rewriter
from .passes.text_entries import entries_of
from .targets.base import Backend
from .targets.choice import backend_of

OPT_LEVEL = 2


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Python's collector of cycles would look at all that a compilation makes, for a tenth of its time, and find next to
    nothing. It pauses meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@public
def compile(
    model: Any,
    *,
    params: Mapping[str, np.ndarray] | None = None,
    entry: str | Sequence[str] | None = None,
    shapes: Mapping[str, Sequence[int | str | None] | int | str] | None = None,
    target: Any = None,
    opt_level: int = OPT_LEVEL,
    precision: str | Mapping[str, str] | None = None,
    tolerance: float | None = None,
    samples: Any = None,
    measure: str | None = None,
    print_after: Iterable[str] = (),
    progress: bool = True,
    embed_native: bool = True,
    without: Collection[str] = (),
    named_weights: bool = False,
    passes: Sequence[Placed] = (),
    decode_loop: bool = False,
    cache_dtype: Any = None,
    adapters: bool | Sequence[str] = False,
    batch: str | Batch | None = None,
    dtypes: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
    max_seconds: float | None = None,
    max_memory: int | None = None,
    devices: Mapping[str, Any] | None = None,
    placement: Mapping[str, str] | None = None,
) -> Executable:
    """The executable of `model`: a path or the bytes of an ONNX file, the folder of one with its tokenizer (`treadle.text`), the
    path of an IR text (*.ir), an onnx.ModelProto, a module, a function, which becomes "main", a dict of functions, or a list of
    modules and such dicts, which are made one. What
    `torch.onnx.export` gives is taken as well, and, where their converters are installed (skl2onnx, onnxmltools), fitted models
    of scikit-learn, and those of LightGBM and XGBoost and their files: their input is one matrix of float32, "X".

    params        arrays for parameters of the entry function, by name: they become constants
    entry         the functions that are called from outside; what they do not reach is left out. By default "main", of a dict
                  all of its functions
    shapes        of an ONNX model's inputs, by name, in place of the model's own; a string is a symbolic dimension. What is said
                  of an axis that the model calls by a name holds for all axes of that name; the name itself may be given a size,
                  too: {"sequence_length": 128}
    dtypes        element types of an ONNX model's inputs, by name, in place of the model's own
    outputs       names of values of an ONNX model that are the results, in place of its own; nodes and inputs that these do not
                  depend on are left out
    target        the CPU that kernels are made for, by default this one
    opt_level     0: what code generation needs, 1: simplification and fusion, 2: layouts too
    precision     what products and convolutions compute with at opt_level 2: "float32", the default; where the CPU has
                  instructions for it "bfloat16" is up to twice as fast, with errors of some 0.5 %, "int8" four times, of 2 %. On
                  others, constant matrices are rounded, and kept in half the bytes. The names of primitives say which are narrow.
                  {"node": "bfloat16"}: those of these nodes of the model. "auto": for each node the fastest such that the results
                  stay within `tolerance`, by running the model; `executable.stats` shows what was chosen, and what it costs
    tolerance     of "auto": the largest error by `measure`; by default 0.01
    samples       of "auto": arrays by the names of inputs, or a list of such, the last third of which is kept for a check; by
                  default four from seeds
    measure       of "auto": "largest", the default: the largest difference, as a share of the largest element of each result;
                  "cosine": 1 - cosine of the angle between rows; "ranks:10" or "nearest:10": share of rows whose ten largest
                  elements, or nearest rows by cosine, are others or in another order
    print_after   names of passes; the module behind each is printed, large constants left out
    progress      says on standard error what takes long: a progress bar while kernels are built, a line for another step
    embed_native  whether the executable carries the kernels' native code
    named_weights  remember `params` and the tensors of an ONNX model, and how constants are made of them, so that a machine can
                  take others with `load_params` and `load_deltas`. The file holds them beside what is made of them. What
                  weights hold decides less then: a bias of zeros is added, too
    without       names of passes that are left out, to find what one does
    passes        of your own: [treadle.after("fold_constants", MyPass())]
    batch         of an ONNX model, a name for the size of its batch, such as "n": sizes that the exporter wrote down as they were
                  become symbolic where the batch flows, and nodes that would mix its rows are refused. `shapes` with that
                  name say which axes are the batch, by default the first of each input. A treadle.Batch tells afterwards
                  what was changed, node by node
    max_seconds, max_memory  what compiling may take: seconds, and bytes that this process holds at once above what it held before
                  (processes that build kernels aside). What passes one ends in an error that names the pass and the node; kernels
                  that were built by then stay in the cache
    devices       names of devices besides the host, and what computes there: {"gpu0": treadle.emulated()}; None is this CPU. The
                  operator `device_copy` brings a value to one, and operators are computed where their operands lie
    placement     {"node": "gpu0"}: where the operators of these nodes of the model are computed; "host" is where all begin
    cache_dtype   of a decoder with a cache: the element type of keys and values in pages, which its function of many texts
                  (`compiler/decoders/batch.py`) reads: "float16" and "bfloat16" take half the memory of
                  float32, "uint8" little more than a quarter, by codes with a scale and a zero point a row; None: as computed
    decode_loop   of a decoder with a cache: a function "generate" too, which makes a whole text (`compiler/decoders/loop.py`)

    adapters      of a decoder: its calls take low-rank adapters (`treadle.Adapter`) for linear modules of these names, such as
                  ["q_proj", "v_proj"], in its numbered layers; True: for all of them

    Raises CompileError (InferenceError, UnsupportedOperatorError, ModelError, CompileBudgetError).
    """
    is_searched = precision == AUTO
    if not is_searched and any(each is not None for each in (tolerance, samples, measure)):
        raise CompileError(f"tolerance, samples and measure are of precision='{AUTO}'; got precision={precision!r}")
    weights = Weights() if named_weights else None
    with (
        naming("compiling"),
        bounds.bounded(max_seconds, max_memory),
        bounds.telling(progress),
    ):
        text = encoder = None
        if isinstance(model, (str, os.PathLike)) and os.path.isdir(model):
            folder = importlib.import_module(formats.text_folders).read(model)
            model, text, outputs, encoder = folder.model, folder.text, outputs or folder.outputs, folder.encoder
        backend = backend_of(target, EXACT if is_searched else precision)
        if (is_searched or backend.narrowing.is_any) and opt_level in (0, 1):
            raise CompileError(
                f"precision={precision or backend.narrowing.precision!r} is made with the layouts of opt_level={OPT_LEVEL}; "
                f"got opt_level={opt_level}"
            )
        built = _built(model, entry)
        if entry is None:
            entry = (built.entries if built is not None else ()) or "main"
        entries = _entries(entry)
        _check_adapters(adapters, built)
        stored = _cache_dtype(cache_dtype)
        _check_options(params, shapes, dtypes, outputs, built, print_after=print_after, without=without, passes=passes)
        asked = None if batch is None else Batch.of(batch)
        if asked is not None and built is not None:
            raise CompileError("batch: this is for ONNX models; the variables of a Module have their own sizes")
        with _uncollected():
            choice = {"shapes": shapes, "dtypes": dtypes, "outputs": outputs, "adapters": adapters}
            module = built or _import(model, entries[0], weights, asked, **choice)
            if encoder is not None:
                function = _import(encoder, ENCODER, None, None).functions[ENCODER]
                module = dataclasses.replace(module, functions={**module.functions, ENCODER: function})
                module, entries = _with_result_names(module, [ENCODER]), (*entries, ENCODER)
            if opt_level or decode_loop:
                module = _with_result_names(module, entries)
                makers = {STEP: step_of}
                if opt_level and PageAttention.name not in without:  # which makes it that of many texts
                    makers[BATCH] = batch_of
                for name in entries:
                    module = with_made(module, name, makers)
                more = (name + suffix for name in entries for suffix in (STEP, BATCH))
                entries += tuple(name for name in more if name in module.functions)
            if decode_loop:
                module, entries = with_decode_loop(module, entries[0]), (*entries, LOOP)
            compilation = Compilation(
                module,
                cache_dtype=stored,
                params=params,
                entries=entries,
                opt_level=opt_level,
                without=without,
                weights=weights,
                passes=passes,
                print_after=print_after,
                devices=devices,
                placement=placement,
            )

        def made(backend: Backend) -> Executable:
            generated = compilation.generated(backend)
            executable = Executable(generated.program, weights=generated.weights).with_text_model(text)
            return with_kernels(executable, backend, progress) if embed_native else executable

        if not is_searched:
            return made(backend)
        search = importlib.import_module(formats.precision_search)
        compilation.begin([backend.with_precision(each) for each in backend.precisions])
        found: Executable = search.chosen(made, backend, entries[0], tolerance, samples, measure)
        return found


def _cache_dtype(given: Any) -> DType | None:
    """Raises CompileError for anything but the name of a type that pages have."""
    if given is None:
        return None
    with contextlib.suppress(DTypeError):
        if (found := DType.of(given)) in STORED:
            return found
    names = ", ".join(sorted(each.name for each in STORED))
    raise CompileError(
        f"cache_dtype={given!r}: expected one of {names}, or None: as the decoder computes keys and values"
    )


def module_of(model: Any, entry: str | None = None) -> tuple[ir.Module, str]:
    """The module of anything that `compile` takes, with names for the results of its entry, and that one's name."""
    with naming("reading the model"):
        built = _built(model, entry)
        name = entry or (built.entries[:1] if built is not None and built.entries else ("main",))[0]
        return _with_result_names(built or _import(model, name, Weights(), None), [name]), name


def _built(model: Any, entry: str | Sequence[str] | None) -> ir.Module | None:
    """The module of what was built in Python; None for a model."""
    if isinstance(model, (ir.Module, str, os.PathLike, bytes, bytearray, memoryview)):
        return model if isinstance(model, ir.Module) else None
    if hasattr(model, "__treadle_module__"):  # of another front door, which says what it is here
        return model.__treadle_module__()
    from .builder.programs import FunctionExpression, Module

    if isinstance(model, FunctionExpression):
        return Module({entry if isinstance(entry, str) else "main": model})
    if isinstance(model, Mapping):
        return Module(model)
    return Module(*model) if isinstance(model, (list, tuple)) else None


def _entries(entry: Any) -> tuple[str, ...]:
    """Raises CompileError for anything but names of functions."""
    names = (entry,) if isinstance(entry, str) else tuple(entry) if isinstance(entry, Iterable) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise CompileError(f"entry={entry!r}: expected the name of a function, or a list of names")
    return names


def _check_options(params: Any, shapes: Any, dtypes: Any, outputs: Any, built: ir.Module | None, **passes: Any) -> None:
    """Raises CompileError for options of the wrong kind, each by its name."""
    for name, value in (("params", params), ("shapes", shapes)):
        if value is not None and not isinstance(value, Mapping):
            raise CompileError(f"{name}={value!r}: expected a mapping by name, or None")
    check_choice(dtypes, outputs)
    for name, value in (("shapes", shapes), ("dtypes", dtypes), ("outputs", outputs)):
        if value and built is not None:
            raise CompileError(f"{name}: these are for ONNX models; the variables of a Module have their own")
    for name, value in passes.items():
        if isinstance(value, str) or not isinstance(value, Iterable):
            example = f", such as {[value]}" if isinstance(value, str) else ""
            raise CompileError(f"{name}={value!r}: expected a list of passes{example}")


def _check_adapters(adapters: Any, built: ir.Module | None) -> None:
    """Raises CompileError."""
    is_list = isinstance(adapters, Sequence) and not isinstance(adapters, (str, bytes))
    if not isinstance(adapters, bool) and not (is_list and all(isinstance(each, str) for each in adapters)):
        raise CompileError(f"adapters={adapters!r}: expected True, or names of modules such as ['q_proj', 'v_proj']")
    if adapters and built is not None:
        raise CompileError("adapters: these are for ONNX models")


def compile_module(
    module: ir.Module,
    *,
    target: Any = None,
    timings: Timings | None = None,
    **options: Any,
) -> Generated:
    """The program of a module, and the planner's reports; no kernel is built. `options` are those of `Compilation`."""
    return Compilation(module, **options).generated(backend_of(target), timings)


class Compilation:
    """A module to be compiled for one backend, or for several that share most passes.

    `without` names passes that are left out, to find what one does. `weights` are those of the module that keep their names;
    `params` join them.
    """

    def __init__(
        self,
        module: ir.Module,
        *,
        params: Mapping[str, np.ndarray] | None = None,
        entries: Sequence[str] = ("main",),
        opt_level: int = OPT_LEVEL,
        print_after: Iterable[str] = (),
        without: Collection[str] = (),
        weights: Weights | None = None,
        passes: Sequence[Placed] = (),
        devices: Mapping[str, Any] | None = None,
        placement: Mapping[str, str] | None = None,
        cache_dtype: DType | None = None,
    ) -> None:
        if missing := [name for name in entries if name not in module.functions]:
            known = ", ".join(module.functions) or "no functions"
            raise CompileError(
                f"there is no function {missing[0]!r} to start at; the module has {known}"
                f"{near(missing[0], module.functions)}"
            )
        if generic := [name for name in entries if module.functions[name].is_generic]:
            raise CompileError(
                f"entry {generic[0]!r} is generic: give its parameters types without variables, or call it from another function"
            )
        if params:
            module = bind_parameters(module, entries[0], params, weights)
        _check_on_host(module)
        self._devices, self._placement = _device_backends(devices), placement or {}
        self._cache_dtype = cache_dtype
        self._module = _with_result_names(module, entries)
        self._entries, self._opt_level, self._print_after = entries, opt_level, tuple(print_after)
        self._without, self._weights, self._passes = without, weights, passes
        self._begun: list[Pass] = []  # the passes that have run on the module
        self._settled = frozenset[str]()  # weights by then

    @_uncollected()
    def begin(self, backends: Sequence[Backend]) -> None:
        """Runs the passes that come first for all of these backends, once for all of them."""
        first, *others = map(self._steps, backends)
        for each in others:
            same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, each, strict=False))
            first = [step for step, _ in same]
        with effort.bounded(constant_bytes(self._module)):
            printed = [name for name in self._print_after if name == "all" or name in {step.name for step in first}]
            self._module = run(self._module, first, print_after=printed)
        self._begun = first
        if self._weights is not None:
            self._settled = self._weights.settled

    @_uncollected()
    def generated(self, backend: Backend, timings: Timings | None = None) -> Generated:
        """The program for a backend, which begins as those that `begin` was given."""
        steps, weights = self._steps(backend), self._weights
        assert steps[: len(self._begun)] == self._begun
        if weights is not None:
            weights.settled = self._settled
        with effort.bounded(constant_bytes(self._module)):
            module = run(self._module, steps, len(self._begun), print_after=self._print_after, timings=timings)
        bounds.step("code generation")
        metadata = {"entry": self._entries[0], "opt_level": str(self._opt_level), "producer": formats.producer}
        if backend.narrowing.is_any:
            metadata[PRECISION] = backend.narrowing.note
            if unknown := backend.narrowing.unknown:
                met = ", ".join(backend.narrowing.met) or "none"
                raise CompileError(
                    f"precision: no node {unknown[0]!r} may be narrow; these may: {met}"
                    f"{near(unknown[0], backend.narrowing.met)}"
                )
        named = [ProgramDevice(name, CPU if each is None else each.note) for name, each in self._devices.items()]
        generated = generate(module, metadata, named)
        program, made = generated.program, generated.constants
        if weights is not None:
            constants, made = weights.kept(program, made)
            program = dataclasses.replace(program, constants=constants)
            generated = dataclasses.replace(generated, program=program, constants=made)
        hosted = host_primitives(program, backend.supports)
        made_for = {TARGET: backend.note} if backend.note else {}
        if noted := needs(program.primitives) | note(hosted) | text_entries.note(entries_of(module)) | made_for:
            program = dataclasses.replace(program, metadata={**program.metadata, **noted})
            generated = dataclasses.replace(generated, program=program)
        bounds.step("verification")
        check_made(program)
        if warning := loop_warning(hosted):
            warn_user(warning)
        return generated if weights is None else dataclasses.replace(generated, weights=weights.table(made))

    def _steps(self, backend: Backend) -> list[Pass]:
        cpu = backend if not backend.note or None not in self._devices.values() else backend_of()
        devices = {name: each or cpu for name, each in self._devices.items()}
        options = Options(tuple(self._entries), backend, devices, self._placement, self._cache_dtype)
        return with_placed(pipeline(self._opt_level, options, self._without), self._passes, self._entries)


def _device_backends(devices: Mapping[str, Any] | None) -> dict[str, Backend | None]:
    """What computes on each device, None for the CPU. Raises CompileError for names and targets that cannot be."""
    found: dict[str, Backend | None] = {}
    for name, target in (mapping("devices", devices, "targets by the names of devices") if devices else {}).items():
        try:
            check_device_name(name)
        except FormatError as error:
            raise CompileError(f"devices: {error.message}") from None
        found[name] = backend = None if target is None else backend_of(target)
        if backend is not None and not backend.note:
            raise CompileError(
                f"devices: {name}={target!r}: expected a target that says what computes there, such as treadle.emulated(), or "
                "None for the CPU that the program is made for"
            )
    return found


def _check_on_host(module: ir.Module) -> None:
    """Raises CompileError for types that say where a value lies, as the pass `devices` has them say."""
    for name, function in module.functions.items():
        for param in function.params:
            if param.type is not None and (there := next((t for t in tensors_in(param.type) if t.device), None)):
                raise CompileError(
                    f"parameter {param.name!r} is on the device {there.device!r}: what functions take and give lies on the host; "
                    f"device_copy(x, device={there.device!r}) in its body brings it there",
                    function=name,
                )


def check_made(program: Program) -> None:
    """Verifies a program that the compiler made, as the machine will. Raises MiscompilationError, which names the node."""
    from ..vm.verify.verifier import verify
    from .check import check_definition

    function, node = None, None
    try:
        verify(program)
        for primitive in program.primitives:
            function, node = (
                f"primitive {primitive.name}",
                next((n.origin for n in primitive.definition.nodes if n.origin), None),
            )
            check_definition(primitive.definition)
    except (VerificationError, InferenceError) as error:
        raise MiscompilationError(
            f"Treadle made a program that its own verifier refuses ({error.message}). This is a fault of Treadle, not of the "
            "model; please report it with this message, Treadle's version, and the model or what "
            "treadle.compile(…, print_after=['infer_types']) prints of it. Another opt_level may do meanwhile",
            function=error.function or function,
            instruction=error.instruction,
            node=error.node or node,
        ) from None


def _with_result_names(module: ir.Module, names: Sequence[str]) -> ir.Module:
    named = {name: named_results(module.functions[name]) for name in names if name in module.functions}
    return dataclasses.replace(module, functions={**module.functions, **named})


def named_results(function: ir.Function) -> ir.Function:
    """The function, whose result, or each part of a tuple that is made at the end, is called what its variable is, unless the
    model has names for them."""
    body = function.body
    if function.result_names:
        return function
    result: tuple[ir.Atom, ...] = (body.result,)
    if body.bindings and body.bindings[-1].var is body.result and isinstance(body.bindings[-1].value, ir.MakeTuple):
        result = body.bindings[-1].value.fields
    names = [atom.name for atom in result if isinstance(atom, ir.Var) and atom.name]
    return dataclasses.replace(function, result_names=distinct(names)) if len(names) == len(result) else function


def bind_parameters(
    module: ir.Module, name: str, params: Mapping[str, np.ndarray], weights: Weights | None = None
) -> ir.Module:
    """`module` with parameters of one function replaced by constants, which are `weights` if these are given. Raises CompileError
    for one that does not fit."""
    function = module.functions[name]
    by_name = {param.name: param for param in function.params}
    rewriter = Rewriter(module)
    for key, value in params.items():
        if key not in by_name:
            known = ", ".join(by_name) or "none"
            raise CompileError(
                f"{name!r} has no parameter {key!r}; its parameters: {known}{near(key, by_name)}", function=name
            )
        array = _array_for(by_name[key], np.asarray(value), name)
        rewriter.atoms[by_name[key]] = ir.Constant(array) if weights is None else weights.add(key, array)
    kept = tuple(param for param in function.params if param.name not in params)
    bound = dataclasses.replace(rewriter.function(function), params=kept)
    return dataclasses.replace(module, functions={**module.functions, name: bound})


def unbind_weights(module: ir.Module, name: str) -> tuple[ir.Module, dict[str, np.ndarray]]:
    """The other way: `module` with the named constants of one function as parameters after its own, and their arrays. What
    something was already decided by, or computed of, stays a constant."""
    function = module.functions[name]
    weights = [atom for atom in dict.fromkeys(atoms_in(function.body)) if isinstance(atom, ir.Weight)]
    fixed = {each for weight in weights if weight.made for each in weight.names}
    fixed |= {each for weight in weights for each in weight.settled}
    rewriter = _WeightsAsParameters(module)
    arrays: dict[str, np.ndarray] = {}
    for weight in weights:
        (weight_name, *_) = weight.names
        if not weight.made and weight_name not in fixed:
            rewriter.params[weight] = ir.Var(weight_name, weight.type)
            arrays[weight_name] = weight.array
    unbound = rewriter.function(function)
    unbound = dataclasses.replace(unbound, params=(*unbound.params, *rewriter.params.values()))
    return dataclasses.replace(module, functions={**module.functions, name: unbound}), arrays


class _WeightsAsParameters(Rewriter):
    def __init__(self, module: ir.Module) -> None:
        super().__init__(module)
        self.params: dict[ir.Atom, ir.Var] = {}

    def with_new_operands(self, binding: ir.Binding) -> ir.Binding:
        return dataclasses.replace(binding, value=ir.map_atoms(binding.value, self.atom, self.block))

    def atom(self, atom: ir.Atom) -> ir.Atom:
        return self.params.get(atom) or super().atom(atom)


def _array_for(param: ir.Var, array: np.ndarray, function: str) -> np.ndarray:
    wanted = param.type
    if not isinstance(wanted, TensorType):
        raise CompileError(f"parameter {param.name!r} is {wanted}, not a tensor, and takes no array", function=function)
    got = TensorType(DType.of(array.dtype), array.shape)
    fits = got.dtype is wanted.dtype and got.rank == wanted.rank
    if not fits or any(
        isinstance(want, int) and want != have for want, have in zip(wanted.shape, array.shape, strict=True)
    ):
        raise CompileError(f"parameter {param.name!r}: expected {wanted}, got {got}", function=function)
    array = np.ascontiguousarray(array).reshape(array.shape).copy()
    array.flags.writeable = False
    return array


def _instead_of(model: Any) -> str:
    """Advice about a value that is often mistaken for a model."""
    if isinstance(model, Node):
        return "; function([x, …], expression) makes a function of an expression"
    if isinstance(model, Executable):
        return "; an executable is compiled already: treadle.VirtualMachine(executable) runs it"
    if isinstance(getattr(model, "executable", None), Executable):
        return "; machine.executable is what was compiled"
    if callable(getattr(model, "read", None)):
        return "; of an open file, compile what .read() gives"
    if callable(model):
        return "; a Python function is called with variables: function([x], f(x))"
    return "; of a graph, compile the model that holds it" if type(model).__name__ == "GraphProto" else ""


def _import(
    model: Any,
    entry: str,
    weights: Weights | None,
    batch: Batch | None,
    **choice: Any,
) -> ir.Module:
    from .onnx.converters import as_onnx

    model = as_onnx(model)
    if not (isinstance(model, (str, os.PathLike, bytes, bytearray, memoryview)) or hasattr(model, "graph")):
        raise CompileError(
            f"cannot compile {told(model)}; expected a path, the bytes of an ONNX file, an onnx.ModelProto or a Module"
            f"{_instead_of(model)}"
        )
    bounds.step("the import of the model")
    if isinstance(model, (str, os.PathLike)) and Path(model).suffix == IR_SUFFIX:
        if any(choice.values()) or batch:
            raise CompileError(
                f"{os.fspath(model)}: shapes, dtypes, outputs, adapters and batch are for ONNX models; an IR text has its own"
            )
        return read_module(model)
    try:
        from .onnx.importer import from_onnx

        module = from_onnx(model, entry=entry, weights=weights, batch=batch, **choice)
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise CompileError("ONNX models are read by the package onnx: pip install 'treadle[onnx]'") from None
    module = with_sizes_of_caches(module, entry)
    if forced := forced_text(module.functions[entry]):
        warn_user(forced)
    return module


IR_SUFFIX = ".ir"  # of files that hold a text of the IR


def read_module(path: str | os.PathLike) -> ir.Module:
    """The module in a file of the IR's text. Raises ParseError, FormatError for a file that is not text, FileError."""
    from ..formats.text.text_files import read_text
    from .ir.text import parse_module

    return parse_module(read_text(path), folder=Path(path).parent)


def with_kernels(executable: Executable, target: Any = None, progress: bool = True) -> Executable:
    """`executable` with the native code of its primitives; those without a native lowering will be host operators."""

    backend = backend_of(target)
    program = executable.program
    definitions = [
        primitive.definition
        for number, primitive in enumerate(program.primitives)
        if not primitive.device or not program.target_of(number)
    ]
    bounds.step("building kernels")
    with bounds.naming_build():
        built = backend.build(definitions, progress, bounds.seconds_left())
    kernels = {
        kernel.key: NativeKernel(kernel.code, kernel.words, kernel.scratch_bytes, kernel.nanoseconds)
        for kernel in built
        if kernel is not None
    }
    return executable.with_native({backend.key: kernels})
