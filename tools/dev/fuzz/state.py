"""How far a run of a fuzzer has come, in a file: runs are stopped and resumed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BAD = ("crash", "hang", "bug", "wrong", "finding")  # how the outcomes start that must not happen
_KEPT = 1000  # characters of what is said of a finding


@dataclass
class State:
    """Trials before `next` are done; `tally` counts what came of them by kind."""

    seed: int = 0
    next: int = 0
    seconds: float = 0.0
    tally: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def read(path: Path, seed: int) -> State:
        """What a file says; of none, a run that begins. Raises SystemExit for a file of a run with another seed."""
        if not path.exists():
            return State(seed)
        saved = json.loads(path.read_text())
        if saved["seed"] != seed:
            raise SystemExit(f"{path} is of a run with seed {saved['seed']}; give that seed, or another file")
        return State(seed, saved["next"], saved.get("seconds", 0.0), Counter(saved["tally"]), saved["findings"])

    def write(self, path: Path) -> None:
        """Replaces the file as a whole."""
        saved = {
            "seed": self.seed,
            "next": self.next,
            "seconds": round(self.seconds, 1),
            "tally": dict(sorted(self.tally.items())),
            "findings": self.findings,
        }
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(saved, indent=1) + "\n")
        temporary.replace(path)

    def add(self, number: int, outcome: str, kind: str | None = None) -> None:
        """What came of a trial, counted as `kind`, by default as the outcome itself."""
        self.tally[kind or outcome] += 1
        if is_bad(outcome):
            self.findings.append({"number": number, "outcome": outcome[:_KEPT]})


def is_bad(outcome: str) -> bool:
    """Whether an outcome, "…" or "kind: …", must not happen."""
    return outcome.partition(": ")[2].startswith(BAD) or outcome.startswith(BAD)
