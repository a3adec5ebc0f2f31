"""What can be compiled: functions, dicts of them, several modules, models of other libraries; and values of data types as
arguments."""

import asyncio
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import pytest
import treadle
from onnx import TensorProto, helper
from treadle import Module, data_type, function, match_, op, tuple_, var
from treadle.formats.messages.errors import ArgumentError, CompileError, InferenceError
from treadle.formats.types import FunctionType, tensor

X = np.array([1, 2], np.float32)
x = var("x", (2,))
L = data_type("List = Nil | Cons(float32[2], List)")


def machine(model, **options):
    return treadle.VirtualMachine(treadle.compile(model, progress=False, **options))


def test_a_function_is_compiled_as_main():
    vm = machine(function([x], x + 1))
    assert list(vm) == ["main"]
    assert vm["main"](X).tolist() == [2, 3]
    assert list(machine(function([x], x + 1), entry="more")) == ["more"]


def test_all_functions_of_a_dict_can_be_called():
    vm = machine({"double": function([x], x * 2), "half": function([x], x / 2)})
    assert vm["double"](X).tolist() == [2, 4]
    assert vm["half"](X).tolist() == [0.5, 1]


def test_modules_are_made_one():
    double = treadle.global_function("double", FunctionType((tensor("float32", (2,)),), tensor("float32", (2,))))
    one, two = Module(main=function([x], double(x) + 1)), Module(double=function([x], x * 2))
    for model in ([one, two], Module(one, two), [one, {"double": function([x], x * 2)}]):
        assert machine(model)["main"](X).tolist() == [3, 5]


def test_a_name_that_comes_twice_is_an_error():
    one = Module(main=function([x], x))
    for make in (lambda: Module(one, one), lambda: Module({"main": function([x], x)}, main=function([x], x))):
        with pytest.raises(InferenceError, match="two functions 'main'"):
            make()
    other = Module(more=function([x], x), data_types=[data_type("List = Nil | Cons(int8[2], List)")])
    with pytest.raises(InferenceError, match=r"data type 'List' is .* and .*; a name has one type"):
        Module(Module(main=function([x], x), data_types=[L]), other)


@pytest.mark.parametrize("part", [{"main": 3}, {"main": x}, {1: function([x], x)}, 3])
def test_what_is_no_function_is_named(part):
    with pytest.raises(InferenceError, match="Module: "):
        Module(part)


def length():
    """The sum of a list, and its first element."""
    values = var("values", L())
    total = treadle.global_function("total", FunctionType((L(),), tensor("float32", (2,))))
    zeros = np.zeros(2, np.float32)
    body = match_(values, {L.Nil: treadle.constant(zeros), L.Cons: lambda first, rest: first + total(rest)})
    return {"total": function([values], body)}


def test_constructors_make_arguments():
    vm = machine(length())
    assert vm["total"](L.Nil()).tolist() == [0, 0]
    assert vm["total"](L.Cons(X, L.Cons(X, L.Nil()))).tolist() == [2, 4]
    many = L.Nil()
    for _ in range(5000):
        many = L.Cons(X, many)
    assert vm.call("total", [many], max_depth=20000).tolist() == [5000, 10000]
    vm.set_input("total", L.Cons(X, L.Nil()))
    assert vm.invoke("total").tolist() == [1, 2]


def test_what_comes_out_goes_in_again():
    vm = machine({"push": push(), **length()})
    out = vm["push"](X, L.Nil())
    assert out.constructor == "Cons"
    assert out.fields[0].tolist() == [1, 2]
    assert vm["total"](vm["push"](X, out)).tolist() == [2, 4]


def push():
    rest = var("rest", L())
    return function([x, rest], L.Cons(x, rest))


def test_an_expression_that_must_be_computed_is_no_argument():
    vm = machine(length())
    with pytest.raises(InferenceError, match="constants and constructors alone; 'exp'"):
        vm["total"](L.Cons(op.exp(X), L.Nil()))
    with pytest.raises(ArgumentError, match="expected List"):
        vm["total"](tuple_(X, X))


# ---- models of other libraries ----


def of_library(root, name):
    """An object whose class says that it is of that library."""
    return type(name, (), {"__module__": f"{root}.inner"})()


