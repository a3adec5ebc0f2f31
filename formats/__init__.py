"""Everything that is bytes or text. It knows nothing else of Treadle, and of the compiler only a name."""

from . import errors as errors  # treadle.errors

kernel_sources = ""  # the module whose `get_source(definition, form)` shows a kernel; the package says which
