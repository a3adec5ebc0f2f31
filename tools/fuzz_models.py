"""Hostile ONNX models, compiled: damaged bytes, absurd sizes, cycles, strange paths, deep nesting, constants without end.

    python -m treadle.tools.fuzz_models --count 100000 --log models.log

Model `number` is a function of the seed and its number: `--only NUMBER` tries one again. Each is compiled in a process that
may be lost. What must not happen: a crash, an error that is not Treadle's, more processor time than `SECONDS`, more memory than
`MEMORY`.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import queue
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import IO, Any

import numpy as np

from ..formats.errors import MiscompilationError, TreadleError
from ..vm import processes
from .fuzz_targets import is_fault, read_corpus
from .mutate import mutate_bytes

SECONDS = 15.0  # of processor time for a model: `compiler/effort.py` allows some 6 s, by estimates
MEMORY = 2 << 30  # bytes above what there was: twice what folding may make (`limits.FOLDED_BYTES_IN_ALL`)
_ADDRESSES = 16 << 30  # bytes of address space: what would take the machine's memory fails instead
_WAIT = 240.0  # seconds without a word from a process, on a busy machine, after which it hangs

_SIZES = (
    -(1 << 63),
    -(1 << 31),
    -2,
    -1,
    0,
    1,
    2,
    3,
    7,
    1 << 16,
    1 << 31,
    (1 << 31) - 1,
    1 << 40,
    (1 << 47) - 1,
    (1 << 63) - 1,
)
# fmt: off
_OPERATORS = (
    "Expand", "Tile", "ConstantOfShape", "Range", "Reshape", "Concat", "Slice", "Pad", "Resize", "Conv",
    "ConvTranspose",
    "MaxPool", "Gather", "GatherND", "ScatterND", "OneHot", "Loop", "Scan", "If", "Split", "Transpose", "MatMul", "Gemm",
    "Einsum",
    "LSTM", "TopK", "NonZero", "CumSum", "Cast", "DFT", "STFT", "EyeLike", "Trilu", "Upsample", "Squeeze",
    "Unsqueeze",
    "QuantizeLinear", "DequantizeLinear", "Attention",
    "GridSample", "Col2Im", "BlackmanWindow", "MelWeightMatrix", "RandomNormal",
)
# fmt: on
_PATHS = ("../../etc/passwd", "/dev/zero", "/dev/stdin", "", ".", "..", "a\0b", "x" * 5000, "/proc/self/mem", "m.onnx")


# ---- what is changed ----


def _node(random: Random, model: Any) -> Any:
    return random.choice(model.graph.node) if model.graph.node else model.graph.node.add()


def _attribute(random: Random, model: Any) -> None:
    node = _node(random, model)
    if not node.attribute:
        node.attribute.add(name=random.choice(("axis", "axes", "shape", "to", "kernel_shape")), type=2)
    attribute = random.choice(node.attribute)
    kind = random.randrange(4)
    if attribute.ints and kind:
        attribute.ints[random.randrange(len(attribute.ints))] = random.choice(_SIZES)
    elif kind == 1:
        attribute.type = random.randrange(15)
    elif kind == 2:
        attribute.ints.extend([random.choice(_SIZES)] * random.choice((1, 5, 1000)))
    else:
        attribute.i = random.choice(_SIZES)


def _names(random: Random, model: Any) -> None:
    """Inputs that are others, or made later: cycles, values of other graphs, none at all."""
    node = _node(random, model)
    names = [
        *(name for each in model.graph.node for name in each.output),
        *(t.name for t in model.graph.initializer),
        "",
        "é",
    ]
    if node.input and random.random() < 0.7:
        node.input[random.randrange(len(node.input))] = random.choice(names)
    elif node.output and random.random() < 0.3:
        node.output[0] = random.choice(names)
    else:
        node.input.append(random.choice(names))


def _operator(random: Random, model: Any) -> None:
    node = _node(random, model)
    node.op_type = random.choice((*_OPERATORS, "", "É", "x" * 10000))
    if random.random() < 0.1:
        node.domain = random.choice(("com.microsoft", "ai.onnx.ml", "nobody", "ai.onnx"))


def _sizes(random: Random, model: Any) -> None:
    """Of inputs, and of tensors that have little data for them."""
    infos = [*model.graph.input, *model.graph.output]
    if infos and random.random() < 0.5:
        dims = random.choice(infos).type.tensor_type.shape.dim
        if not dims or random.random() < 0.2:
            dims.add()
        dim = random.choice(dims)
        if random.random() < 0.5:
            dim.dim_value = random.choice(_SIZES)
        else:
            dim.dim_param = random.choice(("n", "n*n*n*n", "1" * 4000, "(" * 3000, "-n", "n//0", "max(n,n)", "é"))
    elif model.graph.initializer:
        dims = random.choice(model.graph.initializer).dims
        if dims and random.random() < 0.8:
            dims[random.randrange(len(dims))] = random.choice(_SIZES)
        else:
            dims.extend([random.choice(_SIZES)] * random.choice((1, 3, 40)))


def _tensor(random: Random, model: Any) -> None:
    """Other elements, another type, other places."""
    if not model.graph.initializer:
        return
    tensor = random.choice(model.graph.initializer)
    kind = random.randrange(4)
    if kind == 0:
        tensor.data_type = random.randrange(30)
    elif kind == 1:
        tensor.raw_data = tensor.raw_data[: random.randrange(len(tensor.raw_data) + 1)]
    elif kind == 2 and tensor.data_type == 7:
        count = max(1, int(np.prod(list(tensor.dims) or [1]))) if all(0 <= dim < 100 for dim in tensor.dims) else 1
        tensor.raw_data = np.array([random.choice(_SIZES) for _ in range(min(count, 1000))], np.int64).tobytes()
    else:
        tensor.data_location = 1
        fields = {"location": random.choice(_PATHS), "offset": random.choice(_SIZES), "length": random.choice(_SIZES)}
        for key, value in fields.items():
            tensor.external_data.add(key=key, value=str(value))


def _bomb(random: Random, model: Any) -> None:
    """A constant that is made of few bytes, as large as it likes, again and again."""
    from onnx import helper, numpy_helper

    graph, tag = model.graph, f"bomb{random.randrange(1 << 30)}"
    count = random.choice((10**3, 10**6, 10**8, 10**9, 10**10, 10**12, 1 << 46))
    graph.initializer.append(numpy_helper.from_array(np.array([count]), f"{tag}n"))
    graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), f"{tag}1"))
    kind = random.choice(("Expand", "Tile", "ConstantOfShape", "Range", "Pad", "OneHot"))
    if kind == "Range":
        graph.initializer.append(numpy_helper.from_array(np.array(count), f"{tag}s"))
        for name, value in (("0", 0), ("d", random.choice((1, -1, 0)))):
            graph.initializer.append(numpy_helper.from_array(np.array(value), tag + name))
        inputs = [f"{tag}0", f"{tag}s", f"{tag}d"]
    elif kind == "Pad":
        graph.initializer.append(numpy_helper.from_array(np.array([0, count]), f"{tag}p"))
        inputs = [f"{tag}1", f"{tag}p"]
    elif kind == "OneHot":
        graph.initializer.append(numpy_helper.from_array(np.array([0, 1], np.float32), f"{tag}v"))
        inputs = [f"{tag}n", f"{tag}n", f"{tag}v"]
    else:
        inputs = [f"{tag}n"] if kind == "ConstantOfShape" else [f"{tag}1", f"{tag}n"]
    nodes = [helper.make_node(kind, inputs, [f"{tag}_0"])]
    last = f"{tag}_0"
    for step in range(random.choice((0, 1, 3, 12))):
        operator = random.choice(("Concat", "Exp", "Add", "Mul", "Neg", "Cast"))
        two = [last, last] if operator in ("Concat", "Add", "Mul") else [last]
        attributes: dict[str, Any] = {"Concat": {"axis": 0}, "Cast": {"to": random.choice((1, 7, 11))}}.get(
            operator, {}
        )
        nodes.append(helper.make_node(operator, two, [f"{tag}_{step + 1}"], **attributes))
        last = f"{tag}_{step + 1}"
    graph.node.extend(nodes)
    graph.output.append(helper.make_empty_tensor_value_info(last))


def _nested(random: Random, model: Any) -> None:
    """Graphs in graphs, or functions that call themselves."""
    from onnx import helper

    if random.random() < 0.3:
        names = [f"f{number}" for number in range(random.choice((1, 2, 30)))]
        for name, other in zip(names, [*names[1:], names[0]], strict=True):
            body = [
                helper.make_node(other, ["a"], ["b"], domain="own"),
                helper.make_node(other, ["b"], ["c"], domain="own"),
            ]
            model.functions.append(helper.make_function("own", name, ["a"], ["c"], body, list(model.opset_import)))
        model.opset_import.add(domain="own", version=1)
        model.graph.node.append(helper.make_node(names[0], [_any_input(model)], ["nested"], domain="own"))
    else:
        graph = helper.make_graph([helper.make_node("Neg", [_any_input(model)], ["inner"])], "g", [], [_info("inner")])
        for _ in range(random.choice((1, 5, 20, 28))):
            small = helper.make_graph([], "h", [], [_info(_any_input(model))])
            other = graph if random.random() < 0.05 else small
            node = helper.make_node("If", ["nested_c"], ["inner"], then_branch=graph, else_branch=other)
            graph = helper.make_graph([node], "g", [], [_info("inner")])
            if graph.ByteSize() > 1 << 20:
                break
        model.graph.input.append(helper.make_tensor_value_info("nested_c", 9, []))
        model.graph.node.append(helper.make_node("If", ["nested_c"], ["nested"], then_branch=graph, else_branch=graph))
    model.graph.output.append(_info("nested"))


def _info(name: str) -> Any:
    from onnx import helper

    return helper.make_empty_tensor_value_info(name)


def _any_input(model: Any) -> str:
    return model.graph.input[0].name if model.graph.input else "x"


def _whole(random: Random, model: Any) -> None:
    """What stands once in a model: versions, the order of nodes, nodes twice."""
    nodes = list(model.graph.node)
    kind = random.randrange(3)
    if kind == 0 and model.opset_import:
        random.choice(model.opset_import).version = random.choice((-1, 0, 1, 6, 7, 9, 11, 13, 17, 21, 28, 1 << 40))
    elif kind == 1 and nodes:
        random.shuffle(nodes)
        del model.graph.node[:]
        model.graph.node.extend(nodes)
    elif nodes:
        model.graph.node.extend([random.choice(nodes)] * random.choice((1, 2, 300)))


CHANGES: tuple[Callable[[Random, Any], None], ...] = (
    _attribute,
    _names,
    _operator,
    _sizes,
    _tensor,
    _bomb,
    _nested,
    _whole,
)


@functools.cache
def sound_models() -> tuple[bytes, ...]:
    """Small networks, and random graphs with graphs in them."""
    from . import digits, zoo
    from .random_onnx.graphs import random_graph

    made = [Path(digits.MODEL).read_bytes(), zoo.mlp((4, 3)).SerializeToString()]
    made.append(zoo.bert(1, 16, 2, vocabulary=8, batch="b", length="s").SerializeToString())
    made += [random_graph(Random(f"{number} hostile")).model.SerializeToString() for number in range(60)]
    return tuple(made)


def make_model(seed: int, number: int) -> bytes:
    """A changed model."""
    import onnx
    from google.protobuf.message import DecodeError

    random = Random(f"{seed} {number} models")
    data = random.choice(sound_models() if random.random() < 0.8 else read_corpus("onnx"))
    if random.random() < 0.2:
        return mutate_bytes(random, data)
    model = onnx.ModelProto()
    with contextlib.suppress(DecodeError):  # the corpus has damaged ones
        model.ParseFromString(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        with contextlib.suppress(ValueError, TypeError, DecodeError):  # protobuf refuses the change
            random.choice(CHANGES)(random, model)
    data = model.SerializeToString()
    return mutate_bytes(random, data) if random.random() < 0.1 else data


# ---- one model ----


def try_model(data: bytes) -> str:
    """What comes of a model; a text that begins with "finding" is one."""
    from .. import compile

    before, begin = _reset_peak(), time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, embed_native=False, progress=False)
        outcome = "compiled"
    except TreadleError as error:
        is_ours = is_fault(error) or isinstance(error, MiscompilationError)
        outcome = f"finding: {error}" if is_ours else f"refused {type(error).__name__}"
    except Exception as error:
        return f"finding: {type(error).__name__}: {error}"
    seconds, taken = time.process_time() - begin, _peak() - before
    if seconds > SECONDS:
        return f"finding: {seconds:.1f} s"
    return f"finding: {taken >> 20} MiB" if taken > MEMORY else outcome


def _reset_peak() -> int:
    """Begins to count the most memory in use anew, where the system can; bytes in use."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return 0


