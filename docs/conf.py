"""How Sphinx builds these pages (``make docs``)."""

import re
from pathlib import Path

project = "envmgr"
author = "the envmgr developers"
copyright = author
version = release = re.search(  # type: ignore[union-attr]
    r'^__version__ = "([^"]+)"$', Path(__file__).parents[1].joinpath("envmgr/__init__.py").read_text(), re.M
).group(1)

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"envmgr {release}"
