"""What calls take and give, by name: results that are tuples with names, outputs by name, signatures."""

import copy
import inspect
import keyword
import pickle

import numpy as np
import pytest
import treadle
from treadle import Module, function, op, tuple_, var
from treadle.formats.messages.errors import ArgumentError, UnknownOutputError
from treadle.vm.outputs import Outputs, _written, outputs_class

X = np.array([[0.0, 1.0]], np.float32)


@pytest.fixture(scope="module")
def vm():
    x, size = var("x", ("n", 2)), var("size", ())
    module = Module(
        main=function([x], tuple_(op.sigmoid(x), op.exp(x))),
        one=function([x, size], x * size),
        count=function([x], tuple_(op.exp(x), tuple_(x, x))),
        oddly=function([x, var("in put", ()), var("class", ()), var("plain", ())], x),
    )
    return treadle.VirtualMachine(treadle.compile(module, entry=("main", "one", "count", "oddly")))


@pytest.fixture(params=["call", "invoke", "saved", "stateful", "listening", "bounded"])
def result(vm, request):
    """The two results of main, by each way to call it."""
    if request.param == "call":
        return vm["main"](X)
    if request.param == "invoke":
        return vm.invoke("main", x=X)
    if request.param == "saved":
        return vm.saved_call("main", X)()
    if request.param == "bounded":
        return vm.call("main", [X], max_seconds=60)
    if request.param == "listening":
        with vm.listening(treadle.vm.observe.hooks.Listener()):
            return vm["main"](X)
    vm.set_input("main", X)
    vm.invoke_stateful("main")
    return vm.get_outputs("main")


def test_several_results_are_a_tuple_with_names(result):
    sigmoid, exp = result
    assert isinstance(result, tuple)
    assert len(result) == 2
    assert result["sigmoid"] is result.sigmoid is result[0] is sigmoid
    assert result["exp"] is result[-1] is exp
    assert result[:1] == (sigmoid,)
    assert result._asdict() == {"sigmoid": sigmoid, "exp": exp}
    assert result._fields == ("sigmoid", "exp")
    np.testing.assert_allclose(exp.numpy(), np.exp(X), rtol=1e-6)


def test_a_machine_says_what_its_executable_says(vm):
    assert vm.inputs("one") == vm.executable.inputs("one")
    assert [(port.name, port.dtype, port.shape) for port in vm.inputs("one")] == [
        ("x", np.float32, ("n", 2)),
        ("size", np.float32, ()),
    ]
    assert [port.name for port in vm.outputs()] == ["sigmoid", "exp"]


@pytest.mark.parametrize("ask", [lambda r: r["tanh"], lambda r: r.tanh], ids=["item", "attribute"])
@pytest.mark.parametrize("kind", [UnknownOutputError, KeyError, AttributeError])
def test_a_name_that_there_is_not(vm, ask, kind):
    with pytest.raises(kind, match="there is no output 'tanh'; the call gave 'sigmoid', 'exp'"):
        ask(vm["main"](X))


def test_results_with_names_can_be_pickled_and_copied(vm):
    result = vm["main"](X)
    for other in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result), copy.copy(result)):
        assert type(other) is type(result)
        assert other._fields == result._fields
        np.testing.assert_array_equal(other.exp, result.exp)


def test_a_result_is_shown_with_its_names(vm):
    assert repr(vm["main"](X)).startswith("Outputs(sigmoid=Tensor(")
    assert {"sigmoid", "exp", "_asdict"} <= set(dir(vm["main"](X)))
    assert vm["main"](X)._ipython_key_completions_() == ["sigmoid", "exp"]


def test_names_that_python_cannot_write_are_keys():
    odd = outputs_class(("the values", "class", "count", "_fields", "__len__"))(1, 2, 3, 4, 5)
    assert [odd[name] for name in odd._fields] == [1, 2, 3, 4, 5]
    assert odd.count == 3
    assert len(odd) == 5
    with pytest.raises(ArgumentError, match="expected 5 values, got 2"):
        type(odd)(1, 2)


def test_a_tuple_within_results_is_a_tuple(vm):
    exp, pair = vm["count"](X)
    assert type(pair) is tuple
    assert isinstance(vm["count"](X), Outputs)
    assert type(exp) is treadle.Tensor


def test_an_output_by_name(vm):
    vm.set_input("main", X)
    vm.invoke_stateful("main")
    assert vm.get_outputs("main", "exp") is vm.get_outputs("main", 1)
    with pytest.raises(UnknownOutputError, match="main: output 'tanh' is asked for; there is 'sigmoid', 'exp'"):
        vm.get_outputs("main", "tanh")
    vm.set_input("one", X, np.float32(2))
    vm.invoke_stateful("one")
    assert vm.get_outputs("one", vm.outputs("one")[0].name) is vm.get_outputs("one")


def test_a_call_has_a_signature(vm):
    signature = inspect.signature(vm["one"])
    assert list(signature.parameters) == ["x", "size"]
    assert str(signature) == "(x: float32[n, 2], size: float32[]) -> float32[n, 2]"
    assert "in   size: float32[]" in inspect.getdoc(vm["one"])
    assert str(inspect.signature(vm["main"])).endswith("-> (float32[n, 2], float32[n, 2])")


def test_parameters_that_python_cannot_write_are_taken_by_position(vm):
    signature = inspect.signature(vm["oddly"])
    assert list(signature.parameters) == ["x", "in_put", "class_", "plain"]
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    assert kinds == [inspect.Parameter.POSITIONAL_ONLY] * 3 + [inspect.Parameter.POSITIONAL_OR_KEYWORD]


@pytest.mark.parametrize("name", ["²", "½", "٣", "a²", "\N{ROMAN NUMERAL ONE}", "a b", "", "class", "\x1b[2J"])
def test_any_name_is_one_that_python_writes_in_a_signature(name: str):
    (written,) = _written([name])
    assert written.isidentifier()
    assert not keyword.iskeyword(written)


def test_a_saved_call_has_no_parameters(vm):
    vm.save_function("one", "twice", X, np.float32(2))
    assert not inspect.signature(vm["twice"]).parameters


def test_results_are_a_mapping_by_name_too():
    results = outputs_class(("a", "b"))(1, 2)
    assert dict(results) == {"a": 1, "b": 2}
    assert {**results} == {"a": 1, "b": 2}
    assert list(results.items()) == [("a", 1), ("b", 2)]
    assert outputs_class(("values", "indices"))(1, 2).values == 1  # a name of the model's comes first
