"""The machine: runs executables. It knows formats, and of the compiler only a name."""

compiler_name = ""  # the module that builds kernels and evaluates definitions; the package says which
# By the first word of an executable's target, the module whose `backend(target)` evaluates its primitives; the package says which
targets: dict[str, str] = {}
debugger_name = ""  # the module whose `session` debugs calls and whose `Recorder` records them; the package says which
