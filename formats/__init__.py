"""Everything that is bytes or text. It knows nothing else of Treadle, and of the compiler and of the linker only names."""

library_writer = ""  # the module whose `export_executable(executable, path)` links a library; the package says which
producer = ""  # what executables say made them; the package says its name and version
kernel_sources = ""  # the module whose `get_source(definition, form)` shows a kernel; the package says which
data_types = ""  # the module whose `DataTypes` makes values of data types; the package says which
text_folders = ""  # the module that reads models' folders; the package says which
precision_search = ""  # the module that finds what may be narrow, by running programs; the package says which
