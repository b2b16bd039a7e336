"""A report on a model: one HTML file that shows how far its intervals can be trusted.

``write(model, X, y, "report.html")``, or ``model.report(X, y, "report.html")``, evaluates a fitted
model on labelled rows that were not used for training. The file needs no network and no other file:
it has text, tables, and charts that can be used with pointer and keyboard.
"""

import os
from pathlib import Path

from numpy.typing import ArrayLike

from calipers._evaluation import predict_labelled
from calipers._files import replace_file, require_folder
from calipers._text import counted
from calipers.regressor import IntervalRegressor
from calipers.report._drivers import find_drivers
from calipers.report._groups import breakdowns
from calipers.report._misses import read_inputs, worst_misses
from calipers.report._page import Content, render
from calipers.training import time_warning

__all__ = ["write"]


def write(
    model: IntervalRegressor,
    X: ArrayLike,
    y: ArrayLike,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    source: str | None = None,
    cautions: list[str] | None = None,
    verbose: int = 1,
) -> Path:
    """Evaluate a fitted model on labelled rows and write a report as one HTML file.

    Parameters
    ----------
    model : IntervalRegressor
        A fitted model.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,)
        Rows that were not used for training, as ``predict`` takes them, and their targets. Numbers
        are computed from all rows; charts show a sample if there are many.
    path : path
        The file to write; an existing one is replaced atomically.
    title : str, optional
        Title of the page; by default it names the target.
    source : str, optional
        Where the rows come from, such as the name of a file, to be shown on the page.
    cautions : list of str, optional
        Warnings to be shown at the top.
    verbose : int, default 1
        0 shows no progress bar.

    Raises
    ------
    ValueError
        If there is no row, a target is not a finite number, or the model has no intervals.
    FileNotFoundError
        If the folder of ``path`` does not exist.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from calipers import IntervalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (300, 1))
    >>> y = X[:, 0] ** 2 + rng.normal(0, 0.2, 300)
    >>> model = IntervalRegressor(
    ...     n_networks=2, cv=2, epochs=50, random_state=0
    ... ).fit(X[:200], y[:200])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write(model, X[200:], y[200:], Path(folder, "report.html")).read_text("utf-8")
    >>> "The 95% intervals contained" in page, "<h3>x0</h3>" in page
    (True, True)
    """
    file = Path(path)
    require_folder(file)  # before the work, not after it
    labelled = predict_labelled(model, X, y, visible=bool(verbose))
    inputs = read_inputs(model, X, labelled.outside)
    names = [str(name) for name in getattr(X, "index", range(len(labelled)))]
    content = Content(
        model=model,
        labelled=labelled,
        parts=breakdowns(labelled, inputs),
        misses=worst_misses(labelled, inputs, names),
        names=names,
        title=title or f"Prediction intervals for {model.target_.name}",
        where=f"Evaluated on {counted(len(labelled), 'row')}" + (f" of {source}" if source else ""),
        drivers=find_drivers(model, X, labelled),
        cautions=[
            *(cautions or []),
            *filter(None, [time_warning(model.about_.get("time_budget"))]),
        ],
    )
    replace_file(file, render(content).encode())
    return file
