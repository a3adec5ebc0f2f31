"""Runs the blocks of a page of docs/ as its reader would, and compares what they print with what the page says.

python -m treadle.tools.dev.derive.pages tour.md …            writes what the blocks print now; without names, every page
python -m treadle.tools.dev.derive.pages --check tour.md …    exits with 1, and shows the difference, where a page says otherwise

The blocks of a page run one after the other in one new folder:

    ```python                 in one namespace; a ```text block right after it is what it prints
    ```console                commands after `$ `, each with what it prints; `treadle serve … &` runs until the page ends
    <!-- hidden: CODE -->     Python that readers do not see: it makes the files that they have
    <!-- needs: uvicorn -->   the next block runs where these packages are installed
    <!-- varies -->           what the next block prints is not compared: times, and what follows from them
    <!-- not run: WHY -->     the next block is left alone

Numbers are not compared: rounding, versions, times and digests differ from machine to machine. A line `…` stands for any lines.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.util
import io
import os
import re
import signal
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ....native import processes

ROOT = Path(__file__).parents[3]
PAGES = (
    "README.md",
    *sorted(
        path.relative_to(ROOT).as_posix() for folder in ("docs", "docs/jobs") for path in (ROOT / folder).glob("*.md")
    ),
)

_PART = re.compile(
    r"^<!-- (?P<order>hidden|needs|varies|not run)(?::(?P<value>.*?))?\s-->$"
    r"|^```(?P<language>\w+)\n(?P<body>.*?)^```$(?:\n\n```text\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)
_COMMAND = re.compile(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", re.MULTILINE)
# digests, too, which tell CPUs and builds apart
_NUMBER = re.compile(r"(\b[0-9a-f]{12,}\b|0x[0-9a-f]+|-?\d+(\.\d+)*(e[-+]?\d+)?)( ?(ns|µs|ms|s|kB|MB|GB|B)\b)?")
_ELISION = "…\n"
_SECONDS = 120  # that a command may take, and that a server may take to start
_PORT = re.compile(r"(?<=--http-port )\d+")
_LISTENS = re.compile(r"HTTP on \S+:(\d+)\n")


@dataclass
class Run:
    """One page being read: its folder, the namespace of its Python, and the servers that it has started."""

    folder: Path
    write: bool  # what is printed now, also where it is not compared
    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    servers: list[processes.Process] = field(default_factory=list)
    ports: dict[str, str] = field(default_factory=dict)  # the page's → the one that the system chose
    blocks: int = 0
    orders: dict[str, str] = field(default_factory=dict)

    def page(self, text: str) -> str:
        """The page with what its blocks print now. Raises what a block raises."""
        try:
            return _PART.sub(self._part, text)
        finally:
            for server in self.servers:
                os.killpg(server.pid, signal.SIGTERM)
                server.wait()

    def _part(self, found: re.Match[str]) -> str:
        if found["order"]:
            if found["order"] == "hidden":
                self._printed(found["value"].strip() + "\n", False)
            else:
                self.orders[found["order"]] = found["value"] or ""
            return found[0]
        orders, self.orders = self.orders, {}
        missing = [each for each in orders.get("needs", "").split() if importlib.util.find_spec(each) is None]
        if missing or "not run" in orders or found["language"] not in ("python", "console"):
            return found[0]
        varies = "varies" in orders and not self.write
        if found["language"] == "console":
            return f"```console\n{_COMMAND.sub(lambda each: self._command(each, varies), found['body'])}```"
        printed = self._printed(found["body"], found["output"] is not None)
        shown = f"```python\n{found['body']}```"
        if found["output"] is None:
            return shown
        return f"{shown}\n\n```text\n{found['output'] if varies else _cut(printed, found['output'])}```"

    def _printed(self, code: str, may_raise: bool) -> str:
        """The output of code; then, if that is shown, the error that it ends with."""
        self.blocks += 1
        path = self.folder / f"block_{self.blocks}.py"  # where `inspect` finds the text of a kernel
        path.write_text(code, encoding="utf-8")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(code, path, "exec"), self.namespace)
            except Exception as error:
                if not may_raise:
                    raise
                printed.write(f"{type(error).__name__}: {error}\n")
        return _at_home(printed.getvalue())

    def _command(self, found: re.Match[str], varies: bool) -> str:
        command = found[1].replace("\\\n", " ")
        for port, chosen in self.ports.items():
            command = command.replace(f":{port}/", f":{chosen}/")
        if command.endswith(" &"):
            self._serve(command[:-2])
            return found[0]
        done = processes.run_program(
            ["bash", "-c", command], capture_output=True, text=True, timeout=_SECONDS, env=_variables()
        )
        printed = "" if varies else _at_home(done.stdout + _without_builds(done.stderr))
        return f"$ {found[1]}\n{found[2] if varies else _cut(printed, found[2])}"

    def _serve(self, command: str) -> None:
        """Starts a server on a port that is free, and waits until it listens."""
        log = self.folder / f"server_{len(self.servers)}.log"
        with open(log, "wb") as file:
            started = ["bash", "-c", f"exec {_PORT.sub('0', command)}"]
            server = processes.start_program(
                started, stdout=file, stderr=file, start_new_session=True, env=_variables()
            )
        self.servers.append(server)
        end = time.monotonic() + _SECONDS
        while (listens := _LISTENS.search(said := log.read_text(encoding="utf-8", errors="replace"))) is None:
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command} does not listen: {server.poll()}, {said}")
            time.sleep(0.1)
        self.ports |= dict.fromkeys(_PORT.findall(command), listens[1])


def _variables() -> dict[str, str]:
    """The environment in which `treadle` and `python` are those that run this."""
    return {
        **os.environ,
        "PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ.get('PATH', '')}",
        "COLUMNS": "120",
    }


def _without_builds(text: str) -> str:
    """A command's output without lines about compilation, which depend on the cache."""
    return re.sub(r"^treadle: compiling .*\n", "", text, flags=re.MULTILINE)


