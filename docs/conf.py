"""Sphinx configuration."""

import shutil
from importlib.metadata import version as _version
from pathlib import Path

project = "foils"
author = "the foils authors"
copyright = "2026, the foils authors"
release = version = _version("foils")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "foils"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = False  # doors have more parameters than their source
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_attr_annotations = False  # types stand in the signature
nitpicky = False
suppress_warnings = [
    "misc.highlighting_failure",
    "ref.python",  # attributes of several classes have one name, as `pairs`; such words link to none of them
]


def _escape_bars(app, what, name, obj, options, lines):  # |N| is a size here, not a substitution
    lines[:] = [line.replace("|", r"\|") for line in lines]


def _publish(app, exception):  # what programs read: llms.txt, the pages that it links to, the schemas
    folder, built = Path(app.srcdir), Path(app.outdir)
    (built / "schemas").mkdir(exist_ok=True)
    for path in [folder / "llms.txt", *folder.glob("*.md"), *folder.glob("schemas/*.json")]:
        shutil.copyfile(path, built / path.relative_to(folder))


def setup(app):
    """Connect the hooks."""
    app.connect("build-finished", _publish)
    app.connect("autodoc-process-docstring", _escape_bars)
