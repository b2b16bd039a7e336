import dataclasses
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from calipers.datasets import (
    CATALOGUE,
    DatasetCorruptError,
    DatasetUnavailableError,
    available,
    cache_folder,
    load,
)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "own"
    path.mkdir()
    return path


def test_npz_in_a_folder(tiny, folder):
    np.savez(folder / "tiny.npz", X=tiny.X, y=tiny.y)
    data = load("tiny", folder=folder)
    np.testing.assert_array_equal(data.X, tiny.X)
    np.testing.assert_array_equal(data.y, tiny.y)
    assert data.source == folder / "tiny.npz"
    for name in ("name", "feature_names", "target_name", "target_unit", "citation", "licence"):
        assert getattr(data, name) == getattr(tiny.entry, name)


def test_source_text_in_a_folder(tiny, folder):
    (folder / "tiny").mkdir()
    (folder / "tiny" / "data.txt").write_bytes(tiny.text)
    np.testing.assert_array_equal(load("tiny", folder=folder).X, tiny.X)


def test_argument_goes_before_environment_and_folder_before_cache(
    tiny, folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("CALIPERS_DATA", str(folder))
    tiny.cached.parent.mkdir(parents=True)
    tiny.cached.write_bytes(tiny.text)
    assert load("tiny").source == tiny.cached
    np.savez(folder / "tiny.npz", X=tiny.X, y=tiny.y)
    assert load("tiny").source == folder / "tiny.npz"
    other = tmp_path / "other"
    other.mkdir()
    assert load("tiny", folder=other).source == tiny.cached


def test_altered_file_in_own_folder_is_refused_unless_allowed(tiny, folder):
    np.savez(folder / "tiny.npz", X=tiny.X + 1, y=tiny.y)
    with pytest.raises(DatasetCorruptError, match=r"tiny\.npz is not the file"):
        load("tiny", folder=folder)
    np.testing.assert_array_equal(load("tiny", folder=folder, verify=False).X, tiny.X + 1)


def test_missing_folder_is_named(tiny, folder, monkeypatch):
    with pytest.raises(DatasetUnavailableError, match=r"folder is .*nowhere"):
        load("tiny", folder=folder / "nowhere")
    monkeypatch.setenv("CALIPERS_DATA", str(folder / "nowhere"))
    with pytest.raises(DatasetUnavailableError, match=r"CALIPERS_DATA is .*nowhere"):
        load("tiny")


def test_without_download_the_error_says_where_to_put_the_file(tiny, folder):
    with pytest.raises(DatasetUnavailableError) as caught:
        load("tiny", folder=folder, download=False)
    for part in (tiny.entry.url, str(tiny.cached), str(folder / "tiny" / "data.txt")):
        assert part in str(caught.value)
    tiny.cached.parent.mkdir(parents=True)
    tiny.cached.write_bytes(tiny.text)
    np.testing.assert_array_equal(load("tiny", download=False).y, tiny.y)


def test_damaged_cache_is_named(tiny):
    tiny.cached.parent.mkdir(parents=True)
    tiny.cached.write_bytes(tiny.text[:-5])
    with pytest.raises(DatasetUnavailableError, match=r"data\.txt is damaged"):
        load("tiny", download=False)


def test_damaged_zip_in_the_cache_is_named():
    path = cache_folder() / "datasets" / "year" / "yearpredictionmsd.zip"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half a zip file")
    with pytest.raises(DatasetUnavailableError, match=r"yearpredictionmsd\.zip is damaged"):
        load("year", download=False)


def test_a_sample_of_year_is_not_taken_for_year(folder):
    rng = np.random.default_rng(0)
    np.savez(folder / "year_partial.npz", X=rng.normal(size=(7, 90)), y=np.full(7, 1999.0))
    assert not available("year", folder=folder)
    with pytest.raises(DatasetUnavailableError, match=r"year_partial\.npz is only a sample"):
        load("year", folder=folder, download=False)


@pytest.mark.parametrize("place", ["", "year"])
@pytest.mark.parametrize("file", CATALOGUE["year"].file_names)
def test_year_by_hand(folder, monkeypatch, place, file):
    rows, text = 3, "".join(f"{2000 + i}" + ",0.5" * 90 + "\n" for i in range(3))
    path = folder / place / file
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("YearPredictionMSD.txt", text)
    else:
        path.write_text(text)
    monkeypatch.setitem(CATALOGUE, "year", dataclasses.replace(CATALOGUE["year"], rows=rows))
    data = load("year", folder=folder, verify=False)
    assert data.y.tolist() == [2000, 2001, 2002]
    assert data.X.shape == (3, 90)


def test_available_looks_in_folder_and_cache(tiny, folder, monkeypatch):
    assert not available("tiny")
    tiny.cached.parent.mkdir(parents=True)
    tiny.cached.touch()
    assert available("tiny")
    tiny.cached.unlink()
    (folder / "tiny.npz").touch()
    assert available("tiny", folder=folder)
    monkeypatch.setenv("CALIPERS_DATA", str(folder))
    assert available("tiny")


@pytest.mark.skipif(sys.platform != "linux", reason="the XDG rule is for Linux")
def test_cache_follows_the_system(monkeypatch, tmp_path):
    monkeypatch.delenv("CALIPERS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "calipers"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "calipers"


# Mean and standard deviation (ddof 0) of the targets, recorded when the data was gathered.
TARGETS = {
    "boston": (22.5328, 9.18801),
    "concrete": (35.818, 16.6976),
    "energy": (22.3072, 10.0836),
    "kin8nm": (0.714283, 0.263591),
    "naval": (0.975, 0.0147196),
    "power": (454.365, 17.0661),
    "protein": (7.74853, 6.11824),
    "wine": (5.63602, 0.807317),
    "yacht": (10.4954, 15.1359),
}


@pytest.mark.data
@pytest.mark.parametrize("name", TARGETS)
def test_real_data(name, data_source):
    data = load(name, folder=data_source, download=data_source is None)
    assert data.X.shape == (CATALOGUE[name].rows, CATALOGUE[name].inputs)
    np.testing.assert_allclose((data.y.mean(), data.y.std()), TARGETS[name], rtol=5e-6)
    assert data_source is None or data.source == Path(data_source, f"{name}.npz")


@pytest.mark.data
def test_real_sample_in_the_layout_of_year(data_folder, folder, monkeypatch):
    with np.load(data_folder / "year_partial.npz", allow_pickle=False) as arrays:
        X, y = arrays["X"][:500], arrays["y"][:500]
        assert tuple(arrays["feature_names"]) == CATALOGUE["year"].feature_names
    with (folder / "YearPredictionMSD.txt").open("w") as file:
        for row, target in zip(X, y, strict=True):
            file.write(f"{target:.0f}," + ",".join(f"{value:.5f}" for value in row) + "\n")
    monkeypatch.setitem(CATALOGUE, "year", dataclasses.replace(CATALOGUE["year"], rows=500))
    data = load("year", folder=folder, verify=False)
    assert data.X.tobytes() == X.tobytes()
    assert data.y.tobytes() == y.tobytes()