def _at_home(text: str) -> str:
    """Paths as readers have them."""
    home = str(Path.home())
    return text.replace(f"{home}{os.sep}", f"~{os.sep}") if home != os.sep else text


def _cut(printed: str, shown: str) -> str:
    """The output, abridged in the places where the page abridges it."""
    printed += "\n" if printed and not printed.endswith("\n") else ""
    head, elided, tail = shown.partition(_ELISION)
    lines, first, last = printed.splitlines(keepends=True), head.count("\n"), tail.count("\n")
    if not elided or len(lines) <= first + last:
        return printed
    return "".join([*lines[:first], _ELISION, *lines[len(lines) - last :]])


def without_numbers(text: str) -> str:
    """The text for comparison: column widths vary with the widths of numbers."""
    return re.sub(r"[ -]*#[ -]*|(?<=\S) +", lambda found: "#" if "#" in found[0] else " ", _NUMBER.sub("#", text))


def difference(name: str, text: str, now: str) -> str:
    """The lines that a page has otherwise than they are printed now; "" where only numbers are."""
    if without_numbers(text) == without_numbers(now):
        return ""
    lines = difflib.unified_diff(text.splitlines(True), now.splitlines(True), name, f"{name} (as it runs)")
    return "".join(lines)


@contextlib.contextmanager
def reading(write: bool = False) -> Iterator[Run]:
    """A run in a new folder, which is the working directory meanwhile."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield Run(Path(folder), write)
        finally:
            os.chdir(before)


def main(out: IO[str] = sys.stdout) -> int:
    parser = argparse.ArgumentParser("treadle.tools.dev.derive.pages", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="of docs/; default: every page")
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args()
    failed = False
    for name in [each if "/" in each or each == "README.md" else f"docs/{each}" for each in options.pages] or PAGES:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        with reading(not options.check) as run:
            now = run.page(text)
        if options.check:
            found = difference(name, text, now)
            failed |= bool(found)
            out.write(found)
        elif now != text:
            path.write_text(now, encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
