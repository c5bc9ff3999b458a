"""Settings of Sphinx, which `python -m docs.site` runs over the staged pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.domains.python import PyObject

from docs.site import versions

# Attributes are described in a list of their class. Their names are no links: each `key` is one of its own class.
for kind in PyObject.doc_field_types:
    if kind.name == "variable":
        kind.rolename, kind.label = "", "Attributes"

HERE = Path(__file__).parent

project = "cues-kafka"
author = "the authors of cues-kafka"
version, release = versions.current()
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docs.site.diagrams"]

# The pages are plain Markdown, as hosts of repositories show it: nothing in them is a word of this generator. The
# directives of the navigation are all that is added.
myst_heading_anchors = 6
myst_disable_syntax = ["colon_fence", "myst_block_break", "myst_line_comment", "myst_role", "myst_target"]
smartquotes_action = "D"  # dashes, and no other quotes; options with two dashes stand in code
highlight_language = "none"
default_role = "code"  # docstrings put names between single backticks

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"cues-kafka {version}"
html_static_path = [str(HERE / "static")]
templates_path = [str(HERE / "templates")]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_theme_options = {"navigation_with_keys": False}
pygments_style = "default"
pygments_dark_style = "github-dark"


def one_word(_app: Any, _what: str, _name: str, _thing: object, _options: object, lines: list[str]) -> None:
    """Make one name of `topic, partition: which one.`: the first would be taken for the type of the second."""
    for number, line in enumerate(lines):
        if found := re.match(r"( *)(\w+(?:, \w+)+)(: .*)", line):
            lines[number] = f"{found[1]}{found[2].replace(', ', ',')}{found[3]}"


def setup(app: Any) -> None:
    """Read docstrings before the extension for their style does."""
    app.connect("autodoc-process-docstring", one_word, priority=400)
