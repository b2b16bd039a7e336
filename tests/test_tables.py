"""Tables in files, without the command line around them."""

import io
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from calipers._files import replacing
from calipers.preprocessing import DataError
from calipers.tables import (
    Form,
    TableError,
    find_files,
    format_of,
    read_blocks,
    read_table,
    typed,
    write_blocks,
)

TABLE = pa.table({"n": [1, 2, None], "x": [0.1, 1e300, -2.5], "t": ["a,b", 'say "so"', None]})


@pytest.mark.parametrize(
    "name",
    ["t.csv", "t.tsv", "t.csv.gz", "t.csv.bz2", "t.csv.xz", "t.tsv.zst", "t.parquet", "t.feather"],
)
def test_what_is_written_is_read(name, tmp_path):
    path = tmp_path / name
    with write_blocks(str(path)) as write:
        for start in range(3):
            write(TABLE.slice(start, 1))
        assert not path.exists()
    expected = pd.DataFrame(TABLE.to_pandas())
    pd.testing.assert_frame_equal(read_table([str(path)]).frame, expected, check_dtype=False)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_failure_leaves_what_was_there(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("before")

    def fail():
        with write_blocks(str(path)) as write:
            write(TABLE)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_at_once_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    with replacing(path) as file:
        file.write(b"first")
        with (
            pytest.raises(TableError, match="another process is writing"),
            write_blocks(str(path)) as write,
        ):
            write(TABLE)
    assert path.read_bytes() == b"first"


def test_links_and_devices_stay_what_they_are(tmp_path):
    (tmp_path / "link.csv").symlink_to("real.csv")
    with write_blocks(str(tmp_path / "link.csv")) as write:
        write(TABLE)
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().startswith("n,x,t\n")


@pytest.mark.parametrize("name", ["t", "t.xls", "t.parquet.gz", "csv", ".csv.zip"])
def test_names_without_a_format(name):
    with pytest.raises(TableError, match="must end in"):
        format_of(name)


def test_blocks_and_their_rows():
    text = "a;b\n" + "".join(f"{i};x\n" for i in range(10))
    stream = io.BytesIO(text.encode())
    blocks = list(read_blocks("upload", stream=stream, rows=4))
    assert [(block.start, block.table.num_rows) for block in blocks] == [(0, 4), (4, 4), (8, 2)]
    error = blocks[1].placed(DataError("odd", column="b", row=2))
    assert str(error) == "upload, row 7, column 'b': odd"


def test_errors_name_the_right_file(tmp_path):
    names = [str(tmp_path / f"{i}.csv") for i in range(2)]
    for name in names:
        Path(name).write_text("a\n1\n2\n")
    table = read_table(names)
    assert str(table.placed(DataError("odd", row=1))) == f"{names[0]}, row 2: odd"
    assert str(table.placed(DataError("odd", row=2))) == f"{names[1]}, row 1: odd"
    assert str(table.placed(DataError("odd"))) == f"{names[0]} and 1 more: odd"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b\n1,2\n", ["a", "b"]),
        ("a;b\n1,5;2,5\n", ["a", "b"]),
        ("a\tb c\n1,2\t3\n", ["a", "b c"]),
        ("a|b\n1|2\n", ["a", "b"]),
        ('"a;b","c"\n"1;2","3"\n', ["a;b", "c"]),
        ("a\n1\n", ["a"]),
        (" a , \n1,2\n", ["a", "column 2"]),
    ],
)
def test_delimiters(text, names):
    (block,) = read_blocks("-", stream=io.BytesIO(text.encode()))
    assert block.table.column_names == names


def test_a_delimiter_that_is_said():
    stream = io.BytesIO(b"a:b\n1:2\n")
    (block,) = read_blocks("-", stream=stream, form=Form(":"))
    assert block.frame().to_dict("list") == {"a": [1], "b": [2]}


def test_types_are_decided_by_all_rows():
    table = pa.table(
        {
            "whole": ["1", " 2 "],
            "half": ["1", "2.5"],
            "code": ["01", "2"],
            "truth": ["TRUE", "false"],
            "mixed": ["1", "x"],
            "kept": ["1", "2"],
            "empty": pa.array([None, None], pa.string()),
        }
    )
    kinds = {field.name: str(field.type) for field in typed(table, ["kept"]).schema}
    assert kinds == {
        "whole": "int64",
        "half": "double",
        "code": "string",
        "truth": "bool",
        "mixed": "string",
        "kept": "string",
        "empty": "int64",
    }


def test_patterns(tmp_path):
    for name in ("b.csv", "a.csv", "c[1].csv"):
        (tmp_path / name).touch()
    found = find_files([str(tmp_path / "*.csv"), "-", str(tmp_path / "c[1].csv")])
    assert [Path(name).name for name in found] == ["a.csv", "b.csv", "c[1].csv", "-", "c[1].csv"]
