"""A hundred kinds of bad file and request: one line that says what is wrong, nothing changed."""

import bz2
import gzip
import io
import json
import lzma
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

FIT = "fit data.csv --target price --out out"
PREDICT = "predict model data.csv --out scored.csv"
EVALUATE = "evaluate model data.csv"


def rows(n=40, **columns):
    """CSV with some rows; columns are functions of the row, in place of the usual ones."""
    usual = {
        "number": lambda i: i + 1,
        "size": lambda i: 20 + 7 * i % 90,
        "kind": lambda i: ("flat", "house", "loft")[i % 3],
        "garden": lambda i: ("true", "false")[i % 2],
        "sold": lambda i: f"2024-01-{i % 28 + 1:02}",
        "country": lambda i: "NO",
        "price": lambda i: 100 + 3 * i,
    }
    made = {name: make for name, make in (usual | columns).items() if make is not None}
    lines = [",".join(made), *(",".join(str(f(i)) for f in made.values()) for i in range(n))]
    return "\n".join(lines) + "\n"


def but(at, value, otherwise):
    """A column with one odd value."""
    return lambda i: value if i == at else otherwise(i)


def packed(text, pack=gzip.compress, cut=1.0):
    data = pack(text.encode())
    return data[: int(cut * len(data))]


def zstd(data):
    return pa.compress(data, "zstd", asbytes=True)


def parquet(table, cut=None):
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()[:cut]


