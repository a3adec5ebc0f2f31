"""Settings of Sphinx, which `make docs` builds the site of these pages with."""

import re

project = "Treadle"
html_title = "Treadle"
html_theme = "furo"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 3
default_role = "code"  # docstrings have `names` as Markdown has them
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
add_module_names = False
html_copy_source = False
html_show_copyright = False

_NAME = r"\*?[A-Za-z_][\w.*]*"
_ROW = re.compile(rf"({_NAME}(?:, {_NAME})*)  +(\S.*)")  # of a docstring's table: names, two spaces or more, what it is
_MARKS = re.compile(r"(`[^`]*`)")


def setup(app):
    app.connect("autodoc-process-docstring", _as_markup)


def _as_markup(app, what, name, obj, options, lines):
    """A docstring as reStructuredText: tables of names become lists, and what is indented stays as it is."""
    paragraphs, text = [], "\n".join(lines).strip("\n")
    for paragraph in re.split(r"\n\s*\n", text):
        rows = paragraph.split("\n")
        if _ROW.fullmatch(rows[0]):
            paragraphs += _listed(rows)
        elif rows[0].startswith("    "):
            paragraphs += ["::", "", *rows, ""]
        else:
            paragraphs += [*(_escaped(row.strip()) for row in rows), ""]
    lines[:] = paragraphs


def _listed(rows):
    listed = []
    for row in rows:
        found = _ROW.fullmatch(row)
        if found:
            listed += [f"``{found[1]}``", f"    {_escaped(found[2])}"]
        else:
            listed.append(f"    {_escaped(row.strip())}")
    return [*listed, ""]


def _escaped(text):
    """Names in literals; outside of them nothing is markup."""
    parts = _MARKS.split(text)
    parts[::2] = [re.sub(r"([*_|\\])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [f"\\ `{part}`\\ " if part != "``" else "" for part in parts[1::2]]
    return "".join(parts)
