"""What AttnLab needs of other packages: where plotly.js is, and the line for whoever runs it where something is missing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def plotly_js() -> Path:
    """plotly.min.js in the plotly package, which is not imported for it. Raises ModuleNotFoundError."""
    found = find_spec("plotly")
    if found is None:
        raise ModuleNotFoundError(lacks("plotly"), name="plotly")
    return Path(found.submodule_search_locations[0]) / "package_data" / "plotly.min.js"


def lacks(package: str | None) -> str:
    """That this Python has no such package, and what to do, in one line."""
    return (
        f"{package} is not installed in this Python: python -m pip install -r requirements.txt,"
        " or use .venv/bin/python, which `make run` makes"
    )
