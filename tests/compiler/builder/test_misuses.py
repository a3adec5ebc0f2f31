"""Mistakes that people make with the builder and the public names: each has a sentence of its own, of Treadle's errors.

The table is what users read: a changed message is changed here.
"""

import asyncio
import functools
import inspect
import random

import numpy as np
import pytest
import treadle
from treadle import *  # noqa: F403
from treadle import Module, data_type, function, op, tuple_, var
from treadle.formats.messages.errors import TreadleError

x = var("x", (2, 3))
L = data_type("List = Nil | Cons(float32[], List)")
f1 = function([x], x + 1)
M = Module(main=f1)

# fmt: off
MISUSES = [
    ('var(3, (2,))', 'var: name: expected a name, a string that is not empty, got 3'),
    ('var("x", 3)', "var('x'): shape: expected a list of sizes, got 3"),
    ('var("x", "n")', "var('x'): shape: expected a list of sizes, got 'n'"),
    ('var("x", (2.5,))', 'var(\'x\'): shape[0]: expected an integer, or a name such as "n", got 2.5'),
    ('var("x", (-1,))', 'var(\'x\'): shape[0]: expected a size from 0 to 140737488355327, got -1; a size that is not known is a name, such as "n"'),  # noqa: E501
    ('var("x", (None,))', 'var(\'x\'): shape[0]: expected an integer, or a name such as "n", got None'),
    ('var("x", ("n +",))', "'n +' is not a dimension (at 'its end')"),
    ('var("x", (True,))', 'var(\'x\'): shape[0]: expected an integer, or a name such as "n", got True'),
    ('var("x", [[1]])', 'var(\'x\'): shape[0]: expected an integer, or a name such as "n", got a list'),
    ('var("", (2,))', "var: name: expected a name, a string that is not empty, got ''"),
    ('constant(None)', 'constant: expected an expression, an array or a number, got None'),
    ('constant("a")', "constant: expected an expression, an array or a number, got 'a'; var('a', shape) makes a variable"),
    ('constant([x, x])', 'constant: expected an expression, an array or a number, got a list; tuple_(*values) makes a tuple of tensors, op.concat(*values, axis=0) one tensor'),  # noqa: E501
    ('constant({"a": 1})', 'constant: expected an expression, an array or a number, got a dict; results by name are a tuple: tuple_(…)'),  # noqa: E501
    ('constant([[1], [1, 2]])', 'constant: a list is not a tensor: setting an array element with a sequence'),
    ('constant(x)', "constant: expected an expression, an array or a number, got the variable 'x'; it is an expression already"),
    ('constant(f1)', "constant: expected an expression, an array or a number, got an expression, 'function'; it is an expression already"),  # noqa: E501
    ('constant(1 << 70)', 'constant: 1180591620717411303424 is not a tensor: Python int too large to convert to C long'),
    ('function("x", x)', "function: params: expected a list of variables, made by var(), got 'x'"),
    ('function(x, x)', "function: params: expected a list of variables, made by var(), got the variable 'x'"),
    ('function([x, x], x)', "function: the variable 'x' is parameter 1, and one before it too; make one for each by var()"),
    ('function(["x"], x)', "function: parameter 0 is 'x'; expected a variable, made by var()"),
    ('function([x + 1], x)', "function: parameter 0 is an expression, 'add'; expected a variable, made by var()"),
    ('function([x], lambda a: None)', "function: the body's result: expected an expression, an array or a number, got None; a Python function that makes it must return it"),  # noqa: E501
    ('function([x], lambda a: {"y": a})', "function: the body's result: expected an expression, an array or a number, got a dict; results by name are a tuple: tuple_(…)"),  # noqa: E501
    ('function([x], lambda: x)', 'function: the body: <lambda>() cannot take 1 argument'),
    ('function([x], lambda a, b: a)', 'function: the body: <lambda>(a, b) cannot take 1 argument'),
    ('function([x], None)', "function: the body's result: expected an expression, an array or a number, got None; a Python function that makes it must return it"),  # noqa: E501
    ('function([x], "x")', "function: the body's result: expected an expression, an array or a number, got 'x'; var('x', shape) makes a variable"),  # noqa: E501
    ('function([x], {1: 2})', "function: the body's result: expected an expression, an array or a number, got a dict; results by name are a tuple: tuple_(…)"),  # noqa: E501
    ('function([x], lambda a: [a, None])', "function: the body's result, value 1: expected an expression, an array or a number, got None; a Python function that makes it must return it"),  # noqa: E501
    ('function([x], x, result_type="float32")', 'function: result_type: float32 is an element type; the type of a scalar is float32[]'),  # noqa: E501
    ('function([x], x, result_type=3)', 'function: result_type: expected a type, or its text, such as "float32[n]", got 3'),
    ('function([x], x, name=3)', 'function: name: expected a string, got 3'),
    ('function(None, x)', 'function: params: expected a list of variables, made by var(), got None'),
    ('function(3, x)', 'function: params: expected a list of variables, made by var(), got 3'),
    ('if_("a", x, x)', "if_: the condition: expected an expression, an array or a number, got 'a'; var('a', shape) makes a variable"),  # noqa: E501
    ('if_(x, x, None)', 'if_: otherwise: expected an expression, an array or a number, got None'),
    ('if_(x, lambda: x, lambda: x)', 'if_: then: expected an expression, an array or a number, got the Python function <lambda>; call it, or make a function of the program with function([…], …)'),  # noqa: E501
    ('if_(x, {"a": x}, x)', 'if_: then: expected an expression, an array or a number, got a dict; results by name are a tuple: tuple_(…)'),  # noqa: E501
    ('while_loop(x, x, [x])', "while_loop: the condition: expected a Python function of the variables, got the variable 'x'"),
    ('while_loop(lambda a: a, lambda a: a, x)', "while_loop: initial: expected a list of values, one for each variable, got the variable 'x'"),  # noqa: E501
    ('while_loop(lambda a: a, lambda a: a, 3)', 'while_loop: initial: expected a list of values, one for each variable, got 3'),
    ('while_loop(lambda a, b: a, lambda a: a, [x])', 'while_loop: the condition takes 2 variables, but there are 1'),
    ('while_loop(lambda a: None, lambda a: a, [x])', "while_loop: the condition's result: expected an expression, an array or a number, got None; a Python function that makes it must return it"),  # noqa: E501
    ('while_loop(lambda a: a, lambda a: None, [x])', "while_loop: the body's result: expected an expression, an array or a number, got None; a Python function that makes it must return it"),  # noqa: E501
    ('while_loop(lambda a: a, lambda a: a, [None])', 'while_loop: initial[0]: expected an expression, an array or a number, got None'),  # noqa: E501
    ('while_loop(lambda a: a, lambda a: a, [])', 'while_loop: the condition takes 1 variables, but there are 0'),
    ('for_loop(2.5, lambda i, a: a, [x])', 'for_loop: count: expected an integer, got float32[]'),
    ('for_loop("3", lambda i, a: a, [x])', "for_loop: count: expected an expression, an array or a number, got '3'; var('3', shape) makes a variable"),  # noqa: E501
    ('for_loop(x, lambda i, a: a, [x])', 'for_loop: count: expected an integer, got float32[2, 3]'),
    ('for_loop(3, lambda a: a, [x])', 'for_loop: the body takes 1 variables, but there are 2'),
    ('for_loop(3, x, [x])', "for_loop: the body: expected a Python function of the variables, got the variable 'x'"),
    ('for_loop(3, lambda i, a: None, [x])', "for_loop: the body's result: expected an expression, an array or a number, got None; a Python function that makes it must return it"),  # noqa: E501
    ('for_loop(-1, lambda i, a: a, [x])', 'for_loop: count: expected 0 or more, got -1'),
    ('for_loop(3, lambda i, a: a, x)', "for_loop: initial: expected a list of values, one for each variable, got the variable 'x'"),  # noqa: E501
    ('match_(L.Nil(), [])', 'match_: there are no clauses; expected clauses, pairs of a pattern and a value or function'),
    ('match_(L.Nil(), {})', 'match_: there are no clauses; expected clauses, pairs of a pattern and a value or function'),
    ('match_(L.Nil(), {L.Nil: None})', "match_: a clause's result: expected an expression, an array or a number, got None; a Python function that makes it must return it"),  # noqa: E501
    ('match_(L.Nil(), {L.Cons: lambda a: a})', 'match_: the clause of Cons takes 1 variables, but there are 2'),
    ('match_(L.Nil(), {"Nil": x})', "match_: the pattern of clause 0: expected a constructor, as List.Cons, or ... for all that no clause before fits, got 'Nil'"),  # noqa: E501
    ('match_(L.Nil(), [L.Nil])', 'match_: clause 0: expected a pair of a pattern and a value or function, got a ConstructorFunction'),  # noqa: E501
    ('match_(L.Nil(), L.Nil)', 'match_: clauses: expected a list of clauses, pairs of a pattern and a value or function, got a ConstructorFunction'),  # noqa: E501
    ('match_("x", {L.Nil: x})', "match_: value: expected an expression, an array or a number, got 'x'; var('x', shape) makes a variable"),  # noqa: E501
    ('match_(L.Nil(), {L.Nil(): x})', "match_: the pattern of clause 0: expected a constructor, as List.Cons, or ... for all that no clause before fits, got an expression, 'nil'"),  # noqa: E501
    ('match_(L.Nil(), [(L.Nil, x, x)])', 'match_: clause 0: expected a pair of a pattern and a value or function, got a tuple'),
    ('match_(x, {L.Nil: x})', 'match_: value: expected List, whose constructors are the clauses, got float32[2, 3]'),
    ('match_(L.Nil(), {data_type("T = Leaf").Leaf: x})', 'match_: value: expected T, whose constructors are the clauses, got List'),  # noqa: E501
    ('match_(L.Nil(), {L.Nil: x, data_type("T = Leaf").Leaf: x})', 'match_: the clauses are of two data types, data List = Nil | Cons(float32[], List) and data T = Leaf; a value is of one'),  # noqa: E501
    ('match_(L.Nil(), 3)', 'match_: clauses: expected a list of clauses, pairs of a pattern and a value or function, got 3'),
    ('match_shape("x", (2,))', "match_shape: value: expected an expression, got 'x'"),
    ('match_shape(x, 3)', 'match_shape: shape: expected a list of sizes, got 3'),
    ('match_shape(x, "n")', "match_shape: shape: expected a list of sizes, got 'n'"),
    ('match_shape(x, (2.5,))', 'match_shape: shape[0]: expected an integer, or a name such as "n", got 2.5'),
    ('match_shape(x, (-1, 2))', 'match_shape: shape[0]: expected a size from 0 to 140737488355327, got -1; a size that is not known is a name, such as "n"'),  # noqa: E501
    ('match_shape(L.Nil(), (2,))', "match_shape: value: expected a tensor, 'nil' is List"),
    ('tuple_(None)', 'tuple_: value 0: expected an expression, an array or a number, got None'),
    ('tuple_([x])', 'tuple_: value 0: expected an expression, an array or a number, got a list; tuple_(*values) makes a tuple of tensors, op.concat(*values, axis=0) one tensor'),  # noqa: E501
    ('tuple_({"a": x})', 'tuple_: value 0: expected an expression, an array or a number, got a dict; results by name are a tuple: tuple_(…)'),  # noqa: E501
    ('tuple_(lambda: x)', 'tuple_: value 0: expected an expression, an array or a number, got the Python function <lambda>; call it, or make a function of the program with function([…], …)'),  # noqa: E501
    ('named(3, x)', 'named: name: expected a name, a string that is not empty, got 3'),
    ('named("a", 3)', 'named: value: expected an expression, got 3'),
    ('global_function(3)', 'global_function: name: expected a name, a string that is not empty, got 3'),
    ('global_function("f", "fn")', "global_function('f'): type: expected the type of a function, got 'fn'"),
    ('import_(3, "fn() -> ()")', 'import_: name: expected a name, a string that is not empty, got 3'),
    ('import_("f", 3)', "import 'f': expected the type of a function, got 3"),
    ('import_("f", "float32[2]")', "import 'f': expected the type of a function, got float32[2]"),
    ('data_type(3)', "data_type: text: expected text such as 'List[a] = Nil | Cons(a, List[a])', a string that is not empty, got 3"),  # noqa: E501
    ('L.Cons(1)', 'Cons of List takes float32[], List, got 1 values'),
    ('L.Cons()', 'Cons of List takes float32[], List, got 0 values'),
    ('L.Foo', "data List = Nil | Cons(float32[], List) has no constructor 'Foo'"),
    ('L(3)', 'List takes 0 types, got 1'),
    ('L("a")', 'List takes 0 types, got 1'),
    ('Module(3)', 'Module: expected a dict of functions, or a module, got 3'),
    ('Module(main=3)', "Module: 'main' is 3; expected a name and a function, made by function()"),
    ('Module(main=x)', "Module: 'main' is the variable 'x'; expected a name and a function, made by function()"),
    ('Module(main=lambda a: a)', "Module: 'main' is the Python function <lambda>; expected a name and a function, made by function()"),  # noqa: E501
    ('Module({"main": x})', "Module: 'main' is the variable 'x'; expected a name and a function, made by function()"),
    ('Module({3: f1})', "Module: 3 is an expression, 'function'; expected a name and a function, made by function()"),
    ('Module([f1])', 'Module: expected a dict of functions, or a module, got a list'),
    ('Module(main=f1, data_types=3)', 'Module: data_types: expected a list of data types, made by data_type(), got 3'),
    ('Module(main=f1, data_types=["a"])', "Module: data_types: expected data types, made by data_type(), got 'a'"),
    ('Module(f1)', "Module: expected a dict of functions, or a module, got an expression, 'function'"),
    ('op.relu()', 'relu takes x, got 0 inputs'),
    ('op.relu(x, x)', 'relu takes x, got 2 inputs'),
    ('op.relu("x")', "relu: x: expected an expression, an array or a number, got 'x'; var('x', shape) makes a variable"),
    ('op.relu(None)', 'relu: x: expected an expression, an array or a number, got None'),
    ('op.relu([x])', 'relu: x: expected an expression, an array or a number, got a list; tuple_(*values) makes a tuple of tensors, op.concat(*values, axis=0) one tensor'),  # noqa: E501
    ('op.relu(f1)', "relu: expected tensors, an expression, 'function', is fn(float32[2, 3]) -> float32[2, 3]"),
    ('op.relu(lambda: x)', 'relu: x: expected an expression, an array or a number, got the Python function <lambda>; call it, or make a function of the program with function([…], …)'),  # noqa: E501
    ('op.add(x, f1)', "add: expected tensors, an expression, 'function', is fn(float32[2, 3]) -> float32[2, 3]"),
    ('op.softmax(x, 0)', 'softmax takes x, got 2 inputs; attributes are given by name: axis=…'),
    ('op.softmax(x, axis="0")', "softmax: attribute 'axis' takes an integer, got '0'"),
    ('op.softmax(x, axis=5)', 'softmax: expected an axis from -2 to 1, got 5'),
    ('op.softmax(x, axes=0)', "softmax has no attribute 'axes'; its attributes: axis; did you mean axis?"),
    ('op.reshape(x, (3, 2))', 'reshape takes x, got 2 inputs; attributes are given by name: shape=…'),
    ('op.reshape(x, shape=(4, 2))', 'reshape: expected a shape of 6 elements for float32[2, 3], got [4, 2]'),
    ('op.reshape(x, shape=2.5)', "reshape: attribute 'shape' takes a list of dimensions, got 2.5"),
    ('op.reshape(x, shape=(2.5,))', "reshape: attribute 'shape' takes a list of dimensions, got (2.5,)"),
    ('op.reshape(x, shape="a b")', "reshape: attribute 'shape' takes a list of dimensions, got 'a b'"),
    ('op.concat([x, x], axis=0)', 'concat: tensors[0]: expected an expression, an array or a number, got a list; tuple_(*values) makes a tuple of tensors, op.concat(*values, axis=0) one tensor'),  # noqa: E501
    ('op.conv(x)', 'conv takes x, weight, bias?, got 1 input'),
    ('op.cast(x, "float64")', 'cast takes x, got 2 inputs; attributes are given by name: dtype=…'),
    ('op.nope(x)', "there is no operator 'nope'; dir(op) lists them"),
    ('op.transpose(x)', "there is no operator 'transpose'; op.permute_dims(x, axes=…); dir(op) lists them"),
    ('x["a"]', "a tensor is indexed by integers, slices, ..., None and tensors of integers, not by 'a'; see op.where"),
    ('x[5]', 'value: index 5 is out of range for axis 0 of 2 elements: it is float32[2, 3]'),
    ('x[1.5]', 'a tensor is indexed by integers, slices, ..., None and tensors of integers, not by 1.5; see op.where'),
    ('x[1, 2, 3]', 'value: there is no axis 2: it is float32[2, 3]'),
    ('x[::0]', 'value: axis 0: the step of a slice is 0'),
    ('x + None', 'add: b: expected an expression, an array or a number, got None'),
    ('x + "a"', "add: b: expected an expression, an array or a number, got 'a'; var('a', shape) makes a variable"),
    ('x @ 3', 'matmul: expected tensors of rank 1 at least, got float32[2, 3] and float32[]'),
    ('x + f1', "add: expected tensors, an expression, 'function', is fn(float32[2, 3]) -> float32[2, 3]"),
    ('x < None', 'less: b: expected an expression, an array or a number, got None'),
    ('bool(x)', 'an expression has no truth value while the program is built; use if_ or while_loop'),
    ('1 in x', 'what an expression contains is not known while the program is built; op.any(x == value) asks it in the program'),
    ('f"{x:.3f}"', "the format '.3f' is for numbers: an expression has no elements while the program is built; compile it, and call what comes out"),  # noqa: E501
    ('x + object()', 'add: b: expected an expression, an array or a number, got an object'),
    ('iter(x)', "only a tuple can be unpacked; this expression's type is float32[2, 3]; x[i] is a part of a tensor, and for_loop goes along an axis"),  # noqa: E501
    ('list(x)', "only a tuple can be unpacked; this expression's type is float32[2, 3]; x[i] is a part of a tensor, and for_loop goes along an axis"),  # noqa: E501
    ('f1(x, x)', 'function: expected 1 arguments, got 2: fn(float32[2, 3]) -> float32[2, 3]'),
    ('f1()', 'function: expected 1 arguments, got 0: fn(float32[2, 3]) -> float32[2, 3]'),
    ('f1("a")', "argument 0: expected an expression, an array or a number, got 'a'; var('a', shape) makes a variable"),
    ('f1[0]', "function is fn(float32[2, 3]) -> float32[2, 3], and cannot be indexed; a data type's fields come out by match_"),
    ('x(3)', 'value is float32[2, 3], not a function, and cannot be called'),
    ('L.Nil()[0]', "nil is List, and cannot be indexed; a data type's fields come out by match_"),
    ('tuple_(x, x)[2]', 'tuple[2]: the tuple has 2 fields'),
    ('tuple_(x, x)["a"]', "a tuple is indexed by one integer, not by 'a'"),
    ('tuple_(x, x)[0:1]', 'a tuple is indexed by one integer, not by a slice'),
    ('compile(3)', 'cannot compile an int; expected a path, the bytes of an ONNX file, an onnx.ModelProto or a Module'),
    ('compile(None)', 'cannot compile None; expected a path, the bytes of an ONNX file, an onnx.ModelProto or a Module'),
    ('compile(x)', 'cannot compile an Expression; expected a path, the bytes of an ONNX file, an onnx.ModelProto or a Module; '
     'function([x, …], expression) makes a function of an expression'),
    ('compile([f1])', "Module: expected a dict of functions, or a module, got an expression, 'function'"),
    ('compile([])', "there is no function 'main' to start at; the module has no functions"),
    ('compile({"main": x})', "Module: 'main' is the variable 'x'; expected a name and a function, made by function()"),
    ('compile([M, M])', "Module: there are two functions 'main'; give one of them another name"),
    ('compile(b"abc")', "the model is not an ONNX model: it is text, which begins with b'abc'"),
    ('compile(M, params=3)', 'params=3: expected a mapping by name, or None'),
    ('compile(M, params={"y": x})', "'main' has no parameter 'y'; its parameters: x [function 'main']"),
    ('compile(M, params={"x": [1]})', "parameter 'x': expected float32[2, 3], got int64[1] [function 'main']"),
    ('compile(M, entry="nope")', "there is no function 'nope' to start at; the module has main"),
    ('compile(M, entry=3)', 'entry=3: expected the name of a function, or a list of names'),
    ('compile(M, entry=[])', 'entry=[]: expected the name of a function, or a list of names'),
    ('compile(M, shapes={"x": (1,)})', 'shapes: these are for ONNX models; the variables of a Module have their own'),
    ('compile(f1, shapes={"x": (1,)})', 'shapes: these are for ONNX models; the variables of a Module have their own'),
    ('compile(M, shapes=3)', 'shapes=3: expected a mapping by name, or None'),
    ('compile(M, target=3)', "target=3: expected a Target, got a int; None, the default, means this CPU, and TREADLE_TARGET says another. treadle.tvm takes the names that TVM has, such as 'llvm'"),  # noqa: E501
    ('compile(M, print_after=3)', 'print_after=3: expected a list of passes'),
    ('compile(M, without=3)', 'without=3: expected a list of passes'),
    ('compile(M, passes=3)', 'passes=3: expected a list of passes'),
    ('compile(M, passes=["a"])',
     'passes: expected what treadle.after and treadle.before give, got a str; for instance treadle.after("simplify", my_pass)'),
    ('after("fold_constants", 3)', 'expected a pass, which has a name and is called with a module, got an int'),
    ('after("fold_constants", lambda module: module)', 'expected a pass, which has a name and is called with a module, got a lambda, which has none'),  # noqa: E501
    ('before("fold_constants", int)', 'expected a pass, which has a name and is called with a module, got the class int'),
    ('Sampler("a")', "generate: temperature: expected a number from 0 on, got 'a'"),
    ('Sampler(top_p=[1])', 'generate: top_p: expected a number above 0, up to 1, got [1]'),
    ('load(3)', 'expected a path or the bytes of a file, got a value of type int'),
    ('load(None)', 'expected a path or the bytes of a file, got a value of type NoneType'),
    ('load(b"abc")', "the data is not a Treadle file: it starts with b'abc' [byte 0]"),
    ('load(b"")', 'the data is truncated: 0 bytes, the header alone has 32 [byte 0]'),
    ('load(M)', 'expected a path or the bytes of a file, got a value of type Module'),
    ('load_params(3)', 'load_params: path: expected a path, got a value of type int'),
    ('load_params("a")', "'a': parameters are in files that end in .params, .npz, .safetensors"),
    ('save_params({"a": np.ones(2)}, 3)', 'save_params: path: expected a path, got a value of type int'),
    ('VirtualMachine(3)', 'VirtualMachine(exe): expected an Executable, got an int; '
     'treadle.compile(model) makes one of a model, and treadle.load(path) reads one'),
    ('VirtualMachine(M)', 'VirtualMachine(exe): expected an Executable, got a Module; '
     'treadle.compile(model) makes one of a model, and treadle.load(path) reads one'),
    ('VirtualMachine("a.trdl")', "VirtualMachine(exe): expected an Executable, got a str; "
     "treadle.load('a.trdl') makes one"),
    ('dis(3)', 'dis(executable): expected an Executable, got an int; treadle.load reads a file'),
    ('list(dis(3))', 'dis(executable): expected an Executable, got an int; treadle.load reads a file'),
    ('Executable(3)', 'Executable(program): expected a Program, got a int; treadle.load reads a file'),
    (
        "if_(x > 0, x, -x)",
        "if_: the condition: expected a scalar, got bool[2, 3]; .any() and .all() make one of it, and op.where chooses element "
        "by element",
    ),
    ("x.relu()", "Expression has no attribute 'relu'; op.relu(x) is the operator"),
    ("x.permute(1, 0)", "Expression has no attribute 'permute'; op.permute_dims(x, axes=…)"),
    ("M['mian']", "there is no function 'mian'; the module has main; did you mean main?"),
    ("M.main", "Module has no attribute 'main'; the function of that name is module['main']"),
    ("M.__setitem__('g', 3)", "a module does not change: treadle.Module(module, g=…) is one with another function"),
    ("compile(M, progress=False).inputs()['z']", "there is no port 'z'; there are x"),
    ("compile(M, progress=False).inputs().x", "Ports has no attribute 'x'; the port of that name is ports['x']"),
    (
        "compile(VirtualMachine(compile(M, progress=False)))",
        "cannot compile a VirtualMachine; expected a path, the bytes of an ONNX file, an onnx.ModelProto or a Module; "
        "machine.executable is what was compiled",
    ),
    (
        "VirtualMachine(compile(M, progress=False)).profile(np.ones(2))",
        "there is no function with a ndarray for a name; the executable has main",
    ),
]
# fmt: on


