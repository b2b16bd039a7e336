"""Columns of frames by name and by position."""

from collections.abc import Iterable, Sequence
from typing import Any

from calipers._checks import warn
from calipers.preprocessing import is_frame, wrong_width


def column_names(frame: Any) -> list[str]:
    """Names of the columns of a frame of pandas or polars, or of a table of Arrow, as text."""
    of_arrow = type(frame).__module__.startswith("pyarrow")
    return [str(name) for name in (frame.column_names if of_arrow else frame.columns)]


def by_position(estimator: object, X: Any, names: Sequence[str], needed: Iterable[str]) -> Any:
    """A frame for a model that was fitted without names, with the ``names`` that it reads by.

    As in scikit-learn, other names have no meaning, which is warned about. A frame that has all
    names that are ``needed`` stays as it is.
    """
    if not is_frame(X) or set(needed) <= set(found := column_names(X)):
        return X
    who = type(estimator).__name__
    if len(found) != len(names):
        raise wrong_width(len(found), len(names), who)
    frame = X.to_pandas() if hasattr(X, "to_pandas") else X
    if all(isinstance(name, str) for name in frame.columns):
        warn(f"X has feature names, but {who} was fitted without feature names")
    return frame.set_axis(list(names), axis=1)