def _work(seed: int, first: int, last: int) -> None:
    """Tries models one after the other, and prints what comes of each."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    for number in range(first, last):
        print(json.dumps([number, try_model(make_model(seed, number))[:300]]), flush=True)


# ---- many of them ----


def run(seed: int, first: int, count: int, told: Callable[[str], object] = print) -> tuple[Counter[str], list[str]]:
    """What came of so many models, and the findings. A process that dies or hangs is a finding of the model at hand; the next one
    goes on behind it."""
    tally, findings, number, last = Counter[str](), [], first, first + count
    while number < last:
        code = f"from {__package__}.fuzz_models import _work; _work({seed}, {number}, {last})"
        process = processes.start(code, stdout=processes.PIPE, stderr=processes.PIPE, text=True)
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert process.stdout is not None
        threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
        hangs = False
        try:
            while number < last:
                line = lines.get(timeout=_WAIT)
                if not line:
                    break
                number, outcome = json.loads(line)
                if outcome.startswith("finding"):
                    findings.append(f"{number}: {outcome}")
                    told(findings[-1])
                    outcome = "finding"
                tally[outcome] += 1
                number += 1
                if number % 1000 == 0:
                    told(f"{number}: {dict(tally)}")
        except queue.Empty:
            hangs = True
        finally:
            process.kill()
            error = process.communicate()[1][-300:] if not hangs else ""
        if number < last:
            why = f"no word for {_WAIT:.0f} s" if hangs else f"exit status {process.returncode}: {error}"
            findings.append(f"{number}: finding: {why}")
            told(findings[-1])
            tally["finding"] += 1
            number += 1
    return tally, findings


def _read(pipe: IO[str], lines: queue.SimpleQueue[str]) -> None:
    with contextlib.suppress(ValueError):  # closed meanwhile
        for line in pipe:
            lines.put(line)
    lines.put("")


def main(argv: Sequence[str] | None = None) -> int:
    """Prints what came of all models. 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one model")
    parser.add_argument("--save", type=Path, help="with --only, write the model to this file")
    parser.add_argument("--log", type=Path, help="write what is told to this file, too")
    options = parser.parse_args(argv)
    if options.only is not None:
        data = make_model(options.seed, options.only)
        if options.save:
            options.save.write_bytes(data)
        print(try_model(data))
        return 0

    def told(text: str) -> None:
        print(text, flush=True)
        if options.log:
            with open(options.log, "a", encoding="utf-8") as log:
                log.write(f"{text}\n")

    tally, findings = run(options.seed, options.first, options.count, told)
    told(", ".join(f"{count} {outcome}" for outcome, count in tally.most_common()))
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