def arrow(table, cut=None, new=pa.ipc.new_file):
    sink = io.BytesIO()
    with new(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()[:cut]


FEW = pa.table({"size": [1.0, 2.0], "price": [1.0, 2.0]})
MANY = pa.table({"size": [float(i) for i in range(40)], "price": [float(i * i) for i in range(40)]})
GOOD = rows()
price = lambda i: 100 + 3 * i  # noqa: E731
size = lambda i: 20 + 7 * i % 90  # noqa: E731

TABLES = {
    # What is not a table at all.
    "empty": (b"", "data.csv: the file is empty"),
    "newlines": (b"\n\n\n", "data.csv: the file is empty"),
    "only a mark": (b"\xef\xbb\xbf", "data.csv: the file is empty"),
    "header only": ("a,price\n", "data.csv: .*a header but no rows"),
    "header without newline": ("a,price", "data.csv: .*a header but no rows"),
    "zip": (b"PK\x03\x04" + b"x" * 50, "a zip archive: extract it"),
    "old Excel": (b"\xd0\xcf\x11\xe0" + b"x" * 50, "old Excel workbook"),
    "SQLite": (b"SQLite format 3\0", "an SQLite database"),
    "PDF": (b"%PDF-1.7", "a PDF document"),
    "HDF5": (b"\x89HDF\r\n", "an HDF5 file"),
    "NumPy": (b"\x93NUMPY\x01", "a NumPy array"),
    "Feather 1": (b"FEA1" + b"x" * 50, "first version"),
    "JSON": ('{"price": [1, 2]}', "this is JSON"),
    "JSON lines": ('[{"price": 1}]', "this is JSON"),
    "HTML": ("<!DOCTYPE html><html>404</html>", "this is HTML or XML"),
    # Damaged ones.
    "NUL": (rows(kind=but(4, "a\0b", str)), "NUL byte in line 6"),
    "latin-1": (rows(kind=but(4, "é", str)).encode("latin-1"), "byte 0xe9 in line 6 is not utf-8"),
    "UTF-16": (GOOD.encode("utf-16"), "UTF-16: give the encoding"),
    "UTF-32": (GOOD.encode("utf-32"), "UTF-32: give the encoding"),
    "cut gzip": (packed(GOOD, cut=0.5), "end early"),
    "damaged gzip": (packed(GOOD)[:30] + b"x" * 200, "compressed data"),
    "gzip of nothing": (packed(""), "the file is empty"),
    "cut bzip2": (packed(GOOD, bz2.compress, 0.5), "end early"),
    "cut xz": (packed(GOOD, lzma.compress, 0.5), "end early"),
    "cut zstd": (packed(GOOD, zstd, 0.5), "compressed data"),
    "cut Parquet": (parquet(MANY, -9), "Parquet file is damaged or cut off"),
    "head of Parquet": (b"PAR1", "Parquet file is damaged or cut off"),
    "overwritten Parquet": (b"PAR1" + b"\0" * 100 + b"PAR1", "Parquet file is damaged or cut off"),
    "cut packed Parquet": (gzip.compress(parquet(MANY))[:-20], "end early"),
    "Parquet without rows": (parquet(MANY.slice(0, 0)), "no rows"),
    "Parquet without columns": (parquet(pa.table({})), "no rows|no column"),
    "cut Arrow": (arrow(MANY, -9), "Arrow file is damaged or cut off"),
    "cut Arrow stream": (arrow(MANY, -90, pa.ipc.new_stream), "Arrow file is damaged or cut off"),
    # Text that does not hold together.
    "short row": (GOOD.replace("\n7,", "\n"), r"row 7: the row has 6 values.* 7 columns"),
    "long row": (GOOD.replace("\n7,", "\n7,7,"), "row 7: the row has 8 values"),
    "delimiter at the end": (
        GOOD.replace("\n", ",\n").replace("price,", "price"),
        "row 1: .*8 val",
    ),
    "open quote": (GOOD.replace("\n7,", '\n"7,'), r"row 7: a quotation mark is .* never closed"),
    "endless row": ("a,price\n" + "x" * 12_000_000 + ",1\n", "more than 4,194,304 bytes"),
    "same column twice": (GOOD.replace("kind", "size", 1), "more than one column 'size'"),
    "a header alone, and long": ("x" * 100_000, "a header but no rows"),
    "no delimiter for long": ("x" * 200_000, "the first line must be a header"),
    "quotes to the end": ('"' + "x" * 100_000, "data.csv"),
    "same column twice in Parquet": (
        parquet(pa.table([[1], [2]], names=["a", "a"])),
        "more than one column 'a'",
    ),
    "same column twice in Arrow": (
        arrow(pa.table([[1], [2]], names=["a", "a"])),
        "more than one column 'a'",
    ),
    "same target twice": (GOOD.replace("kind", "price", 1), "more than one column 'price'"),
    "spaces between": (
        GOOD.replace(",", " "),
        "no column 'price'; the only column is .*--delimiter",
    ),
    "no header": (GOOD.split("\n", 1)[1], "no column 'price'"),
    "numbers for a header": ("1,2\n3,4\n", "first line looks like data"),
    # A target that cannot be one.
    "no target": (rows(price=None), "no column 'price'; the columns are number, size"),
    "near target": (GOOD.replace("price", "Price"), "no column 'price'.*did you mean 'Price'"),
    "empty target": (rows(price=lambda i: ""), "column 'price': .*missing in all 40 rows"),
    "marked target": (rows(price=lambda i: "n/a"), "column 'price': .*missing in all 40 rows"),
    "two ways to read the target": (
        rows(price=lambda i: f'"{i + 1},500"'),
        "column 'price': may be thousands or decimals: give the kind 'number 1,234.5' .*--type",
    ),
    "a word late in money": (
        rows(price=but(8, "dear", lambda i: f'"${i + 1},500.00"')),
        "row 9, column 'price': 'dear' is not a number",
    ),
    "few targets": (rows(price=but(8, 7, lambda i: "")), "1 row is too few"),
    "text target": (rows(price=lambda i: "dear"), "row 1, column 'price': 'dear' is not a number"),
    "word in target": (rows(price=but(8, "dear", price)), "row 9, column 'price': 'dear' is not a"),
    "infinite target": (rows(price=but(8, "inf", price)), "row 9, column 'price': inf is not fin"),
    "dates as target": (
        rows(price=lambda i: f"2024-02-{i % 28 + 1:02}"),
        "column 'price': holds dates where numbers are needed: convert them to days",
    ),
    "one target": (rows(price=lambda i: 5), "column 'price': the target is always 5"),
    # Rows and columns that teach nothing.
    "one row": (rows(1), "1 row is too few to fit a model and .*: at least 20"),
    "few rows": (rows(19), "19 rows are too few .*: at least 20 are needed, or --test-fraction 0"),
    "few rows of Parquet": (parquet(FEW), "2 rows are too few"),
    "target alone": ("price\n" + "\n".join(map(str, range(40))), "no column besides 'price'"),
    "names alone": (
        rows(size=None, kind=None, garden=None, sold=None, country=None),
        "no column can be used: 'number' looks like a row identifier",
    ),
    "nothing in the inputs": (
        "a,price\n" + "\n".join(f",{i}" for i in range(40)),
        "no column can be used: 'a' always empty",
    ),
    # Inputs that cannot be read.
    "infinite": (rows(size=but(6, "inf", size)), "row 7, column 'size': inf is not finite"),
    "minus infinity": (rows(size=but(6, "-Infinity", size)), "row 7, column 'size'"),
    "word among numbers": (rows(size=but(6, "big", lambda i: i)), "row 7, column 'size': 'big' is"),
    "word among dates": (
        rows(60, sold=but(6, "soon", lambda i: f"2024-{i % 12 + 1:02}-{i % 28 + 1:02}")),
        "row 7, column 'sold': 'soon' is not one of the dates",
    ),
    "lists": (
        parquet(MANY.append_column("many", pa.array([[1, 2]] * 40))),
        "column 'many': holds values of type ndarray",
    ),
    "records": (
        parquet(MANY.append_column("deep", pa.array([{"a": 1}] * 40))),
        "column 'deep': holds values of type dict",
    ),
}

FITS = {
    # Requests that go wrong although the table is good.
    "no file": ("fit lost.csv --target price --out out", 3, "lost.csv: there is no such file"),
    "no match": ("fit lost*.csv --target price --out out", 3, "no file matches this pattern"),
    "a folder": ("fit . --target price --out out", 3, "this is a folder"),
    "not a folder": ("fit data.csv/x --target price --out out", 3, "cannot be read"),
    "other columns": ("fit data.csv other.csv --target price --out out", 3, "other.csv: lacks the"),
    "an empty second": ("fit data.csv empty.csv --target price --out out", 3, "empty.csv: the fi"),
    "wrong delimiter": (f"{FIT} --delimiter ;", 3, "no column 'price'; the only column"),
    "long delimiter": (f"{FIT} --delimiter ;;", 2, "one ASCII character"),
    "foreign delimiter": (f"{FIT} --delimiter §", 2, "one ASCII character"),
    "no encoding": (f"{FIT} --encoding utf-9", 3, "there is no text encoding 'utf-9'"),
    "encoding of bytes": (f"{FIT} --encoding hex", 3, "there is no text encoding 'hex'"),
    "encoding of ciphers": (f"{FIT} --encoding rot13", 3, "there is no text encoding 'rot13'"),
    "wrong encoding": ("fit umlaut.csv --target price --out out --encoding ascii", 3, "not ascii"),
    "unknown ignored": (f"{FIT} --ignore sise", 3, "no column 'sise'.*did you mean 'size'"),
    "unknown groups": (f"{FIT} --groups kinds", 3, "no column 'kinds'.*did you mean 'kind'"),
    "missing groups": (
        "fit gaps.csv --target price --out out --groups kind",
        3,
        "row 3, column 'k",
    ),
    "unknown kind": (f"{FIT} --type size=categorie", 2, "did you mean 'category'"),
    "no such input kind": (
        f"{FIT} --type size=numbr",
        2,
        r"--type size=numbr: 'numbr' is not a type; use number, .* or identifier \(did you mean",
    ),
    "kind of nothing": (f"{FIT} --type sise=category", 3, "'sise', which the table does not have"),
    "kind without name": (f"{FIT} --type category", 2, "name=kind"),
    "words as numbers": (
        f"{FIT} --type kind=number",
        3,
        "row 1, column 'kind': 'flat' is not a nu",
    ),
    "words as dates": (f"{FIT} --type kind=date", 3, "row 1, column 'kind': 'flat' is not a date"),
    "no such way to write": (
        f"{FIT.replace('data', 'gaps')} --type price=numbr",
        2,
        "--type price=numbr: 'numbr' is not a type; use number, boolean, .*did you mean 'number'",
    ),
    "target as a date": (f"{FIT} --type price=date", 3, "cannot be of kind 'date'"),
    "missing target refused": (
        "fit unsold.csv --target price --out out --missing-target refuse",
        3,
        "row 9, column 'price': .*missing here \\(in 1 row in total\\).*--missing-target drop",
    ),
    "other choice for it": (f"{FIT} --missing-target guess", 2, "missing-target"),
    "words as truth": (f"{FIT} --type kind=boolean", 3, "row 1, column 'kind': 'flat' is not true"),
    "no settings": (f"{FIT} --config lost.toml", 2, "lost.toml cannot be read"),
    "broken settings": (f"{FIT} --config broken.toml", 2, "broken.toml is not TOML"),
    "unknown setting": (f"{FIT} --config unknown.toml", 2, "'epoch'.*did you mean 'epochs'"),
    "wrong setting": (f"{FIT} --config wrong.toml", 2, "'epochs' parameter"),
    "unknown encoding": (f"{FIT} --config encoder.toml", 2, "'max_category'.*'max_categories'"),
    "points alone": (f"{FIT} --config points.toml", 2, "point predictions, but no intervals"),
    "impossible coverage": (
        f"{FIT} --coverage 95",
        2,
        "--coverage must be between 0 and 1, such as 0.95; got 95",
    ),
    "all held out": (f"{FIT} --test-fraction 1", 2, "test-fraction"),
    "no target named": ("fit data.csv --out out", 2, "--target"),
    "no folder named": ("fit data.csv --target price", 2, "--out"),
    "out is a file": ("fit data.csv --target price --out data.csv", 4, "data.csv is a file"),
    "out is in use": (
        "fit data.csv --target price --out used",
        4,
        "used already contains other files",
    ),
    "out is a model": (
        "fit data.csv --target price --out model",
        4,
        "model already contains a model: .*--overwrite",
    ),
    "out is below a file": ("fit data.csv --target price --out data.csv/model", 4, "data.csv"),
}

NEWS = {
    # Tables that do not fit the model.
    "column lost": (rows(size=None), "data.csv: the table lacks the column 'size'"),
    "column renamed": (GOOD.replace("size", "Size"), "lacks the column 'size'.*'Size'"),
    "columns lost": (rows(size=None, kind=None), "lacks the columns 'size'.*'kind'"),
    "words for numbers": (
        rows(size=lambda i: "big" if i % 8 == 6 else size(i)),
        "row 7, column 'size': 'big' is not a nu",
    ),
    "infinity": (rows(size=but(6, "inf", size)), "row 7, column 'size': inf is not finite"),
    "no date": (rows(sold=but(6, "soon", str)), "row 1, column 'sold': '0' is not a date"),
    "other dates": (
        rows(sold=lambda i: "1/2/2024"),
        "row 1, column 'sold': '1/2/2024' is not a da",
    ),
    "no truth": (
        rows(garden=lambda i: "maybe" if i > 5 else "true"),
        "row 7, column 'garden': 'maybe' is not true",
    ),
    "late in the file": (
        rows(70_000, size=but(69_998, "inf", size)),
        "row 69,999, column 'size': inf is not finite",
    ),
    "nothing": (b"", "the file is empty"),
    "no rows": (GOOD.split("\n")[0] + "\n", "no rows"),
    "cut short": (packed(GOOD, cut=0.6), "end early"),
}

ASKS = {
    # Requests that go wrong although table and model are good.
    "no model": ("predict lost data.csv", 4, "lost: no such folder"),
    "no model in it": (
        "predict used data.csv",
        4,
        "used is not a calipers model: it has no model.json",
    ),
    "a file for a model": ("predict data.csv data.csv", 4, "data.csv is not a folder"),
    "changed model": ("predict changed data.csv", 4, "does not match its checksum"),
    "model that is no JSON": ("predict nojson data.csv", 4, "is not JSON"),
    "weights cut": ("predict cut data.csv", 4, "cut off or replaced"),
    "weights lost": ("predict noweights data.csv", 4, "is missing"),
    "format of the future": ("predict future data.csv", 4, "upgrade calipers"),
    "no ending": ("predict model data.csv --out scored", 3, "the name must end in .csv"),
    "unknown ending": ("predict model data.csv --out scored.xlsx", 3, "the name must end in .csv"),
    "no such folder": ("predict model data.csv --out lost/scored.csv", 3, "no folder 'lost'"),
    "a folder": ("predict model data.csv --out folder.csv", 3, "it is a folder"),
    "onto itself": ("predict model data.csv --out data.csv", 2, "both input and output"),
    "coverage": ("predict model data.csv --coverage 95", 2, "--coverage must be between 0 and 1"),
    "tiny coverage": ("predict model data.csv --coverage 0.5,1e-12", 2, "0 and 1, .*; got 1e-12"),
    "coverage to evaluate": (f"{EVALUATE} --coverage 1e-12", 2, "0 and 1, .*; got 1e-12"),
    "quantiles": ("predict model data.csv --quantiles low", 2, "--quantiles takes numbers between"),
    "unknown kept": (f"{PREDICT} --keep sise", 3, "no column 'sise'.*did you mean 'size'"),
    "answer kept": ("predict model again.csv --keep all", 3, "'prediction' cannot be kept"),
    "no table": (PREDICT.replace("data.csv", "lost.csv", 1), 3, "no such file"),
    "nothing to evaluate by": (f"{EVALUATE} --by kinds", 3, "no column 'kinds'.*'kind'"),
    "other target": (f"{EVALUATE} --target cost", 3, "no column 'cost'"),
    "impossible": (f"{EVALUATE} --coverage 2", 2, "between 0 and 1, such as 0.95; got 2"),
    "evaluate a gap": ("evaluate model gaps.csv --target kind", 3, "row 1, column 'kind'"),
    "kind of an input": (f"{EVALUATE} --type size=number", 2, "for the target 'price' only"),
    "evaluate without": (
        "evaluate model unsold.csv --missing-target refuse",
        3,
        "row 9, column 'price': .*missing here",
    ),
    "report without": (
        "report model --data unsold.csv --missing-target refuse",
        3,
        "row 9, column 'price': .*missing here",
    ),
    "unknown command": ("predikt model data.csv", 2, "predikt"),
    "unknown option": (f"{PREDICT} --coverages 0.9", 2, "--coverages"),
}


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def furnished(here, saved):
    """A folder with a good table, models whole and damaged, and settings good and bad."""
    write(here / "data.csv", GOOD)
    write(here / "other.csv", rows(size=None))
    write(here / "empty.csv", b"")
    write(here / "umlaut.csv", rows(kind=lambda i: "höhe"))
    write(here / "gaps.csv", rows(kind=but(2, "", lambda i: "abc"[i % 3])))
    write(here / "unsold.csv", rows(price=but(8, "", price)))
    write(here / "again.csv", rows(prediction=lambda i: i))
    for name, text in {
        "broken": "epochs = ",
        "unknown": "epoch = 3",
        "wrong": "epochs = -3",
        "encoder": "[preprocessor]\nmax_category = 3",
        "points": 'loss = "mse"',
    }.items():
        write(here / f"{name}.toml", text)
    (here / "used").mkdir()
    write(here / "used" / "thesis.tex", "years of work")
    (here / "folder.csv").mkdir()
    for name in ("model", "changed", "nojson", "cut", "noweights", "future"):
        shutil.copytree(saved, here / name)
    _damage(here)
    return here


def _damage(here):
    record = (here / "changed" / "model.json").read_text()
    write(here / "changed" / "model.json", record.replace('"rows": 60', '"rows": 61'))
    write(here / "nojson" / "model.json", record[:100])
    weights = next((here / "cut").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-10])
    next((here / "noweights").glob("*.safetensors")).unlink()
    later = json.loads(record) | {"format_version": 99}
    write(here / "future" / "model.json", json.dumps(later))


