"""Kernel texts mean what Python means by them: the same text, compiled and run by Python, gives the same words."""

import ctypes
import hashlib
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.compiler.targets.cpu.target import host
from treadle.compiler.targets.cpu.toolchain.worker import compile_kernel
from treadle.formats.messages.errors import CompileError
from treadle.native.convention import ARGUMENT_HEAD, STOP_WORD, STOPPED
from treadle.native.platform import load_object

NATIVE = host().native
SMALL = st.integers(-20, 20)
WORDS = st.tuples(SMALL, SMALL, SMALL, SMALL)

TEXTS = {
    "arithmetic": "return (args * part - scratch << 2) + (part & parts | scratch ^ args) - ~parts + (args >> 1) + -part",
    "division": "return args // 7 * 1000000 + args % 7 * 10000 + args // -3 * 100 + args % -5 + (part // 4 * 4 - part)",
    "variable divisors": """
        a = scratch if scratch != 0 else 1
        return args // a * 1000 + args % a""",
    "choices": "return min(args, part) * 100 + max(scratch, parts) + (7 if args > part else -7)",
    "conditions": """
        found = 0
        if args < part <= parts and not scratch == 3:
            found += 1
        elif args > 5 or part > 5 or parts:
            found += 10
        else:
            found -= 1
        is_between = -5 < args < scratch
        if is_between:
            found += 100
        return found""",
    "ranges": """
        total = 0
        for i in range(args):
            total += i
        for i in range(args, part):
            total = (total * 3 + i) % 1000003
        for i in range(scratch, -parts, 3):
            total = (total * 5 - i) % 1000003
        for i in range(args, scratch, -2):
            total = (total * 7 + i) % 1000003
        return total""",
    "variable steps": """
        total = 0
        for i in range(args, part, scratch if scratch != 0 else 1):
            for j in range(i, 4):
                total = (total * 3 + i * j) % 1000003
        return total""",
    "ways out": """
        total = 0
        for i in range(100):
            if i == args:
                continue
            if i > part:
                break
            total += i
            if total > 60:
                return -total
        while total > 0:
            total -= 7
            if total % 5 == 0:
                break
        return total""",
    "values from inside": """
        last = -1
        for i in range(args):
            last = i * 2
            inner = last + 1
        if args > 0:
            last += inner
            other = i
        if args > 0:
            last += other
        for args in range(args, args + 3):
            last += args
        return last + args""",
}


def compiled(body: str):
    """The kernel with that body, and the same function of Python."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    source = f"def kernel(args, scratch, part, parts):\n{lines}\n"
    symbol = f"test_{hashlib.sha256(source.encode()).hexdigest()}"
    address = load_object(compile_kernel(symbol, source, 16, NATIVE))[symbol]
    native = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 4)(address)
    names: dict = {}
    exec(source, names)

    def call(*words: int) -> int:
        result = ctypes.c_int64()
        assert native(ctypes.addressof(result), None, *words) == 0
        return result.value

    return call, names["kernel"]


@pytest.mark.parametrize("name", TEXTS)
def test_texts_mean_what_python_means(name: str):
    kernel, function = compiled(TEXTS[name])

    @given(WORDS)
    def check(words):
        assert kernel(*words) == function(*words)

    check()


ENDLESS = {
    "outer loops": """
        stoppable(args)
        for i in range(part):
            for j in range(parts):
                store_int64(scratch, 0, i + j)
        return 7""",
    "innermost loops": """
        stoppable(args)
        for i in range(part):
            store_int64(scratch, 0, word(scratch, 0) + i)
        return 7""",
    "loops of few rounds": """
        stoppable(args)
        for a in range(64):
            for b in range(64):
                for c in range(64):
                    for d in range(64):
                        for e in range(64):
                            for f in range(64):
                                if part > 3:
                                    store_int64(scratch, 0, word(scratch, 0) * 3 + f)
                                else:
                                    return 7
        return 7""",
    "loops that wait": """
        stoppable(args)
        while atomic_load(scratch, 1) < part:
            relax()
        return 7""",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_loops_end_when_the_stop_word_is_set(name: str):
    kernel, _ = compiled(ENDLESS[name])
    arguments, scratch = (ctypes.c_int64 * ARGUMENT_HEAD)(), (ctypes.c_int64 * 2)(0, 3)
    end = ctypes.addressof(arguments) + ctypes.sizeof(arguments)
    assert kernel(end, ctypes.addressof(scratch), 3, 5) == 7
    arguments[STOP_WORD] = 1
    assert kernel(end, ctypes.addressof(scratch), 1 << 40, 5) == STOPPED


EXTREMES = (-(1 << 63), -(1 << 63) + 1, -65, -1, 0, 1, 63, (1 << 63) - 1)


@pytest.mark.parametrize("by", ["part", "1", "64", "7", "-1", "-64"])
def test_any_integer_is_divided(by: str):
    quotient, _ = compiled(f"return args // {by}")
    rest, _ = compiled(f"return args % {by}")
    for number in EXTREMES:
        for divisor in EXTREMES if by == "part" else [int(by)]:
            wanted = divmod(number, divisor) if divisor else (0, 0)
            words = number, 0, divisor, 0
            assert (quotient(*words), rest(*words)) == (ctypes.c_int64(wanted[0]).value, wanted[1]), words


@pytest.mark.parametrize("step", [-(1 << 63), -3, -1, 1, 3, (1 << 63) - 1])
def test_ranges_that_end_near_the_last_integer_have_the_right_number_of_rounds(step: int):
    kernel, _ = compiled(
        f"""
        rounds = 0
        for i in range(args, part, {step}):
            rounds += 1
        return rounds"""
    )
    last = (1 << 63) - 1
    for start, stop in (
        (last - 7, last),
        (last, last - 7),
        (-last, -last + 7),
        (-last + 7, -last - 1),
        (0, last),
        (-1, -last - 1),
    ):
        if len(range(start, stop, step)) < 100:
            assert kernel(start, 0, stop, 0) == len(range(start, stop, step)), (start, stop)


def test_there_is_no_division_by_zero_and_no_loop_by_steps_of_zero():
    kernel, _ = compiled(
        """
        rounds = 0
        for i in range(0, args, part):
            rounds += 1
        return args // part + args % part + rounds"""
    )
    assert kernel(7, 0, 0, 0) == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x = 1\nx = 1.0\nreturn 0", "line 3: x is int64, and cannot become float64"),
        ("return nothing", "line 2: nothing is not known"),
        ("x = 1", "no result at the end"),
        ("x = min(args, 1.0)\nreturn 0", r"line 2: there is no min\(int64, float64\)"),
        ("with x:\n    pass\nreturn 0", "compiled functions know no With"),
        ("for i in (1, 2):\n    pass\nreturn 0", "a for loop is over a range"),
        ("return 1.5", "float64 is not an integer"),
        ("return (", "the text of a kernel is one function"),
    ],
)
def test_what_is_no_kernel_is_refused(body: str, message: str):
    with pytest.raises(CompileError, match=message):
        compiled(body)