@pytest.mark.parametrize(("code", "message"), MISUSES, ids=[code for code, _ in MISUSES])
def test_a_misuse_says_what_is_wrong(code, message):
    with pytest.raises(TreadleError) as refused:
        eval(code)
    assert str(refused.value) == message


# ---- at random ----

OPERATORS = ("relu", "add", "matmul", "softmax", "reshape", "concat", "conv", "cast", "sum", "take", "slice", "where")
LEFT_OUT = {"remote", "map_batches", "set_num_threads", "save_params", "operator", "onnx_operator"}  # outside effects
LEFT_OUT |= {"DType", "Event"}  # an enum, and what only machines make
NAMES = sorted(
    {name for name in treadle.__all__ if callable(getattr(treadle, name)) and not name.startswith("_")}
    - LEFT_OUT
    - {"TreadleError"}
)
CALLED = {name: getattr(treadle, name) for name in NAMES if name != "op"}
CALLED |= {f"op.{name}": getattr(op, name) for name in OPERATORS}
VALUES = [
    None, True, False, 0, 1, -1, 7, 2.5, float("nan"), 1 << 70, 1j, "", "x", "main", "float32", "n + 1", "a b", b"", b"abc",
    (), [], {}, [1, 2], (2, 3), (2.5,), (-1, 2), ("n", 4), [None], ["x"], {"x": 1}, {"main": 3}, {1: 2}, set(), range(3),
    np.zeros(2, np.float32), np.array("a"), np.array([None]), np.float32(1), np.dtype("int8"), np.zeros(0), object(), int, len,
    lambda: None, lambda a: a, lambda a, b: (a, b), lambda *a: None, x, x + 1, [x], [x, x], (x, x), {"x": x}, f1, [f1],
    {"main": f1},
    M, L, L.Nil, L.Cons, L.Nil(), L(), tuple_(x, x), x.type, f1.type, slice(1, 2), ..., NotImplemented, Exception("a"), iter([1]),
]  # fmt: skip
KEYWORDS = (
    "axis",
    "shape",
    "dtype",
    "name",
    "type",
    "params",
    "entry",
    "opt_level",
    "constants",
    "device",
    "shapes",
    "nope",
    "max_steps",
    "max_seconds",
    "max_memory",
    "max_depth",
    "threads",
    "cancel",
)