def snapshot(folder):
    return {p: p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def check_refused(run, folder, command, code, message, **rest):
    before = snapshot(folder)
    result = run(*(command if isinstance(command, list) else command.split()), **rest)
    shown = result.stderr.strip()
    assert result.exit_code == code, result.output
    assert re.search(message, " ".join(shown.split())), shown
    if code != 2:  # Typer prints usage in a line before
        assert len(shown.splitlines()) == 1
        assert shown.startswith("error: ")
    assert result.stdout == ""
    assert snapshot(folder) == before


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_cannot_teach(name, run, here):
    content, message = TABLES[name]
    write(here / "data.csv", content)
    check_refused(run, here, FIT, 3, message)


@pytest.mark.parametrize("name", FITS)
def test_fits_that_cannot_be(name, run, furnished):
    check_refused(run, furnished, *FITS[name])


@pytest.mark.parametrize("name", NEWS)
def test_tables_that_do_not_fit_the_model(name, run, here, saved):
    content, message = NEWS[name]
    write(here / "data.csv", content)
    check_refused(run, here, ["predict", saved, "data.csv", "--out", "scored.csv"], 3, message)


@pytest.mark.parametrize("name", ASKS)
def test_requests_that_cannot_be(name, run, furnished):
    check_refused(run, furnished, *ASKS[name])


def test_nothing_on_standard_input(run, here, saved):
    check_refused(
        run, here, ["predict", saved, "-"], 3, "standard input: the file is empty", input=b""
    )


def test_there_are_a_hundred():
    assert len(TABLES) + len(FITS) + len(NEWS) + len(ASKS) >= 100


def test_debug_shows_where_an_error_came_from(run, here):
    result = run("fit", "lost.csv", "--target", "y", "--out", "out", "--debug")
    assert "there is no such file" in str(result.exception)
