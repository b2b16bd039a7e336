"""Resealed mutants of model folders: each is refused at load, or predicts numbers.

A mutant is a good model with one to three changes in its document or its arrays, and with the
checksums that belong to them.
"""

import hashlib
import json
import time
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import safetensors.numpy
from typer.testing import CliRunner

from calipers.calibration import AdaptiveCoverage
from calipers.cli import app
from calipers.storage import ModelFileError, _seal, read_model

from ._models import Example, new_models, old_models
from ._tally import Part, Tally

DEEP: Any = []
for _ in range(400):
    DEEP = [DEEP]
VALUES = [
    *(None, True, False, -1, 0, 1, 7, 1499, 3_000_000, 10**8, 2**63, 10**400, -(2**31)),
    *(0.5, -0.5, 1.5, 1e-300, 1e38, 1e155, 1e308, -1e308, 5e-324),
    *("", "x", "number", "DenseFactory", "Around", "mse", "2024-01-01", "%Q", "%d %d"),
    *("\x1b[2J\u202e", "</script>", "=1+1", "\x00"),
    *([], {}, [1], [[]], ["x"], {"custom": True}, {"kind": "MLP"}, {"kind": ["x"]}),
    *([8] * 1499, [1] * 20_000, [None], DEEP),
]
NUMBERS = [0.0, -1.0, 1.0, 1e-30, 1e6, 1e20, 1e37, 3e38, 1e155, 1e308, 5e-324, np.nan, np.inf]


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all that stands in a document."""
    found = [path]
    if isinstance(node, dict | list) and len(path) < 20:
        inner = node.items() if isinstance(node, dict) else enumerate(node[:20])
        for key, value in inner:
            found += places(value, (*path, key))
    return found


def change_document(document: dict[str, Any], rng: np.random.Generator) -> str:
    """Change something in a document, and return what."""
    paths = [path for path in places(document) if path]
    path = paths[rng.integers(len(paths))]
    *above, last = path
    parent: Any = document
    for key in above:
        parent = parent[key]
    way = rng.choice(["replace", "delete", "add", "repeat", "scale", "wrap"])
    value = VALUES[rng.integers(len(VALUES))]
    if way == "delete":
        del parent[last]
    elif way == "add" and isinstance(parent, dict):
        parent["extra"] = value
    elif way == "repeat" and isinstance(parent, list):
        parent.extend(parent * 2)
    elif way == "scale" and type(parent[last]) in (int, float):
        parent[last] *= [1000, -1, 10**8][rng.integers(3)]
    elif way == "wrap":
        for _ in range([1, 300][rng.integers(2)]):
            parent[last] = {"kind": "Around", "network": parent[last], "point_at": 0, "reach": 0}
    else:
        parent[last] = value
    return f"{way} {'.'.join(map(str, path))}"


def change_arrays(arrays: dict[str, np.ndarray], rng: np.random.Generator) -> str:
    """Change something in the arrays, and return what."""
    names = sorted(arrays)
    name = names[rng.integers(len(names))]
    array, value = arrays[name], NUMBERS[rng.integers(len(NUMBERS))]
    way = rng.choice(["drop", "rename", "type", "shape", "cut", "repeat", "fill", "one", "reverse"])
    with np.errstate(all="ignore"):
        if way == "drop":
            del arrays[name]
        elif way == "rename":
            arrays[f"{name}.{rng.integers(3)}"] = arrays.pop(name)
        elif way == "type":
            arrays[name] = array.astype(rng.choice(["f2", "f4", "f8", "i4", "i8", "u1", "?"]))
        elif way == "shape":
            arrays[name] = array.reshape(-1) if rng.random() < 0.5 else array[None]
        elif way == "cut":
            arrays[name] = array[:-1] if array.ndim else np.zeros(0)
        elif way == "repeat":
            arrays[name] = np.concatenate([np.atleast_1d(array)] * [2, 1000][rng.integers(2)])
        elif way == "fill":
            arrays[name] = np.full_like(array, np.asarray(value).astype(array.dtype))
        elif way == "one" and array.size:
            arrays[name] = array.copy()
            arrays[name].flat[rng.integers(array.size)] = np.asarray(value).astype(array.dtype)
        else:
            arrays[name] = np.ascontiguousarray(np.flip(array))
    return f"{way} {name}"


def reseal(folder: Path, record: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a folder with the checksums of what is in it."""
    weights = safetensors.numpy.save(arrays)
    digest = hashlib.sha256(weights).hexdigest()
    name = f"weights-{digest[:16]}.safetensors"
    for old in folder.iterdir():
        old.unlink()
    (folder / name).write_bytes(weights)
    body = {key: value for key, value in record.items() if key != "sha256"}
    body["weights"] = {"file": name, "sha256": digest, "bytes": len(weights)}
    (folder / "model.json").write_bytes(_seal(body))


