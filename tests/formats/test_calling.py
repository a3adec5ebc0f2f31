"""What public functions and classes have in common: calls that do not fit, unknown attributes, warnings' lines."""

import inspect
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import treadle
from treadle import debug, errors
from treadle.formats.messages import calling, choices
from treadle.formats.messages.calling import public, public_class, warn_user


@public
def area(width: float, height: float = 1.0, *, unit: str = "m") -> str:
    """The area."""
    if unit == "wrong":
        raise TypeError("of the function's own")
    return f"{width * height} {unit}"


@public_class
class Shape:
    def __init__(self, *sides: float, closed: bool) -> None:
        self.sides, self.closed = sides, closed

    def turned(self, degrees: float) -> float:
        return degrees

    @staticmethod
    def of(name: str) -> str:
        return name


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: area(), "area: no value for width"),
        (lambda: area(1, 2, 3), "area: 2 arguments expected by position, got 3; by name: unit"),
        (lambda: area(1, heigth=2), "area: 'heigth' is not a parameter; did you mean height?"),
        (lambda: area(1, zzz=2), "area: 'zzz' is not a parameter; there are width, height, unit"),
        (lambda: area(1, width=2), "area: 'width' is given twice"),
        (lambda: Shape(1), "Shape: no value for closed"),
        (lambda: Shape(closed=True, clsed=1), "Shape: 'clsed' is not a parameter; did you mean closed?"),
        (lambda: Shape(closed=True).turned(), "Shape.turned: no value for degrees"),
        (lambda: Shape(closed=True).turned(1, 2), "Shape.turned: 1 argument expected, got 2"),
        (lambda: Shape.of(), "Shape.of: no value for name"),
    ],
)
def test_a_call_that_does_not_fit_says_what_does(call, message):
    with pytest.raises(errors.ArgumentError) as refused:
        call()
    assert str(refused.value) == message


def test_what_fits_is_as_it_was():
    assert (area(2, unit="cm"), Shape(1, 2, closed=False).sides, Shape.of("a")) == ("2.0 cm", (1, 2), "a")
    assert str(inspect.signature(area)) == "(width: float, height: float = 1.0, *, unit: str = 'm') -> str"
    assert area.__doc__ == "The area."
    with pytest.raises(TypeError, match="of the function's own") as own:
        area(1, unit="wrong")
    assert not isinstance(own.value, errors.TreadleError)


@pytest.mark.parametrize("error", [MemoryError(), ImportError("libx.so: failed to map segment from shared object")])
def test_no_memory_is_named_wherever_it_is_lacking(error: Exception, monkeypatch: pytest.MonkeyPatch):
    """Modules are imported when they are first used."""

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(treadle.importlib, "import_module", fail)
        patched.delitem(vars(treadle), "map_batches", raising=False)
        with pytest.raises(errors.OutOfMemoryError, match=r"no memory for the modules of treadle\.map_batches"):
            treadle.map_batches  # noqa: B018
    if isinstance(error, MemoryError):
        with pytest.raises(errors.OutOfMemoryError, match="fail: the system has no more memory"):
            public(fail)()


