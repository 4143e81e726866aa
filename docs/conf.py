"""How Sphinx builds the site: `make docs`."""

import tomllib
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

project = PROJECT["name"]
version = release = PROJECT["version"]
project_copyright = "the molgcn authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # names of other libraries need their inventories, and so the internet

myst_enable_extensions = ["attrs_block", "dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # sections of a page that is included begin below its own title

toc_object_entries_show_parents = "hide"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Shapes", "params_style")]

html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"getting_started": []}  # it has no pages below it
html_show_sourcelink = False
html_math_renderer = "mathml"
html_context = {"default_mode": "auto"}  # as the figures, which follow the system's light or dark mode
html_theme_options = {
    "navbar_end": [],
    "navbar_align": "left",
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
linkcheck_timeout = 20
linkcheck_retries = 2


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    translator.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula of its own."""
    translator.body.append(f'<div class="formula">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def skip(app: Sphinx, what: str, name: str, member: object, skipped: bool, options: object) -> bool | None:
    """Leave out the fields of named tuples, which their class describes."""
    return True if type(member).__name__ == "_tuplegetter" else None


def setup(app: Sphinx) -> None:
    """Register formulae as MathML, so that readers fetch no script, and what autodoc leaves out."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.connect("autodoc-skip-member", skip)
