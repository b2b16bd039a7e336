"""``calipers inspect``: the contents of a model folder."""

from pathlib import Path
from typing import Any

import typer

from calipers._text import counted, describe_support
from calipers.cli._options import AsJSON, ModelFolder
from calipers.cli._printing import for_terminal, print_json


def inspect_command(model: ModelFolder, as_json: AsJSON = False) -> None:
    """Show inputs, target, settings and evaluation of a model.

    The files are read and checked, but no code is run, so a model with a custom network can be
    inspected without that network.
    """
    from calipers.multitarget import stored_targets
    from calipers.storage import read_model

    document, arrays = read_model(model)
    _check(document, arrays, Path(model))
    if "targets" not in document:
        facts = _facts(document, arrays, Path(model))
        (print_json if as_json else _show)(facts)
        return
    several = [_facts(*stored, Path(model)) for stored in stored_targets(document, arrays)]
    if as_json:
        print_json({"model": model, "targets": several})
    for facts in [] if as_json else several:
        _show(facts)
        typer.echo("")


def _check(document: dict[str, Any], arrays: dict[str, Any], folder: Path) -> None:
    """Refuse what ``load`` refuses, except for missing code."""
    from calipers import IntervalRegressor
    from calipers._schema import SchemaError
    from calipers._serialization import check_model
    from calipers.multitarget import check_targets
    from calipers.storage import ModelFileError

    try:
        if "targets" in document:
            check_targets(document, arrays)
        else:
            check_model(IntervalRegressor(), document, arrays)
    except SchemaError as error:
        raise ModelFileError(f"{folder}: {error}") from None


def _facts(document: dict[str, Any], arrays: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the description of a model as plain JSON."""
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
            {"kind": c.kind, "rows": int(c.n_rows), "strict": bool(c.strict)}
            for c in calibrations_from_dict(ensemble, arrays)
        ],
        "settings": document["parameters"],
        "about": inputs["about"],
        "bytes": sum(path.stat().st_size for path in files),
    }


def _show(facts: dict[str, Any]) -> None:
    from calipers.cli._columns import print_columns
    from calipers.cli._measures import is_measured, print_measures
    from calipers.training import time_warning

    facts = for_terminal(facts)
    target, inputs, about = facts["target"], facts["inputs"], facts["about"]
    used = sum(column["used"] for column in inputs)
    typer.echo(f"{facts['model']}: predicts {target['name']} from {used} of {len(inputs)} inputs")
    print_columns([target], inputs)
    typer.echo(f"\n{_networks(facts)}")
    typer.echo(_calibration(facts["calibrations"]))
    typer.echo(describe_support(target["name"], facts["support"]))
    if facts["components"] > 1 or facts["scale"] != "identity":
        typer.echo(f"Components of each network: {facts['components']}; scale: {facts['scale']}")
    if facts["trees"]:
        typer.echo(f"The predictions of {facts['trees']} trees are an input of the networks")
    if text := time_warning(about.get("time_budget")):
        typer.echo(f"Note: {text}")
    typer.echo(f"Settings: {_changed(facts['settings']) or 'the defaults'}")
    if is_measured(evaluation := about.get("evaluation")):
        typer.echo(f"\nWhen fitted, on {counted(evaluation['rows'], 'row')} held out:")
        print_measures(evaluation, target["name"])
    if isinstance(about.get("more_rows"), str):
        typer.echo(about["more_rows"])
    files = (about.get("source") or {}).get("files", [])
    source = f" of {', '.join(files)}" if files else ""
    if "fitted_at" in about:
        typer.echo(f"\nFitted {about['fitted_at']} on {about.get('rows', 0):,} rows{source}")
    if versions := about.get("versions"):
        typer.echo(f"  with {', '.join(f'{name} {text}' for name, text in versions.items())}")
    typer.echo(f"size: {facts['bytes'] / 1e6:.2f} MB")


def _networks(facts: dict[str, Any]) -> str:
    networks, settings = facts["networks"], facts["settings"]
    epochs = " to ".join(f"{end:,}" for end in dict.fromkeys(networks["epochs"]))
    loss = settings.get("loss", "the default")
    loss = loss if isinstance(loss, str) else loss.get("kind", "custom")
    retrained = networks["trained_again"]
    return (
        f"{networks['count']} networks with {networks['weights']:,} weights, trained for {epochs} "
        f"epochs; loss {loss}, aggregation {settings.get('aggregation', 'the default')}"
        + (f"; {retrained} failed and were trained again" if retrained else "")
    )


def _calibration(calibrations: list[dict[str, Any]]) -> str:
    if not calibrations:
        return "Not calibrated: intervals are those of the networks"
    from calipers.calibration import CALIBRATIONS

    corrects_by = [CALIBRATIONS[c["kind"]].corrects_by for c in calibrations]
    texts = [
        f"{'conformalized on' if c['strict'] else 'calibrated out of fold on'} {c['rows']:,} rows"
        for c, correction in zip(calibrations, corrects_by, strict=True)
        if not correction
    ]
    first = "".join(f", by {correction} first" for correction in corrects_by if correction)
    return f"{' and '.join(texts).capitalize()}{first}"


def _changed(settings: dict[str, Any]) -> str:
    """Return the settings that differ from the defaults."""
    from calipers import IntervalRegressor
    from calipers._serialization import parameters_from_dict
    from calipers.training import SHORTHANDS

    defaults = IntervalRegressor().get_params()
    stored = {k: v for k, v in settings.items() if k != "preprocessor"}
    kwargs = parameters_from_dict(stored, IntervalRegressor._get_param_names())
    return ", ".join(
        f"{name}={value}"
        for name, value in IntervalRegressor(**kwargs).get_params().items()
        if name not in SHORTHANDS and (name not in defaults or defaults[name] != value)
    )
