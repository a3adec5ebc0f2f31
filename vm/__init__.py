"""The machine: runs executables. It knows formats, and of the compiler only a name."""

compiler_name = ""  # the module that builds kernels and evaluates definitions; the package says which
