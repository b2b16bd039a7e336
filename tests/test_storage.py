"""Models are loaded as they were saved, whatever happens in between; nothing else is read."""

import hashlib
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from calipers import storage
from calipers.storage import ModelFileError, read_model, write_model

# Spellings that a careless checksum would not notice changing: 1e-07 and 1E-07 are one number.
DOCUMENT = {"name": "first", "rate": 1e-07, "features": ["Größe", "b"], "nested": {"none": None}}
ARRAYS = {"weights": np.arange(6.0).reshape(2, 3), "mask": np.array([True, False])}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip
array_values = hnp.arrays(
    hnp.boolean_dtypes() | hnp.integer_dtypes() | hnp.unsigned_integer_dtypes()
    | hnp.floating_dtypes(sizes=(16, 32, 64)),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)  # fmt: skip


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    write_model(folder, DOCUMENT, ARRAYS)
    return folder


def weights_file(folder):
    (path,) = folder.glob("weights-*.safetensors")
    return path


def assert_same(found, document, arrays):
    assert repr(found[0]) == repr(document)  # tells 1 from 1.0 and True, 0.0 from -0.0
    assert found[1].keys() == arrays.keys()
    for name, array in arrays.items():
        native = array.astype(array.dtype.newbyteorder("="))
        assert found[1][name].dtype == native.dtype
        assert found[1][name].shape == native.shape
        assert found[1][name].tobytes() == native.tobytes()


# Round trips


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.text(), json_values, max_size=4),
    st.dictionaries(st.text(), array_values, max_size=3),
)
def test_everything_comes_back_exactly(document, arrays):
    with TemporaryDirectory() as folder:
        write_model(folder, document, arrays)
        assert_same(read_model(folder), document, arrays)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4).T,
        np.arange(12)[::-3],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.broadcast_to(np.float32(2.5), (2, 3)),
        np.arange(3, dtype=">i8"),
        np.array([np.nan, np.inf, -0.0]),
    ],
    ids=["transposed", "strided", "fortran", "broadcast", "big-endian", "not-finite"],
)
def test_arrays_of_any_layout_come_back(tmp_path, array):
    write_model(tmp_path, {}, {"array": array})
    assert_same(read_model(tmp_path), {}, {"array": array})


def test_loaded_arrays_are_writable(model):
    read_model(model)[1]["weights"][:] = 0


def test_mappings_and_tuples_come_back_as_dicts_and_lists(tmp_path):
    write_model(tmp_path, MappingProxyType({"layers": (50, MappingProxyType({"a": 1}))}), {})
    assert_same(read_model(tmp_path), {"layers": [50, {"a": 1}]}, {})


def test_numbers_of_numpy_come_back_as_numbers(tmp_path):
    write_model(tmp_path, {"epochs": np.int64(3), "rates": np.array([0.5, 2.0])}, {})
    assert_same(read_model(tmp_path), {"epochs": 3, "rates": [0.5, 2.0]}, {})


def test_the_folder_says_what_it_is(model):
    def refuse(constant):
        raise AssertionError(constant)

    record = json.loads((model / "model.json").read_bytes(), parse_constant=refuse)
    assert record["format"] == "calipers-model"
    assert record["format_version"] == 2
    assert datetime.fromisoformat(record["created"]).tzinfo is not None
    assert record["versions"]["numpy"] == np.__version__
    assert {"calipers", "jax", "python"} <= record["versions"].keys()
    assert {path.name for path in model.iterdir()} == {"model.json", record["weights"]["file"]}


# Saving


def test_saving_again_replaces_the_model_and_keeps_other_files(model):
    (model / "README.md").write_text("mine")
    (model / ".calipers-0123456789abcdef.tmp").write_text("left by a killed save")
    (model / "weights-0123456789abcdef.safetensors").write_text("left by a killed save")
    write_model(model, {"name": "second"}, {"weights": np.zeros(3)})
    assert_same(read_model(model), {"name": "second"}, {"weights": np.zeros(3)})
    names = {path.name for path in model.iterdir()}
    assert names == {"model.json", "README.md", weights_file(model).name}


