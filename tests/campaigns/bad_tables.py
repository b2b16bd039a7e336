"""Tables that are damaged or awkward: an answer in finite numbers, or an error that says why."""

import io
import tempfile
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pyarrow as pa

from calipers import IntervalRegressor, load
from calipers.networks import MLP
from calipers.prediction import Query
from calipers.preprocessing import DataError, TableEncoder
from calipers.tables import TableError, read_blocks

from ._tally import FOLDERS, Part, Tally

BITS = [
    *(b",", b";", b"\t", b"|", b'"', b'""', b"'", b"\n", b"\r", b"\r\n", b"\0", b"\x1a", b" "),
    *(b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3", b"\xe2\x80\xa8", "\u0661".encode()),
    *(b"nan", b"inf", b"-inf", b"1e400", b"1e308", b"-", b"1,5", b"1_000", b"0x10", b"NULL"),
    *(b"9" * 400, b"a" * 70_000, b"," * 3_000, b"2024-02-30", b"99999-01-01", b"=1+1", b"[]"),
]


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Bytes with one to five changes."""
    found = bytearray(content)
    for _ in range(rng.integers(1, 6)):
        at = int(rng.integers(0, len(found) + 1))
        end = min(len(found), at + int(rng.choice([0, 1, 1, 4, 40, 400])))
        way = rng.choice(["put", "put", "put", "cut", "flip", "repeat", "end"])
        if way == "put":
            found[at:end] = BITS[rng.integers(len(BITS))]
        elif way == "cut":
            del found[at:end]
        elif way == "flip" and at < len(found):
            found[at] ^= 1 << int(rng.integers(8))
        elif way == "repeat":
            found[at:at] = found[at:end] * 3
        elif way == "end":
            del found[at:]
    return bytes(found)


def _written(rows: pd.DataFrame, kind: str) -> bytes:
    if kind == "csv":
        return rows.to_csv(index=False).encode()
    sink = io.BytesIO()
    if kind == "parquet":
        rows.to_parquet(sink, index=False)
    else:
        table = pa.Table.from_pandas(rows, preserve_index=False)
        make = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with make(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


def files(count: int, seed: int) -> Tally:
    """Files of four formats, predicted by a model of mixed columns."""
    tally, rng = Tally(), np.random.default_rng(seed)
    rows = pd.read_csv(FOLDERS / "rows.csv")
    kinds = ("csv", "csv", "parquet", "arrow", "stream")
    contents = {kind: _written(rows, kind) for kind in kinds}
    model = load(FOLDERS / "table")
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / "rows"
        for number in range(count):
            kind = kinds[rng.integers(len(kinds))]
            path.write_bytes(damaged(contents[kind], rng))
            try:
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("error")
                    warnings.filterwarnings("ignore", "unreadable, so taken as missing")
                    for block in read_blocks(str(path)):
                        found = model.query(model.pick(block.frame), Query())
                        if not np.isfinite(found.point).all():
                            raise ArithmeticError("points that are not finite")
                tally.add("predicted")
            except (TableError, DataError) as error:
                tally.check(bool(str(error)), "refused", f"file {number}: no words")
            except Exception as error:
                tally.wrong(f"{kind} file {number} of seed {seed}: {error!r}"[:200])
    return tally


def _column(rng: np.random.Generator, rows: int) -> Any:
    """A column of some awkward kind."""
    normal = rng.normal(size=rows)
    choices: list[Any] = [
        normal,
        np.zeros(rows),
        np.full(rows, np.nan),
        np.where(rng.random(rows) < 0.5, np.nan, normal),
        normal * 1e300,
        normal * 1e-300,
        np.where(np.arange(rows) == 3, 1e6, normal),
        np.where(np.arange(rows) == 3, np.inf, normal),
        np.arange(rows) + 2**60,
        rng.random(rows) < 0.5,
        rng.choice(["a", "b", "", " a", "\u00e9", "nan", "1"], rows),
        [f"id-{i}" for i in range(rows)],
        np.array([1, "x", None, 2.5, True] * rows, object)[:rows],
        pd.date_range("1700-01-01", periods=rows, freq="1000D").astype(str),
        pd.date_range("2024-01-01", periods=rows, tz="Asia/Kathmandu"),
        pd.to_timedelta(np.arange(rows), unit="s"),
        pd.Categorical(["x", "y"] * (rows // 2)),
        [{"a": 1}] * rows,
        normal + 1j,
    ]
    return choices[rng.integers(len(choices))]


def fits(count: int, seed: int) -> Tally:
    """Frames of awkward columns, fitted and predicted."""
    tally, rng = Tally(), np.random.default_rng(seed)
    jax.config.update("jax_disable_most_optimizations", True)  # most of the time is compiling
    small = MLP(hidden_layers=(4,), frequencies=0)
    for number in range(count):
        frame = pd.DataFrame({f"c{i}": _column(rng, 40) for i in range(2)})
        target = rng.choice([0, 1, 1e200, 1e-200, 1.0], 1) * rng.normal(size=40)
        model = IntervalRegressor(
            n_networks=2, cv=2, epochs=2, network=small, preprocessor=TableEncoder(), random_state=0
        )
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                found = model.set_params(verbose=0).fit(frame, target).predict(frame)
            right = bool(np.isfinite(found).all())
            tally.check(right, "fitted", f"fit {number} of seed {seed}: points not finite")
        except (DataError, ValueError, TypeError) as error:
            message = f"{error}"
            own = isinstance(error, DataError) or "must" in message or "no column" in message
            tally.check(own, "refused", f"fit {number} of seed {seed}: {error!r}"[:200])
        except Exception as error:
            tally.wrong(f"fit {number} of seed {seed}: {error!r}"[:200])
    return tally


PARTS = (
    Part("bad tables", "damaged CSV, Parquet and Arrow files, predicted", 4000, files, 60, 1000),
    Part("bad tables", "frames of awkward columns, fitted", 40, fits, 0, 10),
)
