"""What 1, 10, 100 and 1,000 hosts serve: docs/scaling.md, its measurements and simulations.

python -m treadle.tools.dev.hosts             prints the page
python -m treadle.tools.dev.hosts --measure   measures this machine first, and keeps the costs in costs.json
python -m treadle.tools.dev.hosts --compare   simulates, and measures, what two workers and a server reach; compared.json keeps it
python -m treadle.tools.dev.hosts --write     writes docs/scaling.md
"""

from __future__ import annotations

import argparse
import sys

from . import compare
from .costs import Costs, measure
from .page import PAGE, page


def main(arguments: list[str] | None = None) -> int:
    """The command; gives its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("measure", "compare", "write"):
        parser.add_argument(f"--{name}", action="store_true")
    given = parser.parse_args(arguments)
    if given.measure:
        measure().saved()
    costs = Costs.read()
    if given.compare:
        expected, rates = compare.predicted(costs), {}
        for what, rate in compare.measured():
            rates[what] = rate
            told = f"simulated {expected[what]:6.0f}/s  measured {rate:6.0f}/s  ratio {rate / expected[what]:.2f}"
            print(f"{what:32}{told}", flush=True)
        compare.save(rates)
    if given.write:
        PAGE.write_text(page(costs, compare.saved()))
    if not (given.measure or given.compare or given.write):
        print(page(costs, compare.saved()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
