"""TVM's tests are run with `tvm` bound to Treadle's face; each gets a line that says why it cannot pass."""

from treadle.tools.dev import tvm_tests

FILE = """
import numpy as np
import tvm
import tvm.testing
import tvm.topi.testing
from tvm import relay, te
from tvm.runtime import vm as _vm

def test_passes(target, dev):
    x = relay.var("x", shape=(2,))
    exe = relay.vm.compile(relay.Function([x], x + x), target)
    out = _vm.VirtualMachine(exe, dev).invoke("main", np.ones(2, "float32"))
    tvm.testing.assert_allclose(out.numpy(), [2, 2])

def test_schedules():
    te.create_schedule(None)

@tvm.testing.requires_cuda
def test_gpu():
    pass

def test_reference():
    tvm.topi.testing.conv2d_nchw_python()

def test_fails():
    assert 1 == 2

def test_otherwise():
    assert 2 == 3
"""


def test_each_test_gets_a_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(tvm_tests.DIFFERS, "test_some.py::test_otherwise", "wants what is otherwise")
    (tmp_path / "test_some.py").write_text(FILE)
    assert tvm_tests.main([str(tmp_path), "test_some.py"]) == 1
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    found = {name.removeprefix("test_some.py::test_"): (outcome, *why) for outcome, name, *why in lines[:-1]}
    assert found["passes[llvm]"] == ("passes",)
    assert found["schedules"][0] == "cannot"
    assert "needs TE schedules" in found["schedules"][1]
    assert found["gpu"] == ("cannot", "needs a GPU")
    assert found["reference"][0] == "cannot"
    assert found["fails"] == ("fails", "assert 1 == 2")
    assert found["otherwise"] == ("differs", "wants what is otherwise: assert 2 == 3")
    assert lines[-1] == ["1", "of", "3 pass; 1 differ, 3 cannot"]


def test_a_file_that_is_not_there_fails(tmp_path, capsys):
    assert tvm_tests.main([str(tmp_path), "test_none.py"]) == 1
    assert "there is no such file" in capsys.readouterr().out
