"""``calipers demo``: fit, evaluate and report on a dataset that ships with scikit-learn."""

from pathlib import Path
from typing import Annotated

import typer

from calipers.cli._datasets import DIABETES, load_frame
from calipers.cli._options import AsJSON, Jobs, Seed
from calipers.cli._printing import print_json


def demo_command(
    out: Annotated[
        Path, typer.Option(help="Folder for the model, the report and a figure.")
    ] = Path("demo"),
    seed: Seed = 0,
    n_jobs: Jobs = -1,
    as_json: AsJSON = False,
) -> None:
    """Fit, evaluate and report on the diabetes data."""
    from importlib.util import find_spec

    from sklearn.model_selection import train_test_split

    from calipers import IntervalRegressor
    from calipers.cli._measures import measure, print_measures

    frame, target = load_frame(DIABETES)
    train, test = train_test_split(frame, test_size=0.25, random_state=0)
    model = IntervalRegressor(coverage=0.95, random_state=seed, n_jobs=n_jobs)
    model.fit(train.drop(columns=target), train[target])
    X, y = test.drop(columns=target), test[target]
    measures, _ = measure(model, X, y, model.coverage)
    out.mkdir(parents=True, exist_ok=True)
    model.save(out / "model")
    written = {"model": out / "model", "report": model.report(X, y, out / "report.html")}
    if find_spec("matplotlib") is not None:
        from calipers.plots import new_figure, plot_intervals, style

        written["figure"] = out / "intervals.png"
        with style():
            figure = new_figure(3.2)
            plot_intervals(model, X, y, ax=figure.subplots()).legend(loc="upper left")
            figure.savefig(written["figure"])
    paths = {name: str(path) for name, path in written.items()}
    if as_json:
        print_json(measures | paths)
        return
    typer.echo(f"diabetes: {len(train)} training rows, {len(test)} test rows")
    print_measures(measures, target)
    typer.echo(f"\nwrote {', '.join(paths.values())}")
    if "figure" not in paths:
        typer.echo("the figure needs Matplotlib: pip install 'calipers[plots]'")
