"""An unknown name suggests the nearest ones, wherever names are looked up."""

import numpy as np
import pytest
import treadle
from treadle import Module, function, op, var
from treadle.formats.messages.errors import TreadleError
from treadle.formats.messages.names import near


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mian", "; did you mean main?"),
        ("Main", "; did you mean main?"),
        ("masc", "; did you mean mast or mask?"),
        ("zzz", ""),
        (7, ""),
    ],
)
def test_the_nearest_names_are_suggested(name, expected):
    assert near(name, ["main", "mask", "mast", "other"]) == expected


x = var("pixels", (2,))
module = Module(main=function([x], x + 1))


@pytest.fixture(scope="module")
def executable():
    return treadle.compile(module, progress=False)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        (lambda exe: treadle.compiel, "compile"),
        (lambda exe: op.rellu, "relu"),
        (lambda exe: op.softmax(x, axes=0), "axis"),
        (lambda exe: treadle.VirtualMachine(exe)["mian"], "main"),
        (lambda exe: treadle.VirtualMachine(exe)["main"](pixel=np.zeros(2, np.float32)), "pixels"),
        (lambda exe: exe.function("mian"), "main"),
        (lambda exe: list(treadle.dis(exe, "mian")), "main"),
        (lambda exe: exe.lib["ad"], "add"),
        (lambda exe: exe.lib.get_source("add", "pyhton"), "python"),
        (lambda exe: treadle.compile(module, entry="mian"), "main"),
        (lambda exe: treadle.compile(module, params={"pixel": np.zeros(2, np.float32)}), "pixels"),
        (lambda exe: treadle.compile(module, without=["fold_constant"]), "fold_constants"),
        (lambda exe: treadle.compile(module, print_after=["fusee"]), "fuse"),
        (lambda exe: var("x", (2,), "flaot32"), "float32"),
        (lambda exe: treadle.data_type("List = Nil | Cons(int64[], List)").Con, "Cons"),
        (lambda exe: treadle.compile(Module(main=function([x], treadle.global_function("mian")(x)))), "main"),
    ],
)
def test_every_lookup_suggests(executable, wrong, meant):
    with pytest.raises((TreadleError, AttributeError), match=rf"did you mean ([\w ]+ or )?{meant}( or [\w ]+)?\?"):
        wrong(executable)
