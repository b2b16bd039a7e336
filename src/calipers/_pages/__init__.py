"""Web assets that the report and the server's page share: charts and colours.

The report copies them into its single file, the server serves them along with its own.
"""

from importlib import resources
from importlib.resources.abc import Traversable

FOLDER: Traversable = resources.files(__name__)
"""Folder of the assets."""

ASSETS = ("charts.js", "charts.css")
"""Names of the assets."""


def asset(name: str) -> str:
    """Return the text of one of ``ASSETS``.

    >>> "export function frame" in asset("charts.js")
    True
    """
    return FOLDER.joinpath(name).read_text("utf-8")