@functools.cache
def methods():
    """The public methods of what users hold in their hands, by the object and their name."""
    exe = treadle.compile({"main": f1, "pair": function([x], tuple_(x, x + 1))}, progress=False, embed_native=False)
    machine = treadle.VirtualMachine(exe, kernels="cached")
    arrays = [np.zeros(tuple(2 if size is None or isinstance(size, str) else size for size in port.shape), port.dtype)
              for port in exe.inputs()]  # fmt: skip
    objects = {
        "executable": exe, "machine": machine, "machine[main]": machine["main"], "tensor": treadle.Tensor(np.zeros((2, 3))),
        "results": machine["pair"](np.zeros((2, 3), np.float32)), "profile": machine.profile("main", *arrays), "expression": x,
        "port": exe.inputs()[0], "token": treadle.CancelToken(), "type": x.type, "device": treadle.cpu(), "library": exe.lib,
        "sampler": treadle.Sampler(),
    }  # fmt: skip
    left_out = {"count", "index", "T"}  # of a tuple, which compare by ==; of an expression, what is not a method
    left_out |= {
        "export_library",
        "save",
        "export",
        "move_late_bound_consts",
        "attach",
        "detach",
    }  # files, and what calls do
    found = {}
    for of, each in objects.items():
        names = [name for name in dir(type(each)) if not name.startswith("_") and name not in left_out]
        found |= {f"{of}.{name}": getattr(each, name) for name in names if callable(getattr(each, name, None))}
        for name in ("__getitem__", "__call__", "__contains__", "__setitem__", "__add__", "__matmul__", "__eq__"):
            if any(name in vars(kind) for kind in type(each).__mro__):
                found[f"{of}.{name}"] = getattr(each, name)
    return found


