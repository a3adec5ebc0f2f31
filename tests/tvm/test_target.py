"""`tvm.target`: what text, mappings and targets say."""

import pytest
import treadle.tvm as tvm
from treadle.tvm.target import Target


def test_text_is_a_kind_and_options() -> None:
    target = Target("llvm -mcpu=skylake -mattr=+avx2,+fma -libs=mkl -num-cores=4", host="llvm")
    assert target.kind.name == str(target.kind) == "llvm"
    assert (target.mcpu, target.mattr, target.libs, target.attrs["num-cores"]) == (
        "skylake",
        ["+avx2", "+fma"],
        ["mkl"],
        4,
    )
    assert target.keys == ["cpu"]
    assert target.host.kind.name == "llvm"
    assert target.native == "skylake:+avx2,+fma"
    assert Target("llvm").native is None
    assert target.get_target_device_type() == tvm.cpu().device_type


def test_what_is_exported_makes_the_same_target() -> None:
    target = Target("cuda -arch=sm_80", host="llvm -mcpu=x")
    assert Target(target.export()) == target
    assert Target(str(Target("llvm -mcpu=x"))) == Target("llvm -mcpu=x")
    assert Target('{"kind": "llvm", "mcpu": "x"}') == Target({"kind": "llvm", "mcpu": "x"})
    assert tvm.device(target.kind.name) == tvm.cuda(0)
    assert Target.canon_target_and_host("llvm", "c")[1] == Target("c")


def test_what_is_no_number_stays_text() -> None:
    assert [Target(f"llvm -x={text}").attrs["x"] for text in ("-5", "--5", "9" * 5000)] == [-5, "--5", "9" * 5000]


@pytest.mark.parametrize(
    "text",
    [
        "llvm -link-params",
        "c -executor=aot",
        "",
        "quark",
        "llvm mcpu=x",
        "llvm -",
        "{",
        'llvm -x="',
        '{"kind": "llvm", "keys": 7}',
        '{"kind": []}',
    ],
)
def test_other_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="Target"):
        Target(text)
    with pytest.raises(TypeError, match="string or dictionary"):
        Target(3)


def test_the_innermost_target_is_the_current_one() -> None:
    assert Target.current() is None
    with pytest.raises(ValueError, match="context required"):
        Target.current(allow_none=False)
    with Target("llvm") as outer:
        with tvm.target.cuda():
            assert Target.current().kind == "cuda"
        assert Target.current() is outer


def test_the_module_where_tvm_defines_it_is_there() -> None:
    from treadle.tvm.relay.backend.executor import Executor
    from treadle.tvm.target.target import Target as Defined

    assert Defined is Target
    assert Executor("graph", {"link-params": True})["link-params"]
