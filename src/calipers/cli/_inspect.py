"""``calipers inspect``: what a model folder holds."""

from pathlib import Path
from typing import Any

import typer

from calipers.cli._columns import print_columns
from calipers.cli._measures import is_measured, print_measures
from calipers.cli._predict import ModelFolder
from calipers.cli._printing import for_terminal, print_json
from calipers.cli._table_options import AsJSON


def inspect_command(model: ModelFolder, as_json: AsJSON = False) -> None:
    """Show what is in a model folder: inputs, target, settings, evaluation, versions.

    Nothing is run: the files are read and checked, also those of a model whose network is code of
    one's own.
    """
    from calipers._schema import arrays_under
    from calipers.storage import read_model

    document, arrays = read_model(model)
    _check(document, arrays, Path(model))
    if "targets" in document:
        numbered = enumerate(document["targets"])
        parts = [(own, arrays_under(arrays, f"{i}.")) for i, own in numbered]
        several = [_facts(own, part, Path(model)) for own, part in parts]
        if as_json:
            print_json({"model": model, "targets": several})
        for found in [] if as_json else several:
            _show(found)
            typer.echo("")
        return
    found = _facts(document, arrays, Path(model))
    if as_json:
        print_json(found)
    else:
        _show(found)


def _check(document: dict[str, Any], arrays: dict[str, Any], folder: Path) -> None:
    """Refuse what ``load`` refuses, but for code that is not there."""
    from calipers import IntervalRegressor
    from calipers._loading import check_model
    from calipers._schema import SchemaError
    from calipers.multitarget import MultiTargetRegressor
    from calipers.storage import ModelFileError

    try:
        if "targets" in document:
            MultiTargetRegressor()._from_document(document, arrays)
        else:
            check_model(IntervalRegressor(), document, arrays)
    except SchemaError as error:
        raise ModelFileError(f"{folder}: {error}") from None


def _facts(document: dict[str, Any], arrays: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What is known of a model, as plain JSON."""
    from calipers._serialization import calibrations_from_dict, support_from_dict

    inputs, ensemble = document["inputs"], document["ensemble"]
    encoder = inputs["preprocessor"]
    columns = inputs["columns"] if encoder is None else [c["column"] for c in encoder["columns"]]
    files = [path for path in folder.iterdir() if path.is_file()]
    return {
        "model": str(folder),
        "target": inputs["target"],
        "support": str(support_from_dict(ensemble)),
        "components": ensemble["program"].get("components", 1),
        "scale": ensemble.get("target_map", {"kind": "identity"})["kind"],
        "inputs": columns,
        "trees": inputs.get("trees", 0),
        "coverage": ensemble["coverage"],
        "networks": {
            "count": len(arrays["seeds"]),
            "trained_again": int(arrays["failures"].sum()),
            "epochs": [int(arrays["epochs"].min()), int(arrays["epochs"].max())],
            "weights": sum(a.size for n, a in arrays.items() if n.startswith("weights.")),
        },
        "calibrations": [
            {"kind": found.kind, "rows": int(found.n_rows), "strict": bool(found.strict)}
            for found in calibrations_from_dict(ensemble, arrays)
        ],
        "settings": document["parameters"],
        "about": inputs["about"],
        "bytes": sum(path.stat().st_size for path in files),
    }


def _show(found: dict[str, Any]) -> None:
    from calipers.training import out_of_time

    found = for_terminal(found)
    target, inputs, about = found["target"], found["inputs"], found["about"]
    used = sum(column["used"] for column in inputs)
    typer.echo(f"{found['model']}: predicts {target['name']} from {used} of {len(inputs)} inputs")
    print_columns([target], inputs)
    typer.echo(f"\n{_networks(found)}")
    typer.echo(_calibration(found["calibrations"]))
    typer.echo(f"Values of {target['name']} are taken to be {found['support']}")
    if found["components"] > 1 or found["scale"] != "identity":
        typer.echo(f"Components of each network: {found['components']}; scale: {found['scale']}")
    if found["trees"]:
        typer.echo(f"Points of {found['trees']} trees are an input of the networks")
    if text := out_of_time(about.get("time_budget")):
        typer.echo(f"Note: {text}")
    changed = _changed(found["settings"])
    typer.echo(f"Settings: {changed or 'the defaults'}")
    if is_measured(evaluation := about.get("evaluation")):
        typer.echo(f"\nWhen fitted, on {evaluation['rows']:,} rows held out:")
        print_measures(evaluation, target["name"])
    if isinstance(about.get("more_rows"), str):
        typer.echo(about["more_rows"])
    files = (about.get("source") or {}).get("files", [])
    source = f" of {', '.join(files)}" if files else ""
    if "fitted_at" in about:
        typer.echo(f"\nFitted {about['fitted_at']} on {about.get('rows', 0):,} rows{source}")
    if versions := about.get("versions"):
        typer.echo(f"  with {', '.join(f'{name} {text}' for name, text in versions.items())}")
    typer.echo(f"{found['bytes'] / 1e6:.2f} MB")


def _networks(found: dict[str, Any]) -> str:
    networks, settings = found["networks"], found["settings"]
    first, last = networks["epochs"]
    epochs = f"{first:,}" if first == last else f"{first:,} to {last:,}"
    loss = settings.get("loss", "the default")
    loss = loss if isinstance(loss, str) else loss.get("kind", "of its maker's own")
    again = networks["trained_again"]
    return (
        f"{networks['count']} networks with {networks['weights']:,} weights, trained for {epochs} "
        f"epochs; loss {loss}, aggregation {settings.get('aggregation', 'the default')}"
        + (f"; {again} failed and were trained again" if again else "")
    )


def _calibration(calibrations: list[dict[str, Any]]) -> str:
    if not calibrations:
        return "Not calibrated: intervals are as the networks have them"
    texts = [
        f"{'conformalized on' if c['strict'] else 'calibrated out of fold on'} {c['rows']:,} rows"
        for c in calibrations
        if c["kind"] != "width"
    ]
    by_width = ", by predicted width first" if len(texts) < len(calibrations) else ""
    return f"{' and '.join(texts).capitalize()}{by_width}"


def _changed(settings: dict[str, Any]) -> str:
    """Settings that are not the defaults."""
    from calipers import IntervalRegressor
    from calipers._parameters import parameters_from_dict
    from calipers.training import SHORTHANDS

    usual = IntervalRegressor().get_params()
    stored = {k: v for k, v in settings.items() if k != "preprocessor"}
    known = parameters_from_dict(stored, IntervalRegressor._get_param_names())
    found = IntervalRegressor(**known).get_params()
    return ", ".join(
        f"{name}={value}"
        for name, value in found.items()
        if name not in SHORTHANDS and (name not in usual or usual[name] != value)
    )
