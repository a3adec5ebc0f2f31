"""The folder that models come from, and what of it is loaded.

    models/mobilenet.trdl               version 1 of "mobilenet"
    models/minilm/3/model.trdl          version 3 of "minilm"
    models/tiny.onnx                    is compiled when it is loaded, and so is models/tiny/1/model.onnx
    models/mobilenet.json               how it is served (`config.py`), or models/minilm/config.json

Names of requests are looked up among those that were found in the folder; no path is ever made of them. A file that is replaced
is loaded beside the old one, which serves until the new one is ready: calls that run finish on what they began with.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..formats.messages.errors import FileError, TreadleError
from .config import ModelConfig
from .endpoint import Endpoint
from .errors import (
    LOG,
    BadRequestError,
    NotFoundError,
    NotImplementedHereError,
    OverloadedError,
    UnavailableError,
    as_serve_error,
)
from .model import ONNX, Model

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_VERSION = re.compile(r"[1-9][0-9]{0,8}")
_SUFFIXES = (".trdl", ONNX)  # of two files of one name, the first is served
_BESIDE = frozenset((".json", ".data", ".md", ".txt"))  # of files that may lie beside models
_MOST_ASKING = 8  # clients that load or unload models, or wait until they may


@dataclass(frozen=True)
class Found:
    """A model in the folder: the files of its versions, and that of its configuration."""

    files: Mapping[int, Path]
    config: Path
    problem: str = ""  # why it cannot be read at the moment; then it is not gone


@dataclass
class State:
    """The state of a version: READY, LOADING or UNAVAILABLE, and why."""

    state: str
    reason: str = ""


@dataclass
class _Loaded:
    stamp: tuple = ()
    model: Model | None = None
    state: State = field(default_factory=lambda: State("LOADING"))


class Repository:
    """The models of a folder. Any thread may ask; one at a time loads."""

    def __init__(
        self,
        folder: str | os.PathLike,
        config: ModelConfig | None = None,
        *,
        is_explicit: bool = False,
        is_strict: bool = False,
        compiling: Mapping[str, Any] | None = None,
    ) -> None:
        """With `is_explicit`, a model is loaded when a client asks for it, else all are, and the folder is followed. `is_strict`
        is about `is_ready`, `compiling` are `treadle.compile`'s arguments for ONNX models. Raises FileError."""
        self.folder = Path(folder)
        self.config = config or ModelConfig()
        self.is_explicit, self.is_strict, self.compiling = is_explicit, is_strict, compiling or {}
        self.failures: dict[str, int] = {}  # by name, how often a file could not be loaded
        self.loads: dict[str, int] = {}  # and how often one was
        self._loading = threading.Lock()
        self._asking = threading.BoundedSemaphore(_MOST_ASKING)
        self._models: dict[str, dict[int, _Loaded]] = {}  # replaced, never changed, so that readers need no lock
        self._problems: dict[str, str] = {}  # what cannot be read, and why; each is said once
        self._known: dict[tuple[str, str], tuple[Model, Endpoint]] = {}  # that were asked for; replaced with the models
        self._left: dict[str, str] = {}  # files that are not served, and why
        self._told: dict[str, str] = {}  # those of them that the log has
        self._unloaded: set[str] = set()  # by a client, until it loads them again
        self._configs: dict[str, ModelConfig] = {}  # that clients have given, until they load the models again
        self.scan()

    # ---- asking ----

    def find(self, name: str, version: str = "") -> Model:
        """The version, or the latest that is ready. Raises NotFoundError, BadRequestError, UnavailableError."""
        versions = self._models.get(name)
        if versions is None:
            raise NotFoundError(f"no model {name!r} is loaded")
        if version:
            if not _VERSION.fullmatch(version):
                raise BadRequestError(f"no version {version!r}: versions are whole numbers")
            found = versions.get(int(version))
            if found is None:
                raise NotFoundError(f"model {name!r} has no version {version}; it has {', '.join(map(str, versions))}")
            if found.model is None:
                raise UnavailableError(f"version {version} of model {name!r} is not ready: {_why(found.state)}")
            return found.model
        model = next(
            (versions[number].model for number in sorted(versions, reverse=True) if versions[number].model), None
        )
        if model is None:
            reasons = "; ".join(f"version {number}: {_why(each.state)}" for number, each in sorted(versions.items()))
            raise UnavailableError(f"model {name!r} is not ready: {reasons}")
        return model

    def endpoint(self, name: str, version: str = "") -> tuple[Model, Endpoint]:
        """The model and function of a name: `mlp`, or `mlp:decode` for another function than the main one."""
        # taken before the models are: what is kept below may be of models that are replaced meanwhile
        known = self._known
        found = known.get((name, version))
        if found is None:
            stem, _, function = name.partition(":")
            model = self.find(stem, version)
            found = known[name, version] = model, model.endpoint(function)
        return found

    def versions(self, name: str) -> list[int]:
        """The versions that are ready."""
        return [number for number, each in sorted(self._models.get(name, {}).items()) if each.model is not None]

    def models(self) -> list[Model]:
        """All that are ready."""
        return [
            each.model
            for _, versions in sorted(self._models.items())
            for _, each in sorted(versions.items())
            if each.model is not None
        ]

    def index(self) -> list[tuple[str, int, State]]:
        """All models in the folder or in memory, with what became of them."""
        found, rows = self.scan(), []
        for name in sorted({*found, *self._models}):
            loaded = self._models.get(name, {})
            numbers = {*loaded, *(found[name].files if name in found else ())}
            rows += [
                (name, number, loaded[number].state if number in loaded else State("UNAVAILABLE", "not loaded"))
                for number in sorted(numbers)
            ]
        return rows

    @property
    def is_ready(self) -> bool:
        """Whether the server answers for its folder: something of it is served, or there is nothing in it. A file that cannot be
        loaded is not ready itself, and takes nothing from the others. When strict: every file that is there now is served."""
        found = [each for versions in self._models.values() for each in versions.values()]
        if self.is_strict:
            return all(each.model is not None and not each.state.reason for each in found)
        return not found or any(each.model is not None for each in found)

    # ---- the folder ----

    def scan(self) -> dict[str, Found]:
        """The folder's present contents. Raises FileError if it cannot be read."""
        found: dict[str, Found] = {}
        try:
            with os.scandir(self.folder) as found_entries:
                entries = sorted(found_entries, key=lambda entry: entry.name)
        except OSError as error:
            raise FileError.of(error, f"cannot read the folder of models {self.folder}") from None
        left: dict[str, str] = {}
        for entry in sorted(entries, key=lambda entry: not entry.name.endswith(_SUFFIXES[0])):
            stem, suffix = os.path.splitext(entry.name)
            is_model = suffix in _SUFFIXES
            stem = stem if is_model else entry.name
            if entry.name.startswith(".") or (suffix in _BESIDE and not is_model):
                continue
            try:
                if entry.is_dir():
                    is_model, files = False, _versions(Path(entry.path))
                    each = Found(files, Path(entry.path) / "config.json") if files else None
                else:
                    each = Found({1: Path(entry.path)}, self.folder / f"{stem}.json") if entry.is_file() else None
                    if each is not None and not is_model:
                        each, left[entry.name] = None, "it is neither an executable nor an ONNX model"
            except OSError as error:
                each = Found({}, Path(), f"cannot read {entry.name}: {error.strerror}")
            if each is None:
                continue
            if not _NAME.fullmatch(stem):
                left[entry.name] = f"{stem!r} is not the name of a model"
            elif stem in found:
                left[entry.name] = f"{_first(found[stem])} is, under the same name"
            else:
                found[stem] = each
        self._left = left
        return found

    def refresh(self) -> None:
        """Loads what is new or has changed, and forgets what is gone; without `is_explicit`."""
        if self.is_explicit:
            return
        with self._loading:
            found = self.scan()
            for name in [name for name in self._models if name not in found]:
                self._forget(name)
            problems = {name: each.problem for name, each in found.items() if each.problem}
            for name in problems.keys() - self._problems.keys():
                LOG.error("%s", problems[name])
            self._problems = problems
            for name in sorted(self._left.keys() - self._told.keys()):
                LOG.warning("%s is not served: %s", name, self._left[name])
            self._told = self._left
            for name, each in found.items():
                if name not in self._unloaded and not each.problem:
                    self._load(name, each)

    def load(self, name: str, config: ModelConfig | None = None) -> None:
        """Loads a model of the folder, anew if its files have changed. Raises NotFoundError, OverloadedError, and what made it
        fail."""
        with self._turn():
            found = self.scan().get(name)
            if found is None:
                raise NotFoundError(f"there is no model {name!r} in the folder")
            if found.problem:
                raise BadRequestError(f"model {name!r} cannot be loaded: {found.problem}")
            self._unloaded.discard(name)
            self._configs.pop(name, None)
            if config is not None:
                self._configs[name] = config
            failures = self._load(name, found)
        if failures:
            raise BadRequestError(f"model {name!r} cannot be loaded: {failures[0]}")

    def config_of(self, parameters: Any) -> ModelConfig | None:
        """The configuration that a request to load a model brings along, if it does. Raises BadRequestError, FormatError."""
        if not isinstance(parameters, dict):
            raise BadRequestError("parameters: expected an object")
        if any(name.startswith("file:") for name in parameters):
            raise NotImplementedHereError("models come from the server's folder; none are uploaded")
        text = parameters.get("config")
        if text is None:
            return None
        if not isinstance(text, str):
            raise BadRequestError("config: expected JSON text")
        return ModelConfig.parse(text, "config", self.config).within(self.config)

    def unload(self, name: str) -> None:
        """Forgets a model: no new calls; those that run finish. Raises NotFoundError, OverloadedError."""
        with self._turn():
            if name not in self._models:
                raise NotFoundError(f"no model {name!r} is loaded")
            self._unloaded.add(name)
            self._forget(name)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Within this, a client has models loaded or forgotten, and nobody else. Raises OverloadedError where many wait for that:
        each holds a thread of its transport's."""
        if not self._asking.acquire(blocking=False):
            raise OverloadedError(f"{_MOST_ASKING} clients have models loaded already; try again later")
        try:
            with self._loading:
                yield
        finally:
            self._asking.release()

    # ---- with the lock ----

    def _forget(self, name: str) -> None:
        self._models = {each: versions for each, versions in self._models.items() if each != name}
        self._known = {}
        LOG.info("unloaded %s", name)

    def _load(self, name: str, found: Found) -> list[str]:
        """Loads the versions of which the files have changed; why those that cannot be loaded cannot."""
        config = self._configs.get(name)
        versions = {number: each for number, each in self._models.get(name, {}).items() if number in found.files}
        failures = []
        for number, path in found.files.items():
            stamp = (_stamp(path), _stamp(found.config), config)
            now = versions.get(number)
            if now is not None and now.stamp == stamp:
                if now.model is None:
                    failures.append(now.state.reason)
                continue
            serving = now.model if now is not None else None
            self._put(name, versions | {number: _Loaded((), serving, State("READY" if serving else "LOADING"))})
            try:
                settings = ModelConfig.load(found.config, config or self.config)
                model = Model(name, number, path, settings, serving, self.compiling)
            except Exception as error:  # whatever the file does to us, the others are served
                reason = str(error) if isinstance(error, TreadleError) else str(as_serve_error(error))
                failures.append(reason)
                self.failures[name] = self.failures.get(name, 0) + 1
                LOG.error("cannot load %s, version %d: %s", name, number, reason)
                state = (
                    State("READY", f"the new file cannot be loaded: {reason}")
                    if serving
                    else State("UNAVAILABLE", reason)
                )
                versions[number] = _Loaded(stamp, serving, state)
            else:
                self.loads[name] = self.loads.get(name, 0) + 1
                LOG.info("loaded %s, version %d, sha256 %s", name, number, model.digest)
                for function, found_out in model.merging.items():
                    LOG.info("requests of %s are %s", model.name_of(function), found_out.text)
                versions[number] = _Loaded(stamp, model, State("READY"))
            self._put(name, versions)
        self._put(name, versions)
        return failures

    def _put(self, name: str, versions: dict[int, _Loaded]) -> None:
        self._models = {**self._models, name: dict(versions)}
        self._known = {}


def _versions(folder: Path) -> dict[int, Path]:
    """The files of a model, by version. Raises OSError: what cannot be read at the moment is not gone."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if _VERSION.fullmatch(entry.name) and entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    files = {int(name): [folder / name / f"model{suffix}" for suffix in _SUFFIXES] for name in names}
    there = ((number, next(filter(Path.is_file, paths), None)) for number, paths in sorted(files.items()))
    return {number: path for number, path in there if path is not None}


def _first(found: Found) -> str:
    return next((path.name for path in found.files.values()), "another file")


def _stamp(path: Path) -> tuple[int, ...]:
    """By which another file is told from the same one."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _why(state: State) -> str:
    return state.reason or state.state.lower()
