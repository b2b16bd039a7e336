import dataclasses
import hashlib
import zipfile

import numpy as np
import pytest

from calipers.datasets import CATALOGUE, DatasetCorruptError
from calipers.datasets._raw_files import read, source_sha256

NEWLINES = ("\n", "\r\n")


def plain(value):
    """Shortest text of a number that reads back to the same bits, without a trailing '.0'."""
    return repr(value).removesuffix(".0")


# How the published data.txt write their numbers, where that is known to the byte.
SOURCE_FORMATS = {
    "naval": lambda row: "".join(f"   {value:.7e}" for value in row),
    "power": lambda row: "\t".join(map(plain, row)),
    "protein": lambda row: " ".join(map(plain, row)),
    "wine": lambda row: " ".join(map(plain, row)),
}


def write_text(path, table, line, newline="\n"):
    path.write_bytes("".join(line(row) + newline for row in table.tolist()).encode())
    return path


@pytest.mark.parametrize("newline", NEWLINES)
@pytest.mark.parametrize(
    "line",
    [
        lambda row: " ".join(map(repr, row)),
        lambda row: "\t".join(map(repr, row)),
        lambda row: "".join(f"   {value:.17e}" for value in row),
        lambda row: " ".join(f"{value!r:>25}" for value in row) + " ",
    ],
    ids=["space", "tab", "exponent", "columns"],
)
def test_white_space_does_not_matter(tiny, tmp_path, line, newline):
    path = write_text(tmp_path / "data.txt", np.column_stack([tiny.X, tiny.y]), line, newline)
    with path.open("ab") as file:
        file.write(newline.encode())  # some sources end in an empty line
    X, y = read(path, tiny.entry)
    np.testing.assert_array_equal(X, tiny.X)
    np.testing.assert_array_equal(y, tiny.y)
    assert X.dtype == y.dtype == np.float64
    assert X.flags.c_contiguous


def test_columns_beyond_inputs_and_target_are_left_out(tiny, tmp_path):
    table = np.column_stack([tiny.X, tiny.y, np.arange(30.0)])
    path = write_text(tmp_path / "data.txt", table, lambda row: " ".join(map(repr, row)))
    X, y = read(path, tiny.entry)
    np.testing.assert_array_equal(np.column_stack([X, y]), table[:, :3])


@pytest.fixture
def small_year():
    """Rows in the layout of YearPredictionMSD.txt, and an entry to match."""
    rng = np.random.default_rng(1)
    X, y = np.round(rng.normal(scale=50, size=(40, 90)), 5), rng.integers(1922, 2012, 40)
    lines = [f"{y[i]}," + ",".join(f"{v:.5f}" for v in X[i]) + "\n" for i in range(40)]
    text = "".join(lines).encode()
    checksum = hashlib.sha256(text).hexdigest()
    return dataclasses.replace(CATALOGUE["year"], rows=40, sha256=checksum), X, y, text