def misuse(rng):
    """A public name and arguments that nobody has looked at."""
    name = rng.choice(sorted(CALLED) if rng.random() < 0.5 else sorted(methods()))
    args = [rng.choice(VALUES) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4)))]
    kwargs = {rng.choice(KEYWORDS): rng.choice(VALUES) for _ in range(rng.choice((0, 0, 0, 1)))}
    return name, args, kwargs


def is_the_operators(name, error):
    """Whether Python refuses what was called with too few or too many operands: `x.__add__()`, which nobody writes."""
    return (
        name.rpartition(".")[2].startswith("__")
        and isinstance(error, TypeError)
        and error.__traceback__.tb_next is None
    )


def bare_errors(seed, count):
    """The misuses that gave an error which is none of Treadle's."""
    rng, found = random.Random(seed), []
    for _ in range(count):
        name, args, kwargs = misuse(rng)
        if name == "compile":
            kwargs.setdefault("embed_native", False)
        try:
            result = (CALLED.get(name) or methods()[name])(*args, **kwargs)
            if inspect.iscoroutine(result):
                asyncio.run(result)
        except TreadleError:
            pass
        except Exception as error:
            if not is_the_operators(name, error):
                found.append(f"{name}(*{args}, **{kwargs}): {type(error).__name__}: {error}")
    return found


def test_misuses_at_random_give_errors_of_treadles_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some of what is given is taken for the name of a file to write
    assert bare_errors(seed=21, count=20_000) == []