def test_parents_are_made(tmp_path):
    write_model(tmp_path / "a" / "b", {}, {})
    assert read_model(str(tmp_path / "a" / "b")) == ({}, {})


def test_leftovers_of_a_killed_first_save_do_not_block_the_next(tmp_path):
    (tmp_path / ".calipers-0123456789abcdef.tmp").write_text("")
    (tmp_path / "weights-0123456789abcdef.safetensors").write_text("")
    write_model(tmp_path, DOCUMENT, ARRAYS)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("document", "arrays", "error", "message"),
    [
        ({"a": {"b": [0.0, float("nan")]}}, {}, ValueError, r"document\['a'\]\['b'\]\[1\] is nan"),
        ({"a": float("-inf")}, {}, ValueError, r"document\['a'\] is -inf.*use None"),
        ({"a": {1: 2}}, {}, TypeError, r"document\['a'\] has the key 1.*strings"),
        ({"a": np.array([b"x"])}, {}, TypeError, r"document\['a'\]\[0\] is of type bytes"),
        ({"a": {1, 2}}, {}, TypeError, r"document\['a'\] is of type set"),
        ({"a": "\ud800"}, {}, ValueError, "surrogates not allowed"),
        ({}, {"a": np.array([None])}, TypeError, r"arrays\['a'\] is of type object"),
        ({}, {"a": np.array(["x"])}, TypeError, r"arrays\['a'\] is of type <U1"),
        ({}, {"a": np.ones(1, complex)}, TypeError, r"arrays\['a'\] is of type complex128"),
        ({}, {"__metadata__": np.ones(1)}, ValueError, "reserves"),
        ({}, {1: np.ones(1)}, TypeError, "arrays has the key 1"),
    ],
)
def test_what_cannot_be_stored_is_named_and_nothing_is_written(
    tmp_path, document, arrays, error, message
):
    with pytest.raises(error, match=message):
        write_model(tmp_path / "model", document, arrays)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("model/thesis.tex", "mine", r"model holds 'thesis.tex' but no calipers model; save in a"),
        (
            "model/model.json",
            "{}",
            r"model is not changed: .*model\.json is not part of a calipers",
        ),
        ("model/model.json", "mine", r"model is not changed: .*model\.json is not JSON"),
        ("model", "mine", r"model cannot be created as a folder, since a file is in the way"),
    ],
)
def test_saving_over_other_things_is_refused(tmp_path, path, content, message):
    path = tmp_path / path
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    with pytest.raises(ModelFileError, match=message):
        write_model(tmp_path / "model", DOCUMENT, ARRAYS)
    assert path.read_text() == content
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]


@pytest.mark.parametrize("first_save", [True, False])
@pytest.mark.parametrize("step", ["weights", "model.json"])
def test_a_full_disk_leaves_the_old_model_and_no_leftovers(tmp_path, monkeypatch, first_save, step):
    if not first_save:
        write_model(tmp_path, DOCUMENT, ARRAYS)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    replace = Path.replace

    def full(path, target):
        if target.name.startswith(step):
            raise OSError("no space left on device")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_model(tmp_path, {"name": "second"}, {"weights": np.zeros(3)})
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


# Refusals


def record_of(folder):
    return folder / "model.json"


def to(file, change):
    """Damage done to one file, as a function of the folder."""
    return lambda folder: change(file(folder))


def write(content):
    return lambda path: path.write_bytes(content)


def swap(old, new):
    def change(path):
        assert old in path.read_bytes()
        path.write_bytes(path.read_bytes().replace(old, new, 1))

    return change


def link_out(path):
    outside = path.parent.parent / path.name
    path.rename(outside)
    path.symlink_to(outside)


def forge(**changes):
    """Change entries of model.json, and its checksum accordingly."""

    def change(folder):
        record = json.loads(record_of(folder).read_bytes())
        del record["sha256"]
        record_of(folder).write_bytes(storage._seal(record | changes))

    return change


def forge_entry(**changes):
    def change(folder):
        entry = json.loads(record_of(folder).read_bytes())["weights"]
        forge(weights=entry | changes)(folder)

    return change