def test_year_is_read_from_text_and_from_zip(small_year, tmp_path):
    entry, X, y, text = small_year
    plain_path, zip_path = tmp_path / "YearPredictionMSD.txt", tmp_path / "yearpredictionmsd.zip"
    plain_path.write_bytes(text)
    with zipfile.ZipFile(zip_path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("YearPredictionMSD.txt", text)
    for path in (plain_path, zip_path):
        assert source_sha256(path) == entry.sha256
        X_read, y_read = read(path, entry)
        np.testing.assert_array_equal(X_read, X)
        np.testing.assert_array_equal(y_read, y)


def test_year_with_another_text_is_refused_unless_allowed(small_year, tmp_path):
    entry, X, _, text = small_year
    path = tmp_path / "YearPredictionMSD.txt"
    path.write_bytes(text.replace(b"\n", b"\r\n"))
    with pytest.raises(DatasetCorruptError, match=entry.sha256):
        read(path, entry)
    np.testing.assert_array_equal(read(path, entry, verify=False)[0], X)


@pytest.mark.parametrize("bad", [1999.5, 1921.0, 2012.0])
def test_year_as_npz_must_hold_years(small_year, tmp_path, bad):
    entry, X, y, _ = small_year
    path = tmp_path / "year.npz"
    np.savez(path, X=X, y=y)
    np.testing.assert_array_equal(read(path, entry)[1], y)
    np.savez(path, X=X, y=np.r_[y[:-1], bad])
    with pytest.raises(DatasetCorruptError, match=f"target {bad} in row 39"):
        read(path, entry)


def test_wrong_shape_names_both(tiny, tmp_path):
    np.savez(tmp_path / "tiny.npz", X=tiny.X[:-1], y=tiny.y[:-1])
    with pytest.raises(DatasetCorruptError, match=r"\(30, 2\) and \(30,\).*holds \(29, 2\)"):
        read(tmp_path / "tiny.npz", tiny.entry, verify=False)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(tiny, tmp_path, value):
    tiny.X[7, 1] = value
    np.savez(tmp_path / "tiny.npz", X=tiny.X, y=tiny.y)
    with pytest.raises(DatasetCorruptError, match="not finite in row 7"):
        read(tmp_path / "tiny.npz", tiny.entry, verify=False)


def test_one_changed_bit_is_noticed(tiny, tmp_path):
    y = tiny.y.copy()
    y[3] = np.nextafter(y[3], 9.0)
    np.savez(tmp_path / "tiny.npz", X=tiny.X, y=y)
    with pytest.raises(DatasetCorruptError, match=tiny.entry.values_sha256):
        read(tmp_path / "tiny.npz", tiny.entry)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.txt", b""),
        ("data.txt", b"1 2 three\n"),
        ("data.txt", b"1 2\n"),
        ("data.txt", b"<html>\xff</html>"),
        ("tiny.npz", b"not a zip file"),
        ("tiny.npz", b""),
        ("tiny.zip", b"PK not a zip file"),
    ],
)
def test_malformed_files_are_named(tiny, tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DatasetCorruptError, match=name):
        read(path, tiny.entry)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damage_in_the_middle_of_an_npz_is_noticed(tiny, tmp_path, save):
    path = tmp_path / "tiny.npz"
    save(path, X=tiny.X, y=tiny.y)
    content = bytearray(path.read_bytes())
    content[250:300] = bytes(50)
    path.write_bytes(content)
    with pytest.raises(DatasetCorruptError, match=r"tiny\.npz"):
        read(path, tiny.entry)


def test_pickles_are_refused(tiny, tmp_path):
    np.savez(tmp_path / "tiny.npz", X=tiny.X.astype(object), y=tiny.y)
    with pytest.raises(DatasetCorruptError, match="allow_pickle"):
        read(tmp_path / "tiny.npz", tiny.entry)


def test_npz_without_the_arrays_is_refused(tiny, tmp_path):
    np.savez(tmp_path / "tiny.npz", X=tiny.X)
    with pytest.raises(DatasetCorruptError, match="y is not a file"):
        read(tmp_path / "tiny.npz", tiny.entry)


def test_zip_with_several_texts_is_refused(tiny, tmp_path):
    with zipfile.ZipFile(tmp_path / "tiny.zip", "w") as archive:
        archive.writestr("a.txt", tiny.text)
        archive.writestr("b.txt", tiny.text)
    with pytest.raises(DatasetCorruptError, match=r"one .txt file.*a.txt.*b.txt"):
        read(tmp_path / "tiny.zip", tiny.entry)


@pytest.mark.data
@pytest.mark.parametrize("name", SOURCE_FORMATS)
def test_published_text_and_npz_hold_the_same_bits(name, data_folder, tmp_path):
    entry = CATALOGUE[name]
    with np.load(data_folder / f"{name}.npz", allow_pickle=False) as arrays:
        columns = [arrays["X"], arrays["y"]]
        columns += [arrays["y_turbine_decay"]] if name == "naval" else []
    path = write_text(tmp_path / "data.txt", np.column_stack(columns), SOURCE_FORMATS[name])
    assert source_sha256(path) == entry.sha256  # it is the published file, byte for byte
    X, y = read(path, entry)
    assert X.tobytes() == columns[0].tobytes()
    assert y.tobytes() == columns[1].tobytes()