def doubled():
    """An ONNX model: y = x + x."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    return helper.make_model(helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", infos[:1], infos[1:]))


@pytest.fixture
def converters(monkeypatch):
    """Stands in for the converters: what each function was called with."""
    calls = []

    def convert(model, initial_types):
        calls.append((model, initial_types))
        return doubled()

    types = SimpleNamespace(FloatTensorType=lambda shape: ("float32", shape))
    packages = {
        "skl2onnx": SimpleNamespace(convert_sklearn=convert),
        "skl2onnx.common.data_types": types,
        "onnxmltools": SimpleNamespace(convert_lightgbm=convert, convert_xgboost=convert),
        "onnxmltools.convert.common.data_types": types,
        "lightgbm": SimpleNamespace(Booster=lambda model_file: SimpleNamespace(num_feature=lambda: 7)),
        "xgboost": SimpleNamespace(Booster=lambda model_file: SimpleNamespace(num_features=lambda: 7)),
    }
    for name, members in packages.items():
        package = ModuleType(name)
        vars(package).update(vars(members))
        monkeypatch.setitem(sys.modules, name, package)
    return calls


@pytest.mark.parametrize(
    ("root", "name"), [("sklearn", "BaseEstimator"), ("lightgbm", "Booster"), ("xgboost", "XGBModel")]
)
def test_models_that_a_converter_takes_are_converted(converters, root, name):
    model = of_library(root, name)
    model.n_features_in_ = 5
    assert machine(model)["main"](X).tolist() == [2, 4]
    assert converters == [(model, [("X", ("float32", [None, 5]))])]


@pytest.mark.parametrize(
    "content",
    [
        b"tree\nversion=v4\nnum_class=1\n",
        b'{"learner":{"attributes":{}}}',
        b"{L\0\0\0\0\0\0\0\x07learner{",
    ],
)
def test_files_that_a_converter_takes_are_converted(converters, content, tmp_path):
    for name in ("model.onnx", "model"):  # a file from outside reaches no reader but ours
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CompileError, match=r"is not an ONNX model: it is a model of .*under a name that ends in"):
            treadle.compile(tmp_path / name)
    assert converters == []
    path = tmp_path / "model.model"
    path.write_bytes(content)
    assert machine(path)["main"](X).tolist() == [2, 4]
    assert [types for _, types in converters] == [[("X", ("float32", [None, 7]))]]


def test_what_torch_s_exporter_gives_is_compiled():
    program = of_library("torch", "ONNXProgram")
    program.model_proto = doubled()
    assert machine(program)["main"](X).tolist() == [2, 4]


@pytest.mark.parametrize(
    ("root", "name", "advice"),
    [
        ("torch", "Module", r"a Module of PyTorch: torch.onnx.export\(module, .*writes a file"),
        ("torch", "ExportedProgram", r"torch.onnx.export\(program.module\(\)"),
        ("keras", "Layer", "format='onnx'"),
        ("catboost", "CatBoost", "save_model"),
        (
            "sklearn",
            "BaseEstimator",
            "skl2onnx makes an ONNX model of it, and .* is not installed: pip install skl2onnx",
        ),
        (
            "lightgbm",
            "Booster",
            "onnxmltools makes an ONNX model of it, and .* is not installed: pip install onnxmltools",
        ),
    ],
)
def test_what_is_exported_first_is_told_how(root, name, advice, monkeypatch):
    for missing in ("skl2onnx", "onnxmltools", "skl2onnx.common.data_types", "onnxmltools.convert.common.data_types"):
        monkeypatch.setitem(sys.modules, missing, None)
    model = of_library(root, name)
    model.graph, model.n_features_in_ = onnx.GraphProto(), 3  # as torch.fx has it, which is not an ONNX model
    with pytest.raises(CompileError, match=advice):
        treadle.compile(model)


def test_a_converter_s_refusal_says_what_to_do(converters):
    with pytest.raises(CompileError, match=r"skl2onnx cannot convert it .*not fitted.*compile the ONNX model"):
        treadle.compile(of_library("sklearn", "BaseEstimator"))


# ---- habits of others ----


def test_habits_of_onnxruntime_are_answered_with_what_to_write():
    y = var("y", (2,))
    one, two = machine(function([x], x + x)), machine(function([x, y], x + y))
    for vm, feeds in ((one, {"x": X}), (two, {"x": X, "y": X})):
        for names in (None, ["add"]):
            with pytest.raises(ArgumentError, match=r"here machine.run\(\*\*feeds\) calls the function"):
                vm.run(names, feeds)
        with pytest.raises(ArgumentError, match=r"machine\['main'\]\(\*\*feeds\)|no value for y"):
            vm["main"](feeds)
        assert vm.run(**feeds).tolist() == [2, 4]
    with pytest.raises(ArgumentError, match=r"machine.call\(name, kwargs=feeds\)"):
        one.call("main", {"x": X})
    with pytest.raises(AttributeError, match="one result gives the tensor itself"):
        _ = one["main"](X).add


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ("x.trdl", r"treadle.load\('x.trdl'\)"),
        ("x.onnx", r"treadle.compile\('x.onnx'\)"),
        (b"x", r"treadle.load\(data\)"),
        (3, r"treadle.compile\(model\)"),
    ],
)
def test_what_is_no_executable_is_told_how_to_make_one(given, instead):
    with pytest.raises(ArgumentError, match=instead):
        treadle.VirtualMachine(given)


# ---- values of data types, without the program's text ----


def test_data_types_travel_with_the_executable():
    loaded = treadle.load(treadle.compile(length(), progress=False).as_bytes())
    types = loaded.types
    values = types.List.Cons(X, types.List.Cons(X, types.List.Nil()))
    vm = treadle.VirtualMachine(loaded)
    assert vm["total"](values).tolist() == [2, 4]
    assert (list(types), [each.constructor.name for each in types["List"]]) == (["List"], ["Nil", "Cons"])
    with pytest.raises(ArgumentError, match=r"Cons of List takes float32\[2\], List, got 1 values"):
        types.List.Cons(X)
    with pytest.raises(AttributeError, match=r"has no attribute 'list'.*did you mean List"):
        _ = types.list
    with pytest.raises(KeyError, match="there is no data type 'Tree'; there is List"):
        types["Tree"]


def test_of_instances_of_one_type_each_has_its_name():
    List_ = data_type("List[a] = Nil | Cons(a, List[a])")
    xs, ys = var("xs", List_(treadle.TensorType("float32"))), var("ys", List_(treadle.TensorType("int64")))
    heads = [
        match_(each, {List_.Nil: treadle.constant(zero), List_.Cons: lambda head, tail: head})
        for each, zero in ((xs, 0.0), (ys, 0))
    ]
    types = treadle.compile(function([xs, ys], tuple_(*heads)), progress=False).types
    assert set(types) == {"List[float32[]]", "List[int64[]]"}
    with pytest.raises(AttributeError, match=r"there are types\['List\[float32\[\]\]'\]"):
        _ = types.List


def test_a_program_with_data_types_is_run_from_the_command_line(tmp_path, capsys):
    from treadle.tools.cli import main

    path = str(tmp_path / "length.trdl")
    treadle.compile(length(), progress=False).export_library(path)
    text = '{"Cons": [[1, 2], {"Cons": [[0.5, 0], "Nil"]}]}'
    (tmp_path / "values.json").write_text(text)
    for given in (f"values={text}", text, f"values=@{tmp_path}/values.json"):
        assert main(["run", path, "--function", "total", "--input", given]) == 0
        assert "[1.5, 2. ]" in capsys.readouterr().out
    for given, message in (
        ([], 'values is List: write it as JSON, --input values=JSON, such as \'{"Cons": [[0.5, 0.5], "Nil"]}\''),
        (["--input", "values=random"], "expected List as JSON, such as"),
        (["--input", 'values={"Con": []}'], '{"Con": []} is none of Nil, Cons; did you mean Cons'),
        (["--input", 'values={"Cons": [1]}'], "Cons has 2 fields, got 1"),
        (["--input", "values={"], "expected List as JSON"),
    ):
        assert main(["run", path, "--function", "total", *given]) == 2
        assert message in capsys.readouterr().err


# ---- calls that are awaited ----


def test_calls_are_awaited_and_end_with_their_task():
    vm = machine(function([x], x + x))
    n = var("n", (), "int64")
    forever = machine(function([n], treadle.while_loop(lambda k: k >= 0, lambda k: k * 0, [n])[0]))

    async def work():
        several = await asyncio.gather(
            *(vm.call_async("main", [X * number]) for number in range(3)), vm.call_async("main", kwargs={"x": X})
        )
        with pytest.raises(treadle.TreadleError, match="max_seconds"):
            await forever.call_async("main", [np.int64(1)], max_seconds=0.05)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(forever.call_async("main", [np.int64(1)]), 0.05)
        return [each.tolist() for each in several]

    assert asyncio.run(work()) == [[0, 0], [2, 4], [4, 8], [2, 4]]
