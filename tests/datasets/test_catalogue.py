import string

import pytest

from calipers.datasets import CATALOGUE, DatasetError, UnknownDatasetError, load
from calipers.datasets._catalogue import lookup

# Rows and inputs as the paper's table of datasets has them.
SIZES = {
    "boston": (506, 13),
    "concrete": (1030, 8),
    "energy": (768, 8),
    "kin8nm": (8192, 8),
    "naval": (11934, 16),
    "power": (9568, 4),
    "protein": (45730, 9),
    "wine": (1599, 11),
    "yacht": (308, 6),
    "year": (515345, 90),
}


def test_the_ten_datasets_of_the_paper_are_there():
    assert {name: (e.rows, e.inputs) for name, e in CATALOGUE.items()} == SIZES


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=CATALOGUE)
def test_entries_are_complete(entry):
    for text in (entry.title, entry.target_name, entry.description, entry.citation, entry.licence):
        assert text == text.strip() != ""
    assert len(set(entry.feature_names)) == entry.inputs
    assert entry.url.startswith("https://")
    assert entry.url.endswith(entry.file_names[0])
    for checksum in filter(None, (entry.sha256, entry.values_sha256)):
        assert len(checksum) == 64
        assert set(checksum) <= set(string.hexdigits.lower())
    inputs = range(entry.first_input, entry.first_input + entry.inputs)
    assert entry.target_column not in inputs


@pytest.mark.parametrize("key", ["url", "sha256", "values_sha256"])
def test_no_two_datasets_share_a_file(key):
    values = [getattr(entry, key) for entry in CATALOGUE.values()]
    assert len(set(values)) == len(values)


@pytest.mark.parametrize(("name", "near"), [("yatch", "yacht"), ("Boston", "boston")])
def test_unknown_name_is_answered_with_the_nearest_and_the_list(name, near):
    with pytest.raises(UnknownDatasetError, match=f"did you mean '{near}'.*boston, concrete"):
        load(name)


def test_unknown_name_far_from_all_is_answered_with_the_list():
    with pytest.raises(DatasetError, match=r"no dataset 'zzz'\. Known: boston"):
        lookup("zzz")
