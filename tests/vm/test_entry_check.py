"""What does not fit is said in the words of the function's signature: which argument, axis and size, by which other argument."""

import numpy as np
import pytest
import treadle
from treadle import Module, function, global_function, op, var
from treadle.formats.messages.errors import ArgumentError, BudgetExceededError, IndexOutOfRangeError, ShapeError


def machine_of(**functions):
    return treadle.VirtualMachine(treadle.compile(Module(**functions), entry=list(functions), progress=False))


def floats(*shape):
    return np.zeros(shape, np.float32)


@pytest.fixture(scope="module")
def masked():
    ids, mask = var("input_ids", ("batch", "s12")), var("attention_mask", ("batch", "s12"))
    return machine_of(main=function([ids, mask], ids * mask + 1))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ((2, 8), "main(attention_mask): axis 1 is s12 = 9 by input_ids, got 8"),
        ((3, 9), "main(attention_mask): axis 0 is batch = 2 by input_ids, got 3"),
        (
            (1, 1),
            "main(attention_mask): axis 0 is batch = 2 by input_ids, got 1; axis 1 is s12 = 9 by input_ids, got 1",
        ),
    ],
)
def test_an_argument_that_does_not_fit_another(masked, mask, message):
    with pytest.raises(ShapeError) as refused:
        masked["main"](floats(2, 9), floats(*mask))
    assert str(refused.value) == message
    assert (refused.value.function, refused.value.instruction) == ("main", 1)


def test_by_call_with_bounds_and_by_keyword_it_is_the_same(masked):
    message = "axis 1 is s12 = 9 by input_ids, got 8"
    for call in (
        lambda: masked.call("main", (floats(2, 9), floats(2, 8)), max_steps=1000),
        lambda: masked["main"](attention_mask=floats(2, 8), input_ids=floats(2, 9)),
        lambda: masked.profile("main", floats(2, 9), floats(2, 8)),
    ):
        with pytest.raises(ShapeError, match=message):
            call()


def test_a_size_that_is_computed_says_of_what():
    x, i = var("x", ("2*n", 4)), var("i", ("n",), "int64")
    machine = machine_of(main=function([x, i], op.take(x, i, axis=0)))
    with pytest.raises(ShapeError) as refused:
        machine["main"](floats(5, 4), np.array([0, 1]))
    assert str(refused.value) == "main(x): axis 0 is 2*n = 4 (n = 2 by i), got 5"


def test_a_size_that_stands_twice_in_one_argument():
    x = var("x", ("n", "n"))
    with pytest.raises(ShapeError) as refused:
        machine_of(main=function([x], x + 1))["main"](floats(2, 3))
    assert str(refused.value) == "main(x): axis 1 is n = 2 by another axis, got 3"


def test_a_check_of_the_programs_own_stays_what_it_is():
    x = var("x", ("n", 4))
    machine = machine_of(main=function([x], treadle.match_shape(x, (5, 4)) + 1))
    with pytest.raises(ShapeError, match=r"expected a tensor of shape \[5, 4\], got \[3, 4\] \[function 'main'"):
        machine["main"](floats(3, 4))


def test_a_keyword_that_is_no_parameter_suggests_one(masked):
    with pytest.raises(ArgumentError, match=r"'atention_mask' is not a parameter; did you mean attention_mask\?"):
        masked["main"](floats(2, 9), floats(2, 9), atention_mask=floats(2, 9))


# ---- indices ----


@pytest.mark.parametrize("kernels", ["build", "cached"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_an_index_is_named_with_its_axis_and_size(axis, kernels):
    x, i = var("x", ("n", 4)), var("i", ("m",), "int64")
    executable = treadle.compile(Module(main=function([x, i], op.take(x, i, axis=axis) * 2)), progress=False)
    machine = treadle.VirtualMachine(executable, kernels=kernels)
    size = (3, 4)[axis]
    with pytest.raises(
        IndexOutOfRangeError, match=f"index 7 is out of range for an axis of {size} elements, axis {axis % 2} "
    ):
        machine["main"](floats(3, 4), np.array([0, 7]))
    assert machine["main"](floats(3, 4), np.array([0])).shape


# ---- memory ----


def test_a_memory_budget_says_what_is_held_and_what_is_asked_for():
    x = var("x", ("n",))
    machine = machine_of(main=function([x], op.cumulative_sum(x, axis=0) + 1))
    with pytest.raises(BudgetExceededError, match=r"it has 5000 bytes, \d+ are held, and 40000 more are needed here"):
        machine.call("main", (floats(10_000),), max_memory=5000)


def test_an_argument_that_passes_the_budget_says_its_size():
    x = var("x", ("n",))
    machine = machine_of(main=function([x], x))  # its result may outlive the call: the argument is copied
    with pytest.raises(
        BudgetExceededError,
        match=r"main\(x\): it does not fit .*: it takes 4\d{4} bytes, 5000 are left; raise max_memory",
    ):
        machine.call("main", (floats(10_000),), max_memory=5000)


def test_the_first_frame_that_passes_the_budget_says_its_size():
    x = var("x", (1000,))
    machine = machine_of(main=function([x], op.cumulative_sum(x, axis=0) + 1))
    with pytest.raises(BudgetExceededError, match=r"the first frame takes \d+ bytes, of the memory budget 10 are left"):
        machine.call("main", (floats(1000),), max_memory=10)


def test_functions_of_a_program_are_told_apart():
    x, y = var("x", ("n",)), var("y", ("n",))
    a, b = var("a", ("p",)), var("b", ("q",))
    machine = machine_of(
        add=function([x, y], x + y), main=function([a, b], global_function("add")(a, treadle.match_shape(b, ("p",))))
    )
    assert machine["main"](floats(2), floats(2)).shape == (2,)
