"""What `treadle compile --tune` says of what it found."""

from __future__ import annotations

from treadle.compiler.targets.cpu.tune import Tuned
from treadle.tools.execute import _tuning_text


def test_a_time_too_short_to_measure_anything_is_told() -> None:
    assert _tuning_text(Tuned(untried=2)) == (
        "tuned nothing: the time was too short to measure any of 2 kernels; give --tune more seconds"
    )
    assert _tuning_text(Tuned()).startswith("tuned 0 of 0 measured kernels: 0.000")
