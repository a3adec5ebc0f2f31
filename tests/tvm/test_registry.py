"""Functions by name, and what crosses their border."""

import ctypes

import numpy as np
import pytest
import treadle
import treadle.tvm as tvm
from treadle.tvm.runtime import PackedFunc, convert


@pytest.fixture
def name(request: pytest.FixtureRequest) -> object:
    yield request.node.name
    tvm.runtime.remove_global_func(request.node.name)


def test_a_registered_function_is_found_by_its_name(name: str) -> None:
    def function(*args: object) -> int:
        assert args == (10, 10.0, "hello")
        return 10

    registered = tvm.register_func(name, function)
    found = tvm.get_global_func(name)
    assert isinstance(registered, PackedFunc)
    assert isinstance(found, PackedFunc)
    assert found(10, 10.0, "hello") == 10
    assert name in tvm.runtime.list_global_func_names()


def test_it_decorates_with_and_without_a_name(name: str) -> None:
    @tvm.register_func(name)
    def one() -> int:
        return 1

    @tvm.register_func
    def registered_by_its_own_name() -> int:
        return 2

    assert (tvm.get_global_func(name)(), tvm.get_global_func("registered_by_its_own_name")()) == (1, 2)
    assert one() == 1
    tvm.runtime.remove_global_func("registered_by_its_own_name")


def test_a_name_is_taken_once_unless_it_is_said(name: str) -> None:
    tvm.register_func(name, lambda: 1)
    with pytest.raises(tvm.TVMError, match="already registered"):
        tvm.register_func(name, lambda: 2)
    assert tvm.get_global_func(name)() == 1
    tvm.register_func(name, lambda: 2, override=True)
    assert tvm.get_global_func(name)() == 2


def test_what_is_not_there_is_a_value_error_or_none(name: str) -> None:
    assert tvm.get_global_func(name, allow_missing=True) is None
    with pytest.raises(ValueError, match=f"Cannot find global function {name}"):
        tvm.get_global_func(name)
    tvm.register_func(name, lambda: 1)
    kept = tvm.get_global_func(name)
    tvm.runtime.remove_global_func(name)
    tvm.runtime.remove_global_func(name)
    assert tvm.get_global_func(name, allow_missing=True) is None
    assert kept() == 1


def test_names_are_strings() -> None:
    with pytest.raises(ValueError, match="expect string function name"):
        tvm.register_func(3)


@pytest.mark.parametrize(
    ("given", "arrives"),
    [
        (None, None),
        (3, 3),
        (True, 1),
        (np.int64((1 << 63) - 1), (1 << 63) - 1),
        (np.float32(1.5), 1.5),
        ("text", "text"),
        (b"bytes", bytearray(b"bytes")),
        (tvm.cuda(7), tvm.cuda(7)),
        (tvm.DataType("int8x4"), "int8x4"),
        ([1, "a", [2.0]], (1, "a", (2.0,))),
        ((), ()),
        ({"a": 1}, {"a": 1}),
    ],
)
def test_values_cross_both_ways(given: object, arrives: object) -> None:
    seen: list = []

    def function(value: object) -> object:
        seen.append(value)
        return given if not isinstance(given, tuple) else list(given)

    result = convert(function)(given)
    assert seen[0] == arrives
    assert result == arrives
    assert type(seen[0]) in (int, float, str, bytearray, type(None)) or not isinstance(seen[0], (list, np.generic))


def test_tensors_are_not_copied() -> None:
    x = tvm.nd.array([1, 2, 3])
    assert convert(lambda y: y)(x) == x
    assert convert(tvm.testing.object_use_count)(x) == 2
    assert tvm.testing.object_use_count(x) == 1
    given = bytearray(b"abc")
    convert(lambda y: y.clear())(given)  # bytes are
    assert given == b"abc"


def test_functions_cross_as_functions() -> None:
    def adder(y: int) -> object:
        return lambda x: x + y

    assert convert(adder)(10)(11) == 21
    assert isinstance(convert(lambda f: f)(len), PackedFunc)
    pointer = ctypes.c_void_p(3)
    assert convert(lambda p: p)(pointer) is pointer


@pytest.mark.parametrize("value", [1j, object(), np.zeros(2), 1 << 63])
def test_what_does_not_cross_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="cross"):
        convert(len)(value)


def test_a_function_has_one_result() -> None:
    with pytest.raises(ValueError, match="one return value, got 2"):
        convert(lambda: (1, 2))()


def test_what_a_function_raises_comes_through() -> None:
    def function() -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        convert(lambda: convert(function)())()
    assert caught.traceback[-1].name == "function"


def test_registered_classes_cross() -> None:
    @tvm.register_extension
    class Mine:
        pass

    mine = Mine()
    assert convert(lambda x: x)(mine) is mine
    assert issubclass(tvm.TVMError, treadle.TreadleError)


def test_functions_that_tvm_has_by_itself_are_there_when_they_are_asked_for() -> None:
    names = tvm.runtime.list_global_func_names()
    x = treadle.tvm.relay.var("x", shape=(2,))
    graph, library, _ = treadle.tvm.relay.build(treadle.tvm.relay.Function([x], x + x), "llvm")
    for name in ("tvm.graph_executor.create", "tvm.graph_executor_debug.create", "tvm.graph_runtime.create"):
        assert name in names
        module = tvm.get_global_func(name)(graph, library, 1, 0)
        module["set_input"]("x", tvm.nd.array(np.ones(2, "float32")))
        module["run"]()
        np.testing.assert_array_equal(module["get_output"](0).numpy(), [2, 2])
    assert tvm.get_global_func("runtime.GetDeviceAttr")(1, 0, 0) == 1
    assert tvm.get_global_func("runtime.GetDeviceAttr")(2, 0, 0) == 0
    assert tvm.get_global_func("runtime.GetDeviceAttr")(1, 0, 2) is None
    assert tvm.get_global_func("runtime.NumThreads")() == tvm.runtime.num_threads()
    saved = tvm.get_global_func("tvm.relay._save_param_dict")("x", tvm.nd.array([1.0]))
    assert saved == tvm.runtime.save_param_dict({"x": tvm.nd.array([1.0])})
    assert list(tvm.get_global_func("runtime.LoadParams")(saved)) == ["x"]
