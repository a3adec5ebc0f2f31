"""Names of other tools: PyTorch, ONNX Runtime, TVM, NumPy and Python itself.

A table of the names that users of these try, by kind of object, and their counterparts here. A message
about an unknown name ends in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

_COMPILED = "treadle.compile(model) takes an ONNX file or a Module"
_MACHINE = 'machine = treadle.VirtualMachine(executable), and machine["main"](…)'
_CALLED = 'machine["main"](…) calls a function'
_SAVED = "executable.save(path) writes a file, and treadle.load(path) reads it"
_NUMPY = "functions take NumPy's arrays as they are; treadle.constant puts one into a program"
_OPERATORS = "operators are functions of treadle.op"
_TVM = "what TVM calls so is in treadle.tvm"
_SHOWN = "str(executable) is its assembly text, executable.stats its figures, and `treadle info` shows both"
_THREADS = "treadle.set_num_threads(count), or VirtualMachine(executable, threads=count)"
_ARRAY = "tensor.numpy() is the array"
_PROFILE = 'machine.profile("main", …), or the command `treadle profile FILE`'
_PROGRAM = "treadle.function([x, …], expression) makes a function of variables, and treadle.compile compiles it"
_LISTEN = "with machine.listening(listener):"
_SOURCE = "executable.lib.get_source(name) shows a kernel, and executable.as_text() the program"


def _by_name(table: Mapping[str, str]) -> dict[str, str]:
    """The table by each name, of which a key has several."""
    return {name: meant for names, meant in table.items() for name in names.split()}


_MEANT = {
    "treadle": _by_name(
        {
            "save dump serialize export export_library": _SAVED,
            "run call invoke predict infer create_executor": _MACHINE,
            "InferenceSession Session Runtime VM Interpreter runtime": _MACHINE,
            "load_model load_onnx read_model from_onnx import_onnx onnx": _COMPILED,
            "build optimize compile_model convert lower transform": _COMPILED,
            "jit trace script lift Sequential Graph FunctionType": _PROGRAM,
            "serve Server": "the command `treadle serve FOLDER` is the server",
            "assemble assembler parse parse_module from_text loads": "treadle.Executable.from_text(text), or `treadle as FILE`",
            "verify check": "treadle.load checks a file, a machine verifies it, and so does the command `treadle verify FILE`",
            "scan fori_loop": "treadle.for_loop and treadle.while_loop",
            "cond where": "treadle.if_ computes one of two, and treadle.op.where chooses for each element",
            "benchmark time_evaluator": _PROFILE,
            "array asarray tensor from_numpy as_tensor ndarray nd": _NUMPY,
            "zeros ones arange full": f"{_OPERATORS}; {_NUMPY}",
            "nn ops functional operators F": _OPERATORS,
            "relay relax tir te IRModule graph_executor frontend": _TVM,
            "show print summary info disassemble": _SHOWN,
            "placeholder Input input Variable param": "treadle.var(name, shape, dtype)",
            "set_threads threads num_threads set_thread_count": _THREADS,
            "float": "element types are named as NumPy's are: 'float32'",
            "def_": "treadle.function(parameters, body)",
            "let": "a Python variable holds an expression: y = x + 1",
            "ir": "treadle.compiler.ir has the classes of the IR",
            "Pass passes PassContext PassManager": "treadle.compile(…, passes=[treadle.after(name, run)], without=[name])",
            "quantize quantization quantize_static half": "onnxruntime.quantization writes such models, see docs/narrow.md",
            "profile": _PROFILE,
        }
    ),
    "Executable": _by_name(
        {
            "run call invoke predict main set_input create_vm jit": _MACHINE,
            "functions function_names names": "executable.globals has the functions' names",
            "write to_file export dump save_to_file": _SAVED,
            "to_bytes tobytes serialize dumps": "executable.as_bytes() are the file's bytes",
            "summary show print describe info": _SHOWN,
            "disassemble dis instructions": "treadle.dis(executable), or executable.bytecode as text",
            "get_inputs input_names signature": 'executable.inputs("main") are its ports',
            "get_outputs output_names": 'executable.outputs("main") are its ports',
            "params get_params parameters num_params weights_dict state_dict": "executable.constants are the weights",
            "metadata producer opt_level version": "executable.program.metadata, or the command `treadle info FILE`",
            "get_source source sources kernels primitives inspect_source imported_modules": _SOURCE,
            "code asm text ir script mod": "executable.as_text() is the assembly, treadle.dis(executable) the instructions",
            "from_file from_bytes": "treadle.load reads a file, or its bytes",
            "signatures dims symbols shapes input_info": "executable.inputs() and executable.outputs() are its ports",
            "verify check validate": "treadle.load checks a file, and a machine verifies it",
            "benchmark profile memory flops": 'machine.profile("main", …); treadle.debug.stats has the memory',
        }
    ),
    "Module": _by_name(
        {
            "save dump write export to_text text astext script": "module.as_text() is its text, which treadle.compile takes",
            "compile build jit run": "treadle.compile(module)",
            "show print": "print(module)",
        }
    ),
    "VirtualMachine": _by_name(
        {
            "predict forward infer execute eval apply": _CALLED,
            "functions function_names names": "list(machine) are the functions' names",
            "get_inputs input_names signature": 'machine.inputs("main") are its ports',
            "output_names": 'machine.outputs("main") are its ports',
            "export": "machine.executable has that",
            "add_listener add_hook attach register_hook register_forward_hook hooks listeners": _LISTEN,
            "benchmark time time_evaluator timeit": _PROFILE,
            "get_output": "machine.get_outputs(name), behind invoke_stateful",
            "signatures get_input_details input_info": 'machine.inputs("main") are its ports',
            "get_output_details output_info": 'machine.outputs("main") are its ports',
            "close release free": "a machine holds nothing that must be closed",
            "cancel stop terminate abort interrupt": 'machine.call("main", […], cancel=token), of a treadle.CancelToken',
            "generate": "treadle.generate(machine, ids, max_new_tokens=…)",
            "run_async async_call acall call_soon submit": 'await machine.call_async("main", […])',
            "set_timeout timeout deadline": 'machine.call("main", […], max_seconds=…)',
            "set_num_threads num_threads": _THREADS,
        }
    ),
    "op": _by_name(
        {
            "transpose permute swapaxes movedim": "op.permute_dims(x, axes=…)",
            "cat concatenate hstack vstack": "op.concat(x, y, axis=…)",
            "unsqueeze newaxis": "op.expand_dims(x, axes=…)",
            "flatten view ravel": "op.reshape(x, shape=…)",
            "dense linear dot mm bmm gemm fully_connected": "op.matmul(x, y)",
            "conv1d conv2d conv3d convolution": "op.conv has it in any number of dimensions",
            "max_pool1d max_pool2d max_pool3d": "op.max_pool has it in any number of dimensions",
            "avg_pool avg_pool1d avg_pool2d avg_pool3d": "op.average_pool",
            "global_average_pool adaptive_avg_pool2d": "op.mean(x, axes=…, keepdims=True)",
            "embedding gather index_select": "op.take(x, indices, axis=…)",
            "batch_norm": "op.batch_normalization",
            "layer_norm": "op.layer_normalization",
            "group_norm": "op.group_normalization",
            "instance_norm": "op.instance_normalization",
            "rms_norm": "op.rms_normalization",
            "scaled_dot_product_attention softmax_attention": "op.attention",
            "clamp clip_by_value": "op.clip",
            "masked_fill select cond": "op.where(mask, x, y)",
            "if_else if_then_else": "op.where(mask, x, y), or treadle.if_ where one alone is computed",
            "zeros ones zeros_like ones_like full_like": "op.full(shape=…, value=…, dtype=…)",
            "mod": "op.remainder, with the sign of the divisor, and op.fmod, with that of the dividend",
            "mul": "op.multiply",
            "sub": "op.subtract",
            "div truediv true_divide": "op.divide",
            "neg": "op.negative",
            "power": "op.pow",
            "eq": "op.equal",
            "ne": "op.not_equal",
            "gt": "op.greater",
            "ge": "op.greater_equal",
            "lt": "op.less",
            "le": "op.less_equal",
            "reduce_sum": "op.sum",
            "reduce_mean": "op.mean",
            "reduce_max amax": "op.max",
            "reduce_min amin": "op.min",
            "cumsum": "op.cumulative_sum",
            "cumprod": "op.cumulative_prod",
            "swish": "op.silu",
            "expand": "op.broadcast_to",
            "to astype as_type type": "op.cast(x, dtype=…)",
            "sort argsort topk": "op.top_k, and lexicographic_order",
            "interpolate upsample image_resize": "op.resize",
            "scatter index_put scatter_elements": "op.scatter_nd and op.put_along_axis",
            "dynamic_update_slice slice_scatter": "op.put_slice",
            "gather_elements": "op.take_along_axis",
            "norm": "op.l2_norm",
            "linspace": "op.arange",
        }
    ),
    "Expression": _by_name(
        {
            "view": "reshape(…)",
            "unsqueeze": "x[None], or op.expand_dims(x, axes=…)",
            "expand": "op.broadcast_to(x, shape=…)",
            "to float double half int long as_type": "astype(dtype)",
            "mm bmm": "x @ y",
            "detach cpu cuda contiguous clone": "an expression is not a tensor: nothing is moved or copied",
            "eval compute realize run": _PROGRAM,
        }
    ),
    "debug": _by_name(
        {
            "profile profiler benchmark time": _PROFILE,
            "nan first_nan find_nan isnan check_nan detect_anomaly": "treadle.debug.first_nonfinite(model, feeds)",
            "timeline": "treadle.debug.save_trace(model, feeds, path)",
            "draw visualize plot netron": "treadle.debug.save_graph(model, path)",
            "memory peak": "treadle.debug.stats(model, feeds)",
            "hook hooks Listener instrument": _LISTEN,
            "bisect": "treadle.debug.compare(…, bisect=True)",
        }
    ),
    "command": _by_name(
        {
            "build convert import optimize optimise onnx": "`treadle compile MODEL` compiles",
            "disassemble disasm print show text bytecode objdump": "`treadle dis FILE` shows the program",
            "assemble asm parse": "`treadle as FILE` assembles",
            "benchmark time perf timeit": "`treadle profile FILE` says what takes how long",
            "trace timeline": "`treadle profile FILE --trace t.json` writes a timeline",
            "memory mem peak": "`treadle profile FILE --memory` shows what is in use at the peak",
            "roofline": "`treadle profile FILE --roofline` compares with what this machine can do",
            "nan nans inf": "`treadle nonfinite FILE` finds where NaNs begin, `treadle compare FILE` the first wrong node",
            "netron visualize visualise draw plot explorer": "`treadle inspect FILE -o FILE.html` writes a page about it",
            "kernel kernels llvm": "`treadle source FILE PRIMITIVE` shows a kernel",
            "check validate": "`treadle verify FILE` checks it",
            "describe signature inputs": "`treadle info FILE` shows inputs, outputs and what the file holds",
            "ir passes": "`treadle compile MODEL --print-after PASS` shows the program after a pass",
            "exec execute call infer predict": "`treadle run FILE` calls a function",
            "server http": "`treadle serve FOLDER` serves",
            "env config": "`treadle knobs` lists the environment variables, `treadle doctor` what is seen of this machine",
            "version": "`treadle --version` prints it",
        }
    ),
    "Tensor": _by_name(
        {
            "to_numpy asnumpy cpu detach get data values": _ARRAY,
            "to type float half int long cast": "tensor.astype(dtype) converts",
            "clone": "tensor.copy() is a copy",
            "softmax relu exp log sigmoid tanh sqrt abs matmul": "NumPy computes with tensors, and treadle.op is for programs",
            "topk top_k sort": "tensor.argsort() orders, and NumPy's functions take tensors",
            "permute": "tensor.transpose(axes)",
            "dim rank": "tensor.ndim is the number of axes",
            "numel": "tensor.size is the number of elements",
            "ctx context": "tensor.device says where it is",
        }
    ),
}

_WORDS = (  # (what others call a parameter or an option, its name here)
    ("timeout time_limit max_time deadline", "max_seconds"),
    ("memory_limit memory max_bytes", "max_memory"),
    ("num_threads n_threads nthreads n_jobs intra_op_num_threads", "threads"),
    ("num_workers n_workers", "workers"),
    ("dim axes", "axis"),
    ("dims axis", "axes"),
    ("keepdim keep_dims", "keepdims"),
    ("rtol atol tol", "tolerance"),
    ("shape input_shapes shape_dict dynamic_axes dynamic_shapes dims dim", "shapes"),
    ("batch_size dynamic_batch", "batch"),
    ("optimization_level opt optimize O", "opt_level"),
    ("feed feed_dict inputs args", "feeds"),
    ("reference baseline golden", "against"),
    ("form format kind", "fmt"),
    ("function_name fn", "function"),
    ("init init_values init_val carry", "initial"),
    ("n trip_count iterations", "count"),
    ("path output directory out", "folder"),
    ("verbose quiet silent", "progress"),
    ("imported host_functions", "imports"),
    ("n_tokens max_tokens max_length num_tokens", "max_new_tokens"),
    ("--timeline --chrome-trace", "--trace"),
    ("-O -O0 -O1 -O2 -O3 --optimize --opt", "--opt-level"),
    ("--dims --dynamic-axes --input-shape --shapes", "--shape"),
    ("--inputs --feed -i", "--input"),
    ("--outputs --out", "--output"),
    ("--rtol --atol", "--tolerance"),
    ("--with --reference --baseline", "--against"),
    ("--runs --iterations --number", "--repeat"),
    ("--port", "--http-port"),
    ("--format", "--form"),
)


_PARAMETERS = {
    "compile": _by_name(
        {
            "dtype fp16 half float16 bf16 int8 quantize quantization":
                "the model's own types decide, and precision='bfloat16'; onnxruntime.transformers.float16 and "
                "onnxruntime.quantization write others",
            "level graph_optimization_level": "opt_level is 0, 1 or 2",
            "disabled_pass disable_passes disabled_optimizers": "without=[…] leaves passes out",
            "cache cache_dir": "TREADLE_CACHE says where kernels are kept",
            "threads num_threads": "treadle.VirtualMachine(executable, threads=count)",
            "output path out": "executable.save(path) writes the file",
            "debug": "print_after=[\"all\"] shows the program after each pass",
        }
    ),
    "generate": _by_name(
        {
            "eos_token_id eos eos_token stop_token stop_tokens stop_strings": "stop=[id] ends a text",
            "do_sample": "a temperature above 0 draws, and none takes the likeliest",
            "num_beams beams num_return_sequences": "there is no search by beams; a batch of equal prompts draws several texts",
            "repetition_penalty no_repeat_ngram_size logits_processor bad_words_ids min_length":
                "sampler may be a function of logits that gives ids",
            "input_ids prompt inputs": "ids is the prompt, by position",
            "pad_token_id mask": "attention_mask says where prompts are filled up",
            "streamer stream": "generate is an iterator: tokens come as they are made",
            "timeout max_seconds max_time": "the machine's max_seconds holds for each token; leave the loop to end a text",
            "past_key_values use_cache": "the cache is found by the names of inputs and outputs",
        }
    ),
    "VirtualMachine": _by_name(
        {
            "providers target": "device is treadle.cpu(), or treadle.remote(address)",
            "listeners listener callbacks hooks": "with machine.listening(listener):",
        }
    ),
    "VirtualMachine.call": _by_name(
        {
            "listeners listener callbacks hooks": "with machine.listening(listener):",
            "token cancel_token": "cancel takes a treadle.CancelToken",
        }
    ),
}  # fmt: skip


def parameter_elsewhere(function: str, name: str) -> str:
    """The same for a parameter that a function has not."""
    meant = _PARAMETERS.get(function, {}).get(name, "")
    return f"; {meant}" if meant else ""


def elsewhere(kind: str, name: str) -> str:
    """`; treadle.op …`, the end of a message about an unknown attribute, of a class, or of the package; "" for a name
    that no other tool has."""
    meant = _MEANT.get(kind, {}).get(name, "")
    return f"; {meant}" if meant else ""


def own_words(name: str, known: Collection[str]) -> list[str]:
    """Those of the known parameters or options that are Treadle's words for another tool's."""
    return [own for words, own in _WORDS if own in known and name in words.split()]
