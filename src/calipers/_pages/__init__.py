"""Web assets that the report and the server's page share: a chart module and the colours.

The report copies them into its one file, the server hands them out beside its own.
"""

from importlib import resources
from importlib.resources.abc import Traversable

FOLDER: Traversable = resources.files(__name__)
"""Where the assets are."""

ASSETS = ("charts.js", "charts.css")
"""Their names."""


def asset(name: str) -> str:
    """The text of one of ``ASSETS``.

    >>> "export function frame" in asset("charts.js")
    True
    """
    return FOLDER.joinpath(name).read_text("utf-8")
