"""Models of a folder: found, loaded, replaced, refused."""

from __future__ import annotations

import gc
import hashlib
import os
import weakref
from pathlib import Path

import numpy as np
import pytest
from treadle.formats.messages.errors import FileError
from treadle.serve.errors import BadRequestError, NotFoundError, UnavailableError
from treadle.serve.repository import Repository

from . import models


@pytest.fixture
def repository(folder: Path) -> Repository:
    found = Repository(folder)
    found.refresh()
    return found


def test_models_are_found_by_name_and_version(tmp_path: Path):
    for version in (1, 12):
        (tmp_path / "m" / str(version)).mkdir(parents=True)
        models.rows().export_library(tmp_path / "m" / str(version) / "model.trdl")
    repository = Repository(tmp_path)
    repository.refresh()
    assert repository.versions("m") == [1, 12]
    assert repository.find("m").version == 12
    assert repository.find("m", "1").version == 1
    with pytest.raises(NotFoundError, match="no version 3; it has 1, 12"):
        repository.find("m", "3")


@pytest.mark.parametrize("name", ["../rows", "/etc/passwd", "rows/../rows", ".", "", "rows.trdl", "rows\0", "nope"])
def test_a_name_that_is_not_in_the_folder_is_no_path(repository: Repository, name: str):
    with pytest.raises(NotFoundError):
        repository.find(name)
    with pytest.raises(NotFoundError):
        repository.load(name)


def test_functions_are_endpoints_of_their_own(repository: Repository):
    model, endpoint = repository.endpoint("rows:double")
    (result,) = endpoint.run([np.ones((3, 2), np.float32)])
    assert model.name == "rows"
    assert result.tolist() == [[2, 2]] * 3
    with pytest.raises(NotFoundError, match="it has main, double"):
        repository.endpoint("rows:other")


def test_a_file_that_is_replaced_is_served_and_old_calls_keep_what_they_have(repository: Repository, folder: Path):
    _, old = repository.endpoint("rows")
    models.mixed().export_library(folder / "rows.trdl")
    repository.refresh()
    _, new = repository.endpoint("rows")
    x = np.ones((2, 8), np.float32)
    np.testing.assert_allclose(old.run([x])[0], models.expected(x), rtol=1e-6)
    assert new.run([np.ones((2, 4), np.float32)])[0].tolist() == [[0.5] * 4] * 2


def test_a_broken_file_leaves_the_old_model_and_says_why(repository: Repository, folder: Path):
    (folder / "rows.trdl").write_bytes(b"no executable")
    repository.refresh()
    assert repository.endpoint("rows")[1].run([np.ones((1, 8), np.float32)])
    (reason,) = [state.reason for name, _, state in repository.index() if name == "rows"]
    assert "the new file cannot be loaded" in reason


def test_a_broken_model_is_unavailable_and_others_are_served(folder: Path):
    (folder / "broken.trdl").write_bytes(b"no executable")
    repository = Repository(folder)
    repository.refresh()
    assert repository.find("rows")
    with pytest.raises(UnavailableError, match="not ready"):
        repository.find("broken")
    with pytest.raises(BadRequestError, match="cannot be loaded"):
        repository.load("broken")


def test_a_file_that_cannot_be_loaded_holds_up_no_other_unless_readiness_is_strict(folder: Path):
    lenient, strict = Repository(folder), Repository(folder, is_strict=True)
    for repository in (lenient, strict):
        repository.refresh()
        assert repository.is_ready
    (folder / "broken.trdl").write_bytes(b"no executable")  # a new one
    for repository in (lenient, strict):
        repository.refresh()
    assert (lenient.is_ready, strict.is_ready) == (True, False)
    os.remove(folder / "broken.trdl")
    (folder / "rows.trdl").write_bytes(b"no executable")  # in the place of one that is served
    for repository in (lenient, strict):
        repository.refresh()
    assert (lenient.is_ready, strict.is_ready) == (True, False)
    assert lenient.failures == {"broken": 1, "rows": 1}
    alone = folder / "alone"
    alone.mkdir()
    (alone / "broken.trdl").write_bytes(b"no executable")
    nothing = Repository(alone)
    nothing.refresh()
    assert not nothing.is_ready


