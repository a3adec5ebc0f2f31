"""LLVM's knowledge of CPUs: their names, the names of features, and the features of one CPU, with some switched on or off.

LLVM has no function that says so, and tells of unknown names on the standard error stream, or ends the process. It is asked in a
child process, whose answer the cache keeps.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable

from ..formats.messages.errors import TreadleError
from .cache import cache

_LISTED = re.compile(r"^  (\S+) +- ", re.MULTILINE)
_TITLES = ("Available CPUs for this target:", "Available features for this target:")

# A function is inlined into another only where the other's features include its own: which calls are gone after inlining says
# which features a CPU has, and what implies what.
_ASK = r"""
import json, os, sys
import llvmlite.binding as llvm
try:
    llvm.initialize()
except RuntimeError:
    pass
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
triple, cpu, features, names = json.loads(sys.argv[1])
target = llvm.Target.from_triple(triple)
target.create_target_machine(cpu="help")
os.write(2, b"\n\n")
machine = target.create_target_machine(cpu=cpu, features=features)
lines = [f'target triple = "{triple}"']
for number, name in enumerate(names):
    lines.append(f"define internal i32 @inner{number}(i32 %x) #{number} {{ %y = add i32 %x, {number}\n ret i32 %y }}")
    lines.append(f"define i32 @outer{number}(i32 %x) {{ %y = call i32 @inner{number}(i32 %x)\n ret i32 %y }}")
    lines.append(f'attributes #{number} = {{ "target-cpu"="generic" "target-features"="+{name}" }}')
module = llvm.parse_assembly("\n".join(lines))
builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
builder.getModulePassManager().run(module, builder)
left = {function.name for function in module.functions}
print(json.dumps([name for number, name in enumerate(names) if f"inner{number}" not in left]))
"""


def features_of(triple: str, cpu: str, changes: str, host: tuple[str, str], toolchain: str) -> str:
    """The features of a CPU, with `changes` such as "+avx2,-avx512f" of which the last mention of a name counts, in one canonical
    form: each once, in the order of their names, with what it implies. `host` is the name of this process's CPU and its features,
    whose names are all that matter.

    Raises TreadleError for names that LLVM does not know.
    """
    identity = f"features {triple} {cpu} {changes} {host} {toolchain}"
    key = hashlib.sha256(identity.encode()).hexdigest()
    known = cache().get(key)
    if known is None:
        known = _asked(triple, cpu, changes, *host).encode()
        cache().put(key, known)
    return known.decode()


def _asked(triple: str, cpu: str, changes: str, host_cpu: str, host_features: str) -> str:
    from . import processes

    wanted = [each.strip() for each in changes.split(",") if each.strip()]
    for each in wanted:
        if each[0] not in "+-" or len(each) < 2:
            raise TreadleError(f"{each!r}: a feature begins with + or -, as in +avx2")
    base = host_features.split(",") if host_features else []
    names = [each[1:] for each in base]
    question = json.dumps([triple, cpu, ",".join((base if cpu == host_cpu else []) + wanted), names])
    done = processes.run(_ASK, question, capture_output=True, text=True)
    cpus, features = _listed(done.stderr)
    _check("CPU", cpu, cpus | {host_cpu})
    for each in wanted:
        _check("feature", each[1:], features)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it does not say why"])[-1]
        raise TreadleError(f"LLVM cannot generate code for {cpu} {changes}: {last}")
    has = dict.fromkeys(names, False) | dict.fromkeys(json.loads(done.stdout.splitlines()[-1]), True)
    # what is not part of the instruction set, but LLVM's taste
    has |= {each[1:]: each[0] == "+" for each in wanted if each[1:] not in names}
    return ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(has.items()))


def _listed(text: str) -> tuple[set[str], set[str]]:
    """The names of CPUs and of features in LLVM's help."""
    _, _, rest = text.partition(_TITLES[0])
    cpus, _, features = rest.partition(_TITLES[1])
    return set(_LISTED.findall(cpus)), set(_LISTED.findall(features))


def _check(kind: str, name: str, known: Iterable[str]) -> None:
    if known and name not in known:
        close = difflib.get_close_matches(name, list(known), n=5, cutoff=0.5)
        raise TreadleError(f"LLVM knows no {kind} {name!r}" + (f"; close are {', '.join(close)}" if close else ""))