def test_every_public_name_tells_a_wrong_call():
    left_out = {"DType", "Event", "InstrumentAction"}  # enumerations, and what only machines make
    for module in (treadle, debug):
        for name in set(module.__all__) - left_out:
            call = getattr(module, name)
            if callable(call) and not (isinstance(call, type) and issubclass(call, Exception)) and name != "op":
                with pytest.raises(errors.TreadleError):
                    call(*range(60), nowhere=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda: treadle.Virtualmachine,
            "module 'treadle' has no attribute 'Virtualmachine'; did you mean VirtualMachine?",
        ),
        (lambda: treadle.relu, "module 'treadle' has no attribute 'relu'; there is treadle.op.relu"),
        (lambda: treadle.compare, "module 'treadle' has no attribute 'compare'; there is treadle.debug.compare"),
        (
            lambda: treadle.BudgetExceededError,
            "module 'treadle' has no attribute 'BudgetExceededError'; there is treadle.errors.BudgetExceededError",
        ),
        (lambda: debug.compar, "module 'treadle.debug' has no attribute 'compar'; did you mean compare or Comparison?"),
        (lambda: treadle.DType.float33, "DType has no 'float33'; did you mean float32 or float64 or float16?"),
        (
            lambda: treadle.CancelToken().cancl,
            "CancelToken has no attribute 'cancl'; did you mean cancel or cancelled?",
        ),
        (lambda: treadle.cpu().exists, "Device has no attribute 'exists'; did you mean exist?"),
    ],
)
def test_an_attribute_that_there_is_not_suggests_one_that_there_is(wrong, message):
    with pytest.raises(AttributeError) as unknown:
        wrong()
    assert isinstance(unknown.value, errors.TreadleError)
    assert str(unknown.value) == message


def test_a_function_is_no_attribute_of_its_machine():
    x = treadle.var("x", (2,))
    executable = treadle.compile(treadle.function([x], x + x), progress=False, embed_native=False)
    machine = treadle.VirtualMachine(executable, kernels="cached")
    with pytest.raises(
        AttributeError, match=r"no attribute 'main'; the program's function of that name is machine\['main'\]"
    ):
        machine.main  # noqa: B018
    assert not hasattr(machine, "_repr_svg_")


def test_numpys_errors_of_a_tensor_name_it():
    tensor = treadle.Tensor(np.zeros((2, 3), np.float32))
    for wrong, kind, message in (
        (
            lambda: tensor[5],
            errors.IndexOutOfRangeError,
            "float32[2, 3]: index 5 is out of bounds for axis 0 with size 2",
        ),
        (lambda: tensor["a"], errors.IndexOutOfRangeError, "float32[2, 3]['a']: a tensor has no names"),
        (lambda: bool(tensor), errors.CheckError, "float32[2, 3]: the truth value of 6 elements is ambiguous"),
        (lambda: tensor + "a", errors.ArgumentError, "float32[2, 3]: ufunc 'add'"),
        (lambda: tensor.sum(axis=4), errors.IndexOutOfRangeError, "float32[2, 3]: axis 4 is out of bounds"),
        (lambda: tensor.reshape(4), errors.CheckError, "float32[2, 3]: cannot reshape array of size 6"),
        (lambda: f"{tensor:.2f}", errors.CheckError, "float32[2, 3]: can only convert an array of size 1"),
    ):
        with pytest.raises(kind) as refused:
            wrong()
        assert str(refused.value).startswith(message)
    assert tensor.sum() == 0
    assert [1, 2, 3][treadle.Tensor(np.array(1))] == 2


def test_a_warning_points_at_the_user():
    names: dict[str, object] = {"__name__": f"{treadle.__name__}.vm.deep", "warn_user": warn_user}
    exec("def deeper():\n    warn_user('told')\n\ndef deep():\n    deeper()", names)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        names["deep"]()  # type: ignore[operator]
    assert Path(told[0].filename).name == Path(__file__).name


def test_what_was_meant_is_looked_for_when_somebody_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`hasattr` is a question, not a mistake: it was answered with a sentence, which took longer than a call of a machine."""
    looked: list[str] = []
    for module in (calling, choices):
        monkeypatch.setattr(module, "near", lambda name, known: looked.append(name) or "; did you mean this?")
    assert not hasattr(treadle.CancelToken(), "cancl")
    assert getattr(treadle.DType, "float33", None) is None
    assert not looked
    with pytest.raises(AttributeError) as raised:
        treadle.CancelToken().cancl  # noqa: B018
    assert str(raised.value) == str(raised.value) == "CancelToken has no attribute 'cancl'; did you mean this?"
    assert looked == ["cancl"]
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