def test_an_onnx_model_is_compiled_and_what_is_not_served_is_named(folder: Path, caplog: pytest.LogCaptureFixture):
    from onnx import TensorProto, helper, save

    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", infos[:1], infos[1:])
    (folder / "deep" / "3").mkdir(parents=True)
    for path in ("twice.onnx", "rows.onnx", "deep/3/model.onnx", "my model.onnx"):
        save(helper.make_model(graph), folder / path)
    (folder / "weights.pt").write_bytes(b"PK")
    (folder / "README.md").write_text("Models.")
    repository = Repository(folder)
    with caplog.at_level("INFO", "treadle.serve"):
        repository.refresh()
        repository.refresh()
    assert [(model.name, model.version) for model in repository.models()] == [
        ("deep", 3),
        ("mixed", 1),
        ("rows", 1),
        ("twice", 1),
    ]
    assert repository.endpoint("twice")[1].run([np.ones((1, 2), np.float32)])[0].tolist() == [[2, 2]]
    left = [message for message in caplog.messages if "is not served" in message]
    assert left == [
        "my model.onnx is not served: 'my model' is not the name of a model",
        "rows.onnx is not served: rows.trdl is, under the same name",
        "weights.pt is not served: it is neither an executable nor an ONNX model",
    ]
    digest = hashlib.sha256((folder / "rows.trdl").read_bytes()).hexdigest()
    assert f"loaded rows, version 1, sha256 {digest}" in caplog.messages
    assert any(message.startswith("requests of rows:double are merged: ") for message in caplog.messages)
    assert any(
        message.startswith("requests of mixed are not merged: a row's result depends") for message in caplog.messages
    )


def test_what_was_counted_goes_on_when_a_file_is_replaced(repository: Repository, folder: Path):
    before = repository.find("rows")
    before.endpoint("").run([np.ones((2, 8), np.float32)])
    models.folder(folder, rows=models.mixed())
    repository.refresh()
    after = repository.find("rows")
    assert after.digest != before.digest
    after.endpoint("").run([np.ones((2, 4), np.float32)])
    assert after.statistics["main"].calls == 2


def test_what_is_gone_or_unloaded_is_not_served(repository: Repository, folder: Path):
    os.remove(folder / "mixed.trdl")
    repository.unload("rows")
    repository.refresh()
    assert repository.models() == []
    with pytest.raises(NotFoundError):
        repository.unload("rows")
    repository.load("rows")
    assert [model.name for model in repository.models()] == ["rows"]


def test_a_configuration_beside_the_model_is_its_own(folder: Path):
    (folder / "rows.json").write_text('{"batching": false, "max_queue": 3}')
    (folder / "mixed.json").write_text('{"no such setting": 1}')
    repository = Repository(folder)
    repository.refresh()
    assert repository.find("rows").config.max_queue == 3
    assert not repository.find("rows").merged
    with pytest.raises(UnavailableError, match="no setting 'no such setting'"):
        repository.find("mixed")


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(FileError, match="cannot read the folder of models"):
        Repository(tmp_path / "nothing")


def test_the_memory_of_models_that_were_replaced_or_unloaded_is_returned_at_once(tmp_path: Path):
    models.folder(tmp_path, mlp=models.rows())
    repository = Repository(tmp_path)
    repository.refresh()
    machines = []
    gc.collect()
    gc.disable()  # nobody waits for Python's collector
    try:
        for _ in range(20):
            machines.append(weakref.ref(repository.find("mlp").machine))
            models.rows().export_library(tmp_path / "mlp.trdl")
            repository.refresh()
        assert all(machine() is None for machine in machines)
        machines.append(weakref.ref(repository.find("mlp").machine))
        repository.unload("mlp")
        assert machines[-1]() is None
    finally:
        gc.enable()


def test_a_line_of_the_log_is_one_that_no_terminal_obeys(caplog: pytest.LogCaptureFixture) -> None:
    from treadle.serve.errors import LOG

    name = "\x1b[2J\nloaded other"
    with caplog.at_level("INFO", "treadle.serve"):
        LOG.info("loaded %s", name)
        try:
            raise ValueError(name)
        except ValueError:
            LOG.exception("a fault of %s", name)
    assert caplog.messages == [r"loaded \x1b[2J\nloaded other", r"a fault of \x1b[2J\nloaded other"]
    assert "\x1b" not in caplog.text
