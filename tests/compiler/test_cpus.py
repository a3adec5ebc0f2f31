"""Programs as users run them, for any CPU: here for this one, and for others under emulation (tests/cpus.py).

Heavier networks take minutes even natively: test_networks.py has them.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import treadle
from onnx import numpy_helper
from treadle.tools import demo, digits
from treadle.tools.dev import zoo
from treadle.tools.dev.zoo.light import light_path


def test_the_demo_recognises_digits(capfd: pytest.CaptureFixture) -> None:
    treadle.VirtualMachine(
        treadle.compile(digits.MODEL, progress=False)
    )  # builds the kernels, which the demo's child finds
    assert demo.main() == 0
    assert "accuracy" in capfd.readouterr().out


def test_the_demo_says_what_it_needs_before_it_begins(monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(treadle.TreadleError, match=r"pip install \"treadle\[demo\]\""):
        demo.main()
    assert not capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.LIGHT_NETWORKS)
def test_light_networks_give_their_stored_output(name: str) -> None:
    x = (np.arange(3 * 224 * 224) / (3 * 224 * 224)).astype(np.float32).reshape(1, 3, 224, 224)
    path = light_path(name)
    stored = numpy_helper.to_array(onnx.load_tensor(path.with_name(f"{path.stem}_output_0.pb")))
    machine = treadle.VirtualMachine(treadle.compile(path, progress=False))
    np.testing.assert_allclose(machine["main"](x).numpy(), stored, rtol=2e-3)
