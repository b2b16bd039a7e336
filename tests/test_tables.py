"""Reading and writing tables, without the command line."""

import errno
import gzip
import io
import json
import os
import pickle
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calipers._files import replacing
from calipers.preprocessing import DataError, as_numbers
from calipers.rowblocks import RowBlocks
from calipers.tables import (
    COMPRESSIONS,
    FORMATS,
    Compression,
    FileFormat,
    TableError,
    TableLimits,
    TextFormat,
    TooLargeError,
    _parts,
    find_files,
    find_parts,
    format_of,
    known_endings,
    read_blocks,
    read_bytes,
    read_part,
    read_table,
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
    expected, found = pd.DataFrame(TABLE.to_pandas()), read_table([str(path)]).frame
    assert name in ("t.parquet", "t.feather") or found["n"].tolist()[:2] == ["1", "2"]
    found[["n", "x"]] = found[["n", "x"]].apply(as_numbers)  # which stand in text files as text
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_only_what_needs_them_has_quotation_marks(tmp_path):
    path = tmp_path / "t.csv"
    kept = pa.array(["1.50", "007", "a,b", 'say "so"', "two\nlines", "", None])
    columns = {"kept, as it was": kept, "n": pa.array([1e300, 0.1, None, 1, 2, 3, 4.5])}
    with write_blocks(str(path)) as write:
        write(pa.table(columns).slice(0, 4))
        write(pa.table(columns).slice(4))
    assert path.read_text() == (
        '"kept, as it was",n\n1.50,1e+300\n007,0.1\n"a,b",\n"say ""so""",1\n"two\nlines",2\n'
        '"",3\n,4.5\n'
    )


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
    assert [block.table.num_rows for block in blocks] == [4, 4, 2]
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


def test_columns_filled_up_with_spaces():
    text = b'name,      kind\n"a b",  "x"\n"c",    "y\'s"\n"e",  plain\n'
    (block,) = read_blocks("-", stream=io.BytesIO(text))
    assert [value.strip() for value in block.frame["kind"]] == ["x", "y's", "plain"]
    assert block.frame["name"].tolist() == ["a b", "c", "e"]
    (block,) = read_blocks("-", stream=io.BytesIO(b'"name",  "kind"\n"a",     "x"\n'))
    assert block.frame.to_dict("list") == {"name": ["a"], "kind": ["x"]}


def test_a_given_delimiter():
    stream = io.BytesIO(b"a:b\n1:2\n")
    (block,) = read_blocks("-", stream=stream, form=TextFormat(":"))
    assert block.frame.to_dict("list") == {"a": ["1"], "b": ["2"]}


def test_text_stays_as_it_stands():
    (block,) = read_blocks("-", stream=io.BytesIO(b"a,b,c\n007, 1.50 ,NA\n1,,TRUE\n"))
    assert block.frame.iloc[0].tolist() == ["007", " 1.50 ", "NA"]
    assert block.frame.isna().sum().tolist() == [0, 1, 0]


@pytest.mark.long
@pytest.mark.parametrize("columns", [6_000, 20_000])
def test_wide_tables(columns):
    names = [f"measurement {i}" for i in range(columns)]
    text = ";".join(names) + "\n" + ";".join(map(str, range(columns))) + "\n"
    assert len(text) > 2**16
    (block,) = read_blocks("-", stream=io.BytesIO(text.encode()))
    assert block.table.column_names == names
    assert block.frame.iloc[0].astype(int).tolist() == list(range(columns))


def test_a_disk_that_fails_is_named_with_its_file():
    class Failing(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(TableError, match=r"^flats\.csv: cannot be read: Input/output error$"):
        list(read_blocks("flats.csv", stream=Failing()))
    with pytest.raises(TableError, match="cannot be read: File name too long"):
        list(read_blocks("a" * 5_000))


def test_standard_streams_that_are_closed(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(TableError, match="standard input: is closed, or was read already"):
        list(read_blocks("-"))
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(TableError, match="standard output: is closed"), write_blocks("-"):
        pass


def test_a_long_name_in_quotes():
    text = '"' + "a\n" * 50_000 + '",b\n1,2\n'
    (block,) = read_blocks("-", stream=io.BytesIO(text.encode()))
    assert [len(name) for name in block.table.column_names] == [99_999, 1]


def encoded(kind, table):
    sink = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink)
    else:
        new = pa.ipc.new_stream if kind == "arrow stream" else pa.ipc.new_file
        with new(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


KINDS = ("parquet", "arrow", "arrow stream")


def limits(rows, columns):
    return TableLimits(body=10**6, rows=rows, columns=columns, cells=10**6)


class TestBytes:
    BODY = b"n,x\n1,0.5\n2,1.5\n3,2.5\n"

    def test_they_are_read_as_files_are(self, tmp_path):
        found = read_bytes(self.BODY, limits(3, 2))
        (tmp_path / "file").write_bytes(self.BODY)
        pd.testing.assert_frame_equal(found.frame, read_table([str(tmp_path / "file")]).frame)
        assert str(found.placed(DataError("odd", row=1))) == "the body, row 2: odd"

    def test_limits(self):
        with pytest.raises(TooLargeError, match="the body: the table has more than 2 rows"):
            read_bytes(self.BODY, limits(2, 2))
        with pytest.raises(TooLargeError, match="the body: the table has more than 1 columns"):
            read_bytes(self.BODY, limits(3, 1))

    @pytest.mark.parametrize("kind", ["arrow", "arrow stream"])
    def test_arrow_is_read_where_it_is_declared(self, kind):
        found = read_bytes(encoded(kind, TABLE), limits(100, 100), arrow=True)
        assert found.table.to_pydict() == TABLE.to_pydict()
        with pytest.raises(TooLargeError, match="the body: the table has more than"):
            read_bytes(encoded(kind, TABLE), limits(TABLE.num_rows - 1, 100), arrow=True)
        with pytest.raises(TableError, match="the body: this is not Arrow IPC: "):
            read_bytes(self.BODY, limits(100, 100), arrow=True)

    @pytest.mark.parametrize("kind", KINDS)
    def test_nothing_but_text_is_read(self, kind):
        for body in (encoded(kind, TABLE), gzip.compress(self.BODY), b""):
            with pytest.raises(TableError, match="the body: "):
                read_bytes(body, limits(3, 2))


class TestFormats:
    @pytest.fixture
    def toy(self, monkeypatch):
        """A format of another distribution: JSON, an object a line, after a mark."""

        class Writer:
            def __init__(self, out, schema):
                out.write(b"TOY1\n")
                self.out = out

            def __enter__(self):
                return self

            def __exit__(self, *_):
                self.out.flush()

            def write_table(self, table):
                self.out.write("".join(f"{json.dumps(r)}\n" for r in table.to_pylist()).encode())

        def read(raw, name, form, rows):
            raw.readline()
            yield pa.Table.from_pylist([json.loads(line) for line in raw])

        toy = FileFormat("Toy", read, Writer, (".toy",), b"TOY1")
        monkeypatch.setitem(FORMATS, toy.name, toy)

    @pytest.mark.usefixtures("toy")
    def test_a_new_format_is_one_entry(self, tmp_path):
        path = str(tmp_path / "t.toy")
        with write_blocks(path) as write:
            write(TABLE.slice(0, 1))
            write(TABLE.slice(1))
        assert read_table([path]).table.equals(TABLE)
        assert ".toy" in known_endings()
        with pytest.raises(TableError, match=r"\.arrow, \.toy, or \.csv\.gz"):
            format_of("t.xls")

    def test_without_it(self):
        with pytest.raises(TableError, match="must end in"):
            format_of("t.toy")

    def test_a_new_compression_is_one_entry(self, tmp_path, monkeypatch):
        class Turned(io.BytesIO):
            """Bytes from last to first, after a mark."""

            def __init__(self, raw):
                super().__init__()
                self.raw = raw

            def close(self):
                if not self.closed:
                    self.raw.write(b"BACK" + self.getvalue()[::-1])
                super().close()

        turned = Compression(
            "turned", ".back", b"BACK", lambda raw: io.BytesIO(raw.read()[:3:-1]), Turned
        )
        monkeypatch.setitem(COMPRESSIONS, turned.name, turned)
        path = tmp_path / "t.csv.back"
        with write_blocks(str(path)) as write:
            write(TABLE)
        assert path.read_bytes().startswith(b"BACK")
        assert read_table([str(path)]).frame["n"].tolist()[:2] == ["1", "2"]


@pytest.mark.parametrize("kind", KINDS)
def test_names_that_occur_twice(kind, tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(encoded(kind, pa.table([[1], [2]], names=["a", "a"])))
    with pytest.raises(TableError, match="more than one column 'a'"):
        read_table([str(path)])
    if kind == "parquet":
        with pytest.raises(TableError, match="more than one column 'a'"):
            find_parts([str(path)])


class TestParts:
    @pytest.fixture
    def folder(self, tmp_path):
        """Files in folders that name a year and a city."""
        for year in ("2023", "2024"):
            for city in ("New%20York", "Oslo"):
                place = tmp_path / "all" / f"year={year}" / f"city={city}"
                place.mkdir(parents=True)
                pq.write_table(pa.table({"x": range(10)}), place / "p.parquet", row_group_size=4)
        (tmp_path / "all" / "_marked.parquet").write_text("no Parquet")
        return tmp_path / "all"

    def test_names_of_folders_are_columns(self, folder):
        parts, sources = find_parts([str(folder)])
        found = [block.table for part in parts for block in read_part(part)]
        assert [part.name for part in parts] == [f"part-{i:06d}.parquet" for i in range(4)]
        assert [Path(name).parent.name for name, _, _ in sources] == [
            "city=New%20York",
            "city=Oslo",
        ] * 2
        whole = pa.concat_tables(found).to_pydict()
        assert whole["x"] == list(range(10)) * 4
        assert whole["year"] == [2023] * 20 + [2024] * 20
        assert whole["city"] == (["New York"] * 10 + ["Oslo"] * 10) * 2

    def test_blocks_of_the_folder_have_the_same_columns(self, folder):
        parts = [block.frame for part in find_parts([str(folder)])[0] for block in read_part(part)]
        blocks = list(RowBlocks(folder, "x"))
        for part, (inputs, x) in zip(parts, blocks, strict=True):
            assert list(part) == ["x", "year", "city"]
            assert inputs.equals(part.drop(columns="x"))
            assert x.tolist() == part["x"].tolist()

    def test_large_files_are_cut_between_row_groups(self, folder, monkeypatch):
        monkeypatch.setattr(_parts, "_MAX_BYTES", 1)
        parts, _ = find_parts([str(folder / "year=2023" / "city=Oslo")])
        blocks = [list(read_part(pickle.loads(pickle.dumps(part)))) for part in parts]
        assert [[block.table.num_rows for block in part] for part in blocks] == [[4], [4], [2]]
        assert str(blocks[1][0].placed(DataError("odd", row=1))).endswith("p.parquet, row 6: odd")

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
    def test_folders_and_pipes_by_such_a_name_are_not_opened(self, folder):
        os.mkfifo(folder / "pipe.parquet")
        (folder / "folder.parquet").mkdir()
        assert len(find_parts([str(folder)])[0]) == 4

    def test_what_cannot_be_read(self, tmp_path):
        empty = tmp_path / "empty"
        empty.mkdir()
        with pytest.raises(TableError, match="no Parquet file in this folder"):
            find_parts([str(empty)])
        (tmp_path / "t.csv").write_text("a,b")
        with pytest.raises(TableError, match=r"t\.csv: this is not Parquet"):
            find_parts([str(tmp_path / "t.csv")])
        with pytest.raises(TableError, match=r"lost\.parquet: cannot be read: No such file"):
            find_parts([str(tmp_path / "lost.parquet")])
        (tmp_path / "cut.parquet").write_bytes(b"PAR1" + b"x" * 40)
        with pytest.raises(TableError, match=r"cut\.parquet: the Parquet file cannot be read"):
            find_parts([str(tmp_path / "cut.parquet")])


def test_rows_left_out_keep_the_places_of_others(tmp_path):
    names = [str(tmp_path / f"{i}.csv") for i in range(2)]
    for name in names:
        Path(name).write_text("a\n1\n2\n3\n")
    table = read_table(names).take(np.array([True, False, True, False, True, True]))
    assert table.frame["a"].tolist() == ["1", "3", "2", "3"]
    assert table.row_numbers.tolist() == [1, 3, 5, 6]
    assert str(table.placed(DataError("odd", row=2))) == f"{names[1]}, row 2: odd"
    assert table.take(np.arange(4) > 1).row_numbers.tolist() == [5, 6]


def test_patterns(tmp_path):
    for name in ("b.csv", "a.csv", "c[1].csv"):
        (tmp_path / name).touch()
    found = find_files([str(tmp_path / "*.csv"), "-", str(tmp_path / "c[1].csv")])
    assert [Path(name).name for name in found] == ["a.csv", "b.csv", "c[1].csv", "-", "c[1].csv"]


class TestWorkbooks:
    def test_the_first_sheet_is_a_table(self, tmp_path):
        pytest.importorskip("openpyxl")
        frame = pd.DataFrame({
            "size": [30.5, None, 55.0],
            "kind": ["flat", None, 7],
            "sold": pd.to_datetime(["2024-01-01", "2024-02-01", "2024-03-01"]),
            3: [1, 2, 3],
        })  # fmt: skip
        frame.to_excel(tmp_path / "flats.xlsx", index=False)
        found = read_table([str(tmp_path / "flats.xlsx")]).frame
        assert list(found) == ["size", "kind", "sold", "3"]
        assert found["kind"].fillna("").tolist() == ["flat", "", "7"]
        assert found["sold"].tolist() == frame["sold"].tolist()
        pd.testing.assert_series_equal(found["size"], frame["size"])
        blocks = list(read_blocks(str(tmp_path / "flats.xlsx"), rows=2))
        assert [block.table.num_rows for block in blocks] == [2, 1]

    def test_without_its_reader_it_is_named(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "openpyxl", None)
        with zipfile.ZipFile(tmp_path / "flats.xlsx", "w") as archive:
            archive.writestr("xl/workbook.xml", "<workbook/>")
        with pytest.raises(TableError, match=r"flats.xlsx: this is an Excel.*calipers\[excel\]"):
            read_table([str(tmp_path / "flats.xlsx")])

    @pytest.mark.parametrize(
        ("cells", "problem"),
        [
            ('<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>', "17,179,869,184 cells"),
            ('<x:row><x:c a=">" r = "xfd1048576"/></x:row>', "17,179,869,184 cells"),
            ('<row><c r="&#88;FD1048576"/></row>', "a cell at"),
            (f"<row>{'<c/>' * 300}</row>" * 400, "a sheet of 1[012]"),
            ("<row><c><is><t>" + "a" * 2**22 + "</t></is></c></row>", "bytes when unpacked"),
            ("<row><c><is><t>" + "a" * 2**21 + "</t></is></c></row>", "no spreadsheet program"),
            ('<!DOCTYPE z [<!ENTITY a "aaa">]><row>&a;</row>', "no spreadsheet program"),
            ("<row r='1'/>".encode("utf-16"), "no spreadsheet program"),
        ],
        ids=["far", "far by other words", "reference", "cells", "size", "text", "entity", "utf-16"],
    )
    def test_a_small_file_that_stands_for_gigabytes_is_refused(
        self, cells, problem, tmp_path, monkeypatch
    ):
        monkeypatch.setattr("calipers.tables._excel._MAX_BYTES", 2**22)
        monkeypatch.setattr("calipers.tables._excel._MAX_CELLS", 100_000)
        path = tmp_path / "bomb.xlsx"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("xl/workbook.xml", "<workbook/>")
            archive.writestr("xl/worksheets/sheet1.xml", cells)
        with pytest.raises(TableError, match=rf"bomb.xlsx: the workbook has .*{problem}"):
            read_table([str(path)])

    def test_a_text_that_many_cells_share_is_counted_for_each(self, tmp_path, monkeypatch):
        pytest.importorskip("openpyxl")
        monkeypatch.setattr("calipers.tables._excel._MAX_TEXT", 200_000)
        pd.DataFrame({"a": ["x" * 30_000] * 10}).to_excel(tmp_path / "same.xlsx", index=False)
        with pytest.raises(TableError, match="texts of 300,000 characters"):
            read_table([str(tmp_path / "same.xlsx")])

    def test_damaged_ones_are_refused(self, tmp_path):
        pytest.importorskip("openpyxl")
        with zipfile.ZipFile(tmp_path / "flats.xlsx", "w") as archive:
            archive.writestr("xl/workbook.xml", "<workbook")
        with pytest.raises(TableError, match="the workbook cannot be read"):
            read_table([str(tmp_path / "flats.xlsx")])