def outcome(folder: Path, example: Example, inspected: bool = True) -> str:
    """What becomes of a folder: refused, sound, or what went wrong."""
    found = _loaded(folder, example)
    if found in ("refused", "sound") and inspected:
        shown = CliRunner().invoke(app, ["inspect", str(folder)])
        if shown.exit_code != {"refused": 4, "sound": 0}[found]:
            return f"inspect of what is {found}: {shown.output}"[:150]
    return found


def _loaded(folder: Path, example: Example) -> str:
    try:
        model = example.load(folder, **example.code)
    except ModelFileError:
        return "refused"
    except Exception as error:
        return f"load raised {type(error).__name__}: {error}"[:150]
    try:
        with np.errstate(all="ignore"):
            models = getattr(model, "models_", [model])
            rows = example.rows[:4]
            found = [array for one in models for array in _predicted(one, rows)]
            if any(isinstance(c, AdaptiveCoverage) for c in models[0].ensemble_.calibrations):
                model.update(rows, rows[:, 0])
                found += _predicted(model, rows)
            if models != [model]:
                found += [model.predict(rows)]
                model.predict_interval(rows, joint=True)
    except Exception as error:
        return f"predict raised {type(error).__name__}: {error}"[:150]
    if not all(np.isfinite(array).all() for array in found):
        return "predict gave numbers that are not finite"
    return "sound"


def _predicted(model: Any, rows: Any) -> list[Any]:
    model.set_params(unsupported="inf", n_jobs=1)
    found = [model.predict(rows), model.outside(rows)]
    if model.ensemble_.head.has_interval:
        interval = model.predict_interval(rows)
        open_ended = np.isinf(interval[:, 0]) & np.isinf(interval[:, 1])
        found.append(interval[~open_ended])
    if model.ensemble_.gives_distribution:
        found += [model.predict_quantiles(rows, [0.1, 0.5]), model.predict_var(rows)]
    return found


def mutants(count: int, seed: int, examples: dict[str, Example]) -> Tally:
    """Load, predict with and inspect so many mutants."""
    rng, tally = np.random.default_rng(seed), Tally()
    names = list(examples)
    models = {name: read_model(examples[name].folder) for name in names}
    records = {
        name: json.loads((examples[name].folder / "model.json").read_bytes()) for name in names
    }
    with TemporaryDirectory() as folder:
        for number in range(count):
            name = names[rng.integers(len(names))]
            document, arrays = deepcopy(models[name])
            changes = []
            for _ in range(rng.choice([1, 1, 1, 2, 3])):
                if rng.random() < 0.6:
                    changes.append(change_document(document, rng))
                else:
                    changes.append(change_arrays(arrays, rng))
            try:
                reseal(Path(folder), {**records[name], "document": document}, arrays)
            except (ValueError, RecursionError):
                tally.add("no document at all")
                continue
            began = time.perf_counter()
            found = outcome(Path(folder), examples[name], number % 4 == 0)
            tally.slowest = max(tally.slowest, time.perf_counter() - began)
            place = f"mutant {number} of {name}, seed {seed}: {'; '.join(changes)}: {found}"
            tally.check(found in ("refused", "sound"), found, place)
    return tally


def old_mutants(count: int, seed: int) -> Tally:
    """Of models of version 0.1."""
    return mutants(count, seed, old_models())


def new_mutants(count: int, seed: int) -> Tally:
    """Of models of now, with every part that a folder can have."""
    with TemporaryDirectory() as root:
        return mutants(count, seed, new_models(Path(root)))


PARTS = (
    Part("forged folders", "models of 0.1 changed and sealed again", 4_000, old_mutants, 0, 1_000),
    Part("forged folders", "models of now, thirteen kinds, likewise", 6_000, new_mutants, 0, 750),
)