def forge_weights(content):
    digest = hashlib.sha256(content).hexdigest()
    name = f"weights-{digest[:16]}.safetensors"

    def change(folder):
        (folder / name).write_bytes(content)
        forge(weights={"file": name, "sha256": digest, "bytes": len(content)})(folder)

    return change


class Bomb:
    def __reduce__(self):
        return os._exit, (1,)


HEADER = json.dumps({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
BFLOAT16 = len(HEADER).to_bytes(8, "little") + HEADER + b"\0\0"
TWICE = b'"name": "other",\n    "name"'

# Damage done to a good model, and what the refusal says after the path of the folder.
REFUSALS = {
    "no folder": (shutil.rmtree, ": no such folder"),
    "a file": (lambda folder: (shutil.rmtree(folder), folder.touch()), " is not a folder"),
    "no record": (to(record_of, Path.unlink), r" is not a calipers model: it has no model\.json"),
    "not JSON": (
        to(record_of, write(b"{")),
        r"/model\.json is not JSON: it is damaged, or not part of",
    ),
    "not text": (to(record_of, write(b"\xff\xfe\0")), r"/model\.json is not JSON"),
    "too deep": (to(record_of, write(b"[" * 100_000)), r"/model\.json is not JSON"),
    "foreign": (
        to(record_of, write(b'{"format": "x"}')),
        r"/model\.json is not part of a calipers",
    ),
    "a list": (
        to(record_of, write(b"[]")),
        r"/model\.json is not part of a calipers model, which has",
    ),
    "linked record": (to(record_of, link_out), r"/model\.json is a link, .* are regular files"),
    "altered record": (to(record_of, swap(b"first", b"other")), r"/model\.json does not match its"),
    "NaN": (to(record_of, swap(b"1e-07", b"NaN")), r"/model\.json does not match its checksum"),
    "surrogate": (to(record_of, swap(b"first", b"\\ud800")), r"/model\.json does not match its"),
    "respelt": (to(record_of, swap(b"1e-07", b"1E-07")), r"/model\.json does not match its"),
    "repeated": (to(record_of, swap(b'"name"', TWICE)), r"/model\.json does not match its"),
    "unsealed": (
        to(record_of, swap(b'},\n  "sha256"', b'},\n  "sha"')),
        r"/model\.json has wrong keys in model\.json: missing \['sha256'\], extra \['sha'\]",
    ),
    "newer": (
        forge(format_version=3, versions={"calipers": "9.1"}, news="unknown here"),
        r"/model\.json was written by calipers 9\.1 in format 3; this version reads up to 2: "
        r"upgrade calipers",
    ),
    "much newer": (
        forge(format_version=4, versions=[]),
        r"/model\.json was written by calipers \? in format 4",
    ),
    "version 0": (forge(format_version=0), r"/model\.json has 'format_version' 0, which must be"),
    "version true": (forge(format_version=True), r"/model\.json has 'format_version' True"),
    "extra key": (forge(x=1), r"/model\.json has wrong keys in model\.json: .* extra \['x'\]"),
    "no entry": (forge(weights=None), r"/model\.json has wrong keys in 'weights': missing \['byt"),
    "extra in entry": (
        forge_entry(x=1),
        r"/model\.json has wrong keys in 'weights': .* extra \['x",
    ),
    "no document": (forge(document=[]), r"/model\.json has a 'document' that is not a JSON object"),
    "parent": (
        forge_entry(file="../x"),
        r"/model\.json has weights '\.\./x' instead of weights-<16",
    ),
    "absolute": (
        forge_entry(file="/etc/hosts"),
        r"/model\.json has weights '/etc/hosts' instead of",
    ),
    "no name": (forge_entry(file=["x"]), r"/model\.json has weights \['x'\] instead of"),
    "absurd size": (forge_entry(bytes=10**18), r"/weights-.* bytes instead of 10{18}: it is cut"),
    "odd size": (forge_entry(bytes="all"), r"/weights-.* bytes instead of all"),
    "no weights": (to(weights_file, Path.unlink), r"/weights-.* is missing; copy the whole folder"),
    "cut weights": (
        to(weights_file, lambda path: path.write_bytes(path.read_bytes()[:-1])),
        r"/weights-.* has \d+ bytes instead of \d+: it is cut off or replaced",
    ),
    "altered weights": (
        to(weights_file, swap(b"\0\0\0", b"\0\1\0")),
        r"/weights-.* does not match its checksum: it was changed after it was saved",
    ),
    "linked weights": (to(weights_file, link_out), r"/weights-.* is a link, .* are regular files"),
    "junk": (forge_weights(b"junk"), r"/weights-.* cannot be read as safetensors"),
    "pickle": (forge_weights(pickle.dumps(Bomb())), r"/weights-.* cannot be read as safe"),
    "odd dtype": (forge_weights(BFLOAT16), r"/weights-.* cannot be read as safetensors: .*BF16"),
}


@pytest.mark.parametrize(("damage", "message"), REFUSALS.values(), ids=REFUSALS.keys())
def test_anything_but_a_whole_model_is_refused(model, damage, message):
    damage(model)
    with pytest.raises(ModelFileError, match=re.escape(str(model)) + message):
        read_model(model)


@pytest.mark.long
def test_any_flipped_bit_is_found(model):
    rng = np.random.default_rng(0)
    for path in model.iterdir():
        content = path.read_bytes()
        # Bit 5 is the case of a letter: the one flip that JSON may not notice.
        flips = {(position, 5) for position in range(len(content))}
        flips |= {(int(p), int(b)) for p, b in rng.integers((len(content), 8), size=(300, 2))}
        for position, bit in flips:
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            path.write_bytes(flipped)
            with pytest.raises(ModelFileError):
                read_model(model)
        path.write_bytes(content)
    assert_same(read_model(model), DOCUMENT, ARRAYS)


# Others at work in the same folder

WRITER = """
import itertools, runpy, sys
import numpy as np
write_model = runpy.run_path(sys.argv[1])["write_model"]
for turn in itertools.count():
    write_model(sys.argv[2], {"turn": turn % 2}, {"weights": np.full(50_000, turn % 2)})
    if turn == 0:
        print("ready", flush=True)
"""


@contextmanager
def writer(folder):
    """A process that saves two models in turn until it is killed."""
    command = [sys.executable, "-c", WRITER, storage.__file__, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield
            assert process.poll() is None
        finally:
            process.kill()


def read_turn(folder):
    document, arrays = read_model(folder)
    assert_same((document, arrays), document, {"weights": np.full(50_000, document["turn"])})
    return document["turn"]


@pytest.mark.slow  # test_campaigns.py has a fast share of such kills
def test_a_save_killed_at_any_moment_leaves_a_whole_model(tmp_path):
    rng = np.random.default_rng(0)
    for _ in range(12):
        with writer(tmp_path):
            for _ in range(rng.integers(8)):  # which puts the moment anywhere
                assert read_turn(tmp_path) in (0, 1)
        assert read_turn(tmp_path) in (0, 1)
    write_model(tmp_path, DOCUMENT, ARRAYS)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.long
@pytest.mark.parametrize("n_writers", [1, 2])
def test_readers_and_writers_at_the_same_time(tmp_path, n_writers):
    with ExitStack() as writers:
        for _ in range(n_writers):
            writers.enter_context(writer(tmp_path))
        turns = {read_turn(tmp_path) for _ in range(300)}
    assert turns == {0, 1}
    assert read_turn(tmp_path) in (0, 1)


def test_a_reader_overtaken_by_a_save_gets_the_new_model(model, monkeypatch):
    read_arrays = storage._read_arrays

    def overtaken(path, entry):
        monkeypatch.setattr(storage, "_read_arrays", read_arrays)
        write_model(model, {"name": "second"}, {"weights": np.zeros(3)})
        return read_arrays(path, entry)

    monkeypatch.setattr(storage, "_read_arrays", overtaken)
    assert_same(read_model(model), {"name": "second"}, {"weights": np.zeros(3)})
