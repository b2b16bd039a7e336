import re
import tarfile

import numpy as np
import pytest

from calipers_study.archive import pack, unpack
from calipers_study.second_run import again_markdown
from calipers_study.store import ResultStore, StoreError
from calipers_study.tables import write_tables

from .test_tables import rows


@pytest.fixture(scope="module")
def packed(finished, tmp_path_factory):
    archive = tmp_path_factory.mktemp("packed") / "study.tar.xz"
    size = pack(finished, archive)
    assert size == archive.stat().st_size
    return archive


def test_predictions_come_back_rounded(store, packed, tmp_path):
    names = ResultStore(store).names()
    assert unpack(packed, tmp_path / "store") == len(names)
    assert ResultStore(tmp_path / "store").names() == names
    for name in names:
        mine, theirs = ResultStore(tmp_path / "store").read(name), ResultStore(store).read(name)
        step = mine.record.pop("rounded_to")
        assert mine.record == theirs.record
        assert mine.arrays.keys() == theirs.arrays.keys()
        for key in ("members", "seeds", "retries"):
            np.testing.assert_array_equal(mine.arrays[key], theirs.arrays[key])
        np.testing.assert_allclose(mine.arrays["target"], theirs.arrays["target"], atol=1e-6)
        for key in set(mine.arrays) - {"members", "seeds", "retries", "target"}:
            np.testing.assert_allclose(mine.arrays[key], theirs.arrays[key], atol=0.51 * step)
        if "lower" in mine.arrays:
            width = np.median(theirs.arrays["upper"] - theirs.arrays["lower"])
            assert width / 2000 < step <= width / 1000


def test_packing_again_changes_nothing(packed, tmp_path):
    unpack(packed, tmp_path / "store")
    for name in ResultStore(tmp_path / "store").names(
        "qd/yacht"
    ):  # as if their typical width were other
        entry = ResultStore(tmp_path / "store").read(name)
        entry.record["rounded_to"] /= 2
        ResultStore(tmp_path / "store").write(name, entry.record, entry.arrays)
    pack(tmp_path / "store", tmp_path / "a.tar.xz")
    unpack(tmp_path / "a.tar.xz", tmp_path / "again")
    pack(tmp_path / "again", tmp_path / "b.tar.xz")
    assert (tmp_path / "a.tar.xz").read_bytes() == (tmp_path / "b.tar.xz").read_bytes()


def test_tables_of_what_was_packed_are_those_of_the_store(store, packed, tmp_path):
    unpack(packed, tmp_path / "store")
    write_tables(store, tmp_path / "a")
    write_tables(tmp_path / "store", tmp_path / "b")
    for mine, theirs in zip(
        rows(tmp_path / "a" / "cells.csv"), rows(tmp_path / "b" / "cells.csv"), strict=True
    ):
        assert mine["verdict"] == theirs["verdict"]
        if mine["mean"] and mine["metric"] != "PICP":
            assert float(mine["mean"]) == pytest.approx(float(theirs["mean"]), rel=3e-3)


def test_other_archives_are_refused(tmp_path):
    with pytest.raises(StoreError, match="holds nothing to pack"):
        pack(tmp_path / "nowhere", tmp_path / "a.tar.xz")
    (tmp_path / "x").write_text("{}")
    with tarfile.open(tmp_path / "bad.tar.xz", "w:xz") as tar:
        tar.add(tmp_path / "x", "../x.json")
    with pytest.raises(StoreError, match="not a store entry"):
        unpack(tmp_path / "bad.tar.xz", tmp_path / "store")


def test_a_second_run_is_compared_cell_by_cell(store, tmp_path):
    far = ResultStore(tmp_path / "far")
    for name in ResultStore(store).names("mse/yacht"):
        entry = ResultStore(store).read(name)
        moved = {**entry.arrays, "point": entry.arrays["point"] + 100}
        far.write(name, entry.record, moved)
    same = again_markdown(store, store)
    found = re.search(r"Of (\d+) cells (\d+) differ by less than one", same)
    assert found[1] == found[2]
    assert int(found[1]) > 20
    assert "Of 1 cells 0 differ by less than one" in again_markdown(store, far.folder)
    assert "| table2 | yacht | MSE | MSE |" in again_markdown(store, far.folder)
    with pytest.raises(StoreError, match="no training in common"):
        again_markdown(store, tmp_path / "nowhere")
