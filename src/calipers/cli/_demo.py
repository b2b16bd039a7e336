"""``calipers demo``: the whole way on a small dataset that ships with scikit-learn."""

from pathlib import Path
from typing import Annotated, Any

import typer

from calipers.cli._datasets import DIABETES, load_frame
from calipers.cli._measures import measure, print_measures
from calipers.cli._printing import print_json
from calipers.cli._table_options import AsJSON, Jobs


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for model, report and figure.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    n_jobs: Jobs = -1,
    as_json: AsJSON = False,
) -> None:
    """Fit on the diabetes data, print what the intervals are worth, write model and report."""
    from importlib.util import find_spec

    from sklearn.model_selection import train_test_split

    from calipers import IntervalRegressor

    frame, target = load_frame(DIABETES)
    train, test = train_test_split(frame, test_size=0.25, random_state=0)
    model = IntervalRegressor(coverage=0.95, random_state=seed, n_jobs=n_jobs)
    model.fit(train.drop(columns=target), train[target])
    X, y = test.drop(columns=target), test[target]
    found, bounds = measure(model, X, y, model.coverage)
    out.mkdir(parents=True, exist_ok=True)
    model.save(out / "model")
    written = {"model": out / "model", "report": model.report(X, y, out / "report.html")}
    if find_spec("matplotlib") is not None:
        written["figure"] = out / "intervals.png"
        _draw(written["figure"], bounds, model.predict(X), y)
    paths = {name: str(path) for name, path in written.items()}
    if as_json:
        print_json(found | paths)
        return
    typer.echo(f"diabetes: {len(train)} rows to learn from, {len(test)} to test on")
    print_measures(found, target)
    typer.echo(f"\nwrote {', '.join(paths.values())}")
    if "figure" not in paths:
        typer.echo("a figure needs Matplotlib: pip install 'calipers[plots]'")


def _draw(path: Path, bounds: Any, point: Any, target: Any) -> None:
    """Test rows in the order of their prediction, each with its interval."""
    from calipers.plots import new_figure, plot_rows, style

    lower, upper = bounds
    with style():
        figure = new_figure(3.2)
        axes = figure.subplots()
        plot_rows(axes, lower, point, upper, target)
        axes.set_ylabel("disease progression")
        axes.legend(loc="upper left")
        figure.savefig(path)
