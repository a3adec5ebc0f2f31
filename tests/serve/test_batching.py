"""Requests that become one call, and those that must not."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import Module, VirtualMachine, function, if_, op, var
from treadle.formats.messages.errors import FormatError
from treadle.serve.batching import BatchLine, Pending
from treadle.serve.config import ModelConfig
from treadle.serve.endpoint import Endpoint, endpoints
from treadle.serve.independence import merging, rows_of
from treadle.serve.scheduler import Scheduler
from treadle.tools.dev.zoo.mlp import mlp

from . import models


def endpoint(executable: treadle.Executable, config: ModelConfig | None = None) -> Endpoint:
    return endpoints(VirtualMachine(executable), executable, config or ModelConfig())["main"]


def test_rows_are_the_first_dimension_of_everything():
    assert rows_of(endpoint(models.rows())) == "n"
    x, y = var("x", ("n", 2)), var("y", ("m", 2))
    assert rows_of(endpoint(treadle.compile(Module(main=function([x, y], treadle.tuple_(x + 1, y + 1)))))) is None
    assert rows_of(endpoint(treadle.compile(Module(main=function([x], op.sum(x)))))) is None
    square = var("x", ("n", "n"))
    assert rows_of(endpoint(treadle.compile(Module(main=function([square], square + 1))))) is None


@pytest.mark.parametrize(
    ("executable", "is_merged"), [(models.rows, True), (models.mixed, False), (models.branching, False)]
)
def test_only_functions_whose_rows_are_independent_take_several_requests(executable: Any, is_merged: bool):
    assert (merging(endpoint(executable()), 32).least is not None) is is_merged


@pytest.mark.parametrize("operator", ["running", "reversed", "largest", "shifted"])
def test_operators_along_the_rows_are_found_out(operator: str):
    x = var("x", ("n", 4))
    result = {
        "running": lambda: op.cumulative_sum(x, axis=0),
        "reversed": lambda: op.slice(x, starts=(1 << 40,), ends=(-(1 << 40),), axes=(0,), steps=(-1,)),
        "shifted": lambda: op.matmul(op.softmax(op.matmul(x, op.permute_dims(x)), axis=1), x),
        "largest": lambda: x * 0 + op.max(x, axes=(0,), keepdims=True),
    }[operator]()
    assert merging(endpoint(treadle.compile(Module(main=function([x], result)))), 32).least is None


def test_code_that_branches_is_merged_where_each_result_is_the_same_to_the_bit():
    waiting = Waiting(ModelConfig(), models.encoder())
    found = merging(waiting.endpoint, 32)
    assert found.least == 1
    assert "branch" in found.reason
    rng, asked = np.random.default_rng(0), []
    for number, (length, words) in enumerate(
        [(5, 5), (5, 3), (9, 9), (5, 5), (9, 1)]
    ):  # some of them padded by their clients
        ids, mask = rng.integers(0, 16, (1, length)), np.int64([[1] * words + [0] * (length - words)])
        asked.append(waiting.endpoint.run([ids, mask])[0])
        waiting.line.waiting.append(waiting.pending(number, ids, mask))
    waiting.calls = 0
    while waiting.line.waiting:
        waiting.line.take().run()
    assert waiting.calls == 2  # one for each length
    assert all(waiting.results[number].tobytes() == alone.tobytes() for number, alone in enumerate(asked))


def test_a_merged_call_that_takes_a_branch_which_was_not_tried_is_made_one_by_one():
    x = var("x", ("n", 2))
    among = x - op.max(x, axes=(0,), keepdims=True)  # which makes rows depend on each other
    waiting = Waiting(ModelConfig(), treadle.compile(Module(main=function([x], if_((x == 7.25).any(), among, x + x)))))
    assert merging(waiting.endpoint, 32).least == 1
    waiting.calls = 0
    for number, value in enumerate((1.0, 7.25, 3.0)):
        waiting.line.waiting.append(waiting.pending(number, np.full((1, 2), value, np.float32)))
    waiting.line.take().run()
    assert {number: array.tolist() for number, array in waiting.results.items()} == {
        0: [[2, 2]],
        1: [[0, 0]],
        2: [[6, 6]],
    }
    assert waiting.calls == 4


def test_each_function_that_is_not_merged_says_why():
    x, y = var("x", ("n", 2)), var("y", (3, 2))
    rows = treadle.for_loop(op.cast(op.max(x), dtype="int64"), lambda i, rows: rows + 1, [x])[0]
    for result, params, reason in (
        (rows, [x], "it has a loop at node 'test_batching.py:"),
        (x + op.max(y), [x, y], r"y is float32[3, 2], and does not begin with the dimension 'n'"),
        (op.matmul(x, op.permute_dims(x)), [x], "'n' is not its first dimension alone"),
        (op.softmax(x, axis=0), [x], "a row's result depends on other rows"),
    ):
        found = merging(endpoint(treadle.compile(Module(main=function(params, result)))), 32)
        assert found.least is None
        assert reason in found.text


class Waiting:
    """Requests in a line, and what became of them."""

    def __init__(self, config: ModelConfig, executable: treadle.Executable) -> None:
        self.line, self.endpoint = BatchLine("m", config), endpoint(executable, config)
        self.results: dict[int, Any] = {}
        self.calls = 0
        run = self.endpoint._run

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return run(*args, **kwargs)

        self.endpoint._run = counted  # type: ignore[method-assign]

    def pending(self, number: int, *arguments: np.ndarray, **settings: Any) -> Pending:
        def done(outputs: Any, error: Any) -> None:
            assert number not in self.results
            self.results[number] = error if error is not None else outputs[0]

        values: dict[str, Any] = {"rows": len(arguments[0]), "deadline": None, "cancel": None, **settings}
        return Pending(self.endpoint, list(arguments), values["rows"], values["deadline"], values["cancel"], done)


def test_each_request_gets_its_own_rows():
    waiting = Waiting(ModelConfig(max_batch=16), models.rows())
    inputs = [np.random.default_rng(seed).standard_normal((1 + seed % 3, 8)).astype(np.float32) for seed in range(9)]
    for number, x in enumerate(inputs):
        waiting.line.waiting.append(waiting.pending(number, x))
    while waiting.line.waiting:
        waiting.line.take().run()
    assert waiting.calls == 2  # 18 rows
    for number, x in enumerate(inputs):
        np.testing.assert_allclose(waiting.results[number], models.expected(x), rtol=1e-5)


def test_what_one_request_holds_is_not_the_others_error():
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    x = var("x", ("n",), "int64")
    waiting = Waiting(ModelConfig(), treadle.compile(Module(main=function([x], op.take(table, x, axis=0)))))
    for number, place in enumerate((1, 99, 3)):
        waiting.line.waiting.append(waiting.pending(number, np.array([place])))
    waiting.line.take().run()
    assert waiting.results[0].tolist() == [[2, 3]]
    assert waiting.results[2].tolist() == [[6, 7]]
    assert isinstance(waiting.results[1], treadle.TreadleError)


def test_requests_of_other_shapes_are_not_merged():
    x = var("x", ("n", "m"))
    waiting = Waiting(ModelConfig(), treadle.compile(Module(main=function([x], x + 1))))
    for number, width in enumerate((2, 3, 2)):
        waiting.line.waiting.append(waiting.pending(number, np.zeros((1, width), np.float32)))
    while waiting.line.waiting:
        waiting.line.take().run()
    assert waiting.calls == 2
    assert waiting.results[1].shape == (1, 3)


def test_a_request_waits_for_others_no_longer_than_said():
    waiting = Waiting(ModelConfig(max_delay=1.0, max_batch=4, preferred=(2,)), models.rows())
    row = np.zeros((1, 8), np.float32)
    first = waiting.pending(0, row)
    waiting.line.waiting.append(first)
    assert waiting.line.due(first.since + 0.5) == first.since + 1.0
    assert waiting.line.due(first.since + 1.5) == first.since + 1.5
    waiting.line.waiting.append(waiting.pending(1, row))
    assert waiting.line.due(first.since) == first.since  # two rows are preferred
    waiting.line.waiting.append(waiting.pending(2, row))
    assert waiting.line.due(first.since) == first.since + 1.0
    waiting.line.waiting.append(waiting.pending(3, row))
    assert waiting.line.due(first.since) == first.since  # full


def test_who_has_gone_or_comes_too_late_is_left_out():
    waiting = Waiting(ModelConfig(), models.rows())
    row = np.ones((1, 8), np.float32)
    token = treadle.CancelToken()
    token.cancel()
    for number, settings in enumerate(({}, {"cancel": token}, {"deadline": 0.0}, {})):
        waiting.line.waiting.append(waiting.pending(number, row, **settings))
    waiting.line.take().run()
    assert waiting.calls == 1
    assert [type(waiting.results[number]).__name__ for number in (1, 2)] == ["ClientGoneError", "DeadlineError"]
    np.testing.assert_array_equal(waiting.results[0], waiting.results[3])


def test_many_threads_get_what_they_asked_for():
    config = ModelConfig(max_batch=8, max_queue=1000)
    waiting, scheduler = Waiting(config, models.rows()), Scheduler(lambda: 2)
    ends = [threading.Event() for _ in range(200)]
    inputs = [np.random.default_rng(seed).standard_normal((1, 8)).astype(np.float32) for seed in range(200)]
    for number, x in enumerate(inputs):
        pending = waiting.pending(number, x)
        done = pending.done
        pending.done = lambda outputs, error, done=done, end=ends[number]: (done(outputs, error), end.set())
        scheduler.submit(waiting.line, pending)
    assert all(end.wait(20) for end in ends)
    for number, x in enumerate(inputs):
        np.testing.assert_allclose(waiting.results[number], models.expected(x), rtol=1e-5)


def test_a_configuration_says_what_it_cannot_be():
    with pytest.raises(FormatError, match="no setting 'batch'"):
        ModelConfig.parse('{"batch": 4}', "c.json")
    with pytest.raises(FormatError, match="max_batch = 0"):
        ModelConfig.parse('{"max_batch": 0}', "c.json")
    with pytest.raises(FormatError, match="not JSON"):
        ModelConfig.parse("[" * 100_000, "c.json")
    base = replace(ModelConfig(), max_queue=7)
    assert ModelConfig.parse('{"max_batch": 4, "preferred": [2]}', "c.json", base) == replace(
        base, max_batch=4, preferred=(2,)
    )


@pytest.mark.parametrize("sizes", [(16, 64, 64, 4), (300, 149), (2048, 1000)])
def test_one_row_is_called_alone_where_layers_are_dense(sizes: tuple[int, ...]):
    assert merging(endpoint(treadle.compile(mlp(sizes, batch="b"))), 32).least == 1


def test_one_row_is_called_as_two_where_alone_it_is_computed_in_another_order():
    found = endpoint(models.rows())
    call = found._machine.call

    def otherwise(name: str, arguments: list[np.ndarray], **bounds: Any) -> Any:
        return call(name, [x * 2 for x in arguments] if len(arguments[0]) == 1 else arguments, **bounds)

    found._machine.call = otherwise  # type: ignore[method-assign, assignment]
    found.least_rows = merging(found, 32).least or 0
    assert found.least_rows == 2
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    assert found.run([x[:1]])[0].tobytes() == found.run([x])[0][:1].tobytes()


def test_few_rows_of_short_texts_are_called_as_more_where_they_are_computed_in_another_order():
    x = var("x", ("n", "m"))
    found = endpoint(treadle.compile(Module(main=function([x], x + 1))))
    call = found._machine.call

    def otherwise(name: str, arguments: list[np.ndarray], **bounds: Any) -> Any:
        (x,) = arguments
        return call(name, [x * 2] if x.size < 4 else arguments, **bounds)

    found._machine.call = otherwise  # type: ignore[method-assign, assignment]
    tried = merging(found, 32)
    assert (tried.least, tried.least_small) == (1, 4)
    assert "few rows are called as 4" in tried.reason
    found.least_rows, found.least_small_rows = tried.least, tried.least_small
    for size in (1, 2, 3, 4, 9):
        (together,) = found.run([np.ones((6, size), np.float32)])
        for rows in (0, 1, 2, 3, 4, 5):
            (few,) = found.run([np.ones((rows, size), np.float32)])
            assert few.tobytes() == together[:rows].tobytes()


def test_an_answer_does_not_depend_on_what_else_is_asked():
    found = endpoint(models.rows())
    found.least_rows = merging(found, 32).least or 0
    assert found.least_rows == 1
    x = np.random.default_rng(0).standard_normal((32, 8)).astype(np.float32)
    (together,) = found.run([x])
    for rows in (1, 2, 3, 31):
        for first in range(0, 33 - rows, 5):
            (alone,) = found.run([x[first : first + rows]])
            (short,) = found.run_short([x[first : first + rows]])
            assert alone.tobytes() == short.tobytes() == together[first : first + rows].tobytes()
