import dataclasses
import io
import os
import stat
import time
import zipfile

import numpy as np
import pytest

from calipers.datasets import (
    CATALOGUE,
    DatasetCorruptError,
    DatasetUnavailableError,
    _download,
    load,
)
from calipers.datasets._download import ATTEMPTS, TransferError, download


def assert_nothing_was_kept(tiny):
    assert tiny.cache_files() == []


def test_served_correctly_once_and_from_the_cache_after(tiny, server, capfd):
    server.behaviours = [server.send(tiny.text)]
    for _ in range(2):
        np.testing.assert_array_equal(load("tiny").X, tiny.X)
    assert server.requests == ["/tiny/data.txt"]
    assert tiny.cache_files() == [tiny.cached]
    assert tiny.cached.read_bytes() == tiny.text
    assert os.name == "nt" or tiny.cached.stat().st_mode & 0o777 == 0o644
    assert capfd.readouterr() == ("", "")  # no terminal, no progress bar


def test_a_zip_file_is_checked_by_the_text_inside(tiny, server, monkeypatch):
    entry = dataclasses.replace(tiny.entry, file_names=("tiny.zip",), values_sha256=None)
    monkeypatch.setitem(CATALOGUE, "tiny", entry)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("data.txt", tiny.text)
    server.behaviours = [server.send(packed.getvalue())]
    data = load("tiny")
    np.testing.assert_array_equal(data.X, tiny.X)
    assert data.source.name == "tiny.zip"


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_passing_failure_is_tried_again(tiny, server, status):
    server.behaviours = [server.send(b"later", status=status), server.send(tiny.text)]
    np.testing.assert_array_equal(load("tiny").X, tiny.X)
    assert len(server.requests) == 2


def test_a_lasting_failure_ends_after_some_attempts(tiny, server):
    server.behaviours = [server.send(b"no", status=500)]
    with pytest.raises(DatasetUnavailableError, match="answered 500") as caught:
        load("tiny")
    assert len(server.requests) == ATTEMPTS
    assert f"download\n    {tiny.entry.url}\nand save it as\n    {tiny.cached}" in str(caught.value)
    assert_nothing_was_kept(tiny)


def test_a_missing_page_is_not_asked_for_again(tiny, server):
    server.behaviours = [server.send(b"what?", status=404)]
    with pytest.raises(DatasetUnavailableError, match="answered 404"):
        load("tiny")
    assert len(server.requests) == 1
    assert_nothing_was_kept(tiny)


@pytest.mark.parametrize("behaviour", ["stall", "stall_midway"])
def test_a_stalled_server_ends_in_an_error(tiny, server, behaviour):
    server.behaviours = [getattr(server, behaviour)]
    start = time.monotonic()
    with pytest.raises(DatasetUnavailableError, match="timed out"):
        load("tiny", timeout=0.1)
    assert time.monotonic() - start < 50  # before the server does anything
    server.wait_for_requests(ATTEMPTS)
    assert len(server.requests) == ATTEMPTS
    assert_nothing_was_kept(tiny)


def test_a_truncated_answer_is_never_kept(tiny, server):
    server.behaviours = [server.send(tiny.text[:100], announced=len(tiny.text))]
    with pytest.raises(DatasetUnavailableError, match=r"ended after 100 of|IncompleteRead"):
        load("tiny")
    assert_nothing_was_kept(tiny)
    server.behaviours.append(server.send(tiny.text))
    np.testing.assert_array_equal(load("tiny").X, tiny.X)


def test_wrong_bytes_are_refused_with_both_checksums(tiny, server):
    server.behaviours = [server.send(tiny.text.replace(b"1", b"2", 1))]
    with pytest.raises(DatasetCorruptError, match=f"{tiny.entry.sha256}, but is [0-9a-f]{{64}}"):
        load("tiny")
    assert len(server.requests) == 1
    assert_nothing_was_kept(tiny)


def test_wrong_bytes_are_refused_even_without_verification(tiny, server):
    server.behaviours = [server.send(b"<html>Welcome to the hotel</html>")]
    with pytest.raises(DatasetCorruptError, match="download\n    http"):
        load("tiny", verify=False)
    assert_nothing_was_kept(tiny)


def test_a_damaged_cache_is_replaced(tiny, server):
    tiny.cached.parent.mkdir(parents=True)
    tiny.cached.write_bytes(b"damaged")
    server.behaviours = [server.send(tiny.text)]
    np.testing.assert_array_equal(load("tiny").X, tiny.X)
    assert tiny.cached.read_bytes() == tiny.text


def test_an_endless_answer_is_cut_off(tiny, server, monkeypatch):
    monkeypatch.setattr(_download, "MAX_BYTES", 1000)
    server.behaviours = [server.send(bytes(5000))]
    with pytest.raises(DatasetUnavailableError, match="more than 1000 bytes"):
        load("tiny")
    assert len(server.requests) == 1
    assert_nothing_was_kept(tiny)


def test_no_server_at_all(tiny, monkeypatch):
    monkeypatch.setenv("CALIPERS_MIRROR", "http://127.0.0.1:9")
    with pytest.raises(DatasetUnavailableError, match=r"cannot be reached.*refused"):
        load("tiny", timeout=60)


def test_an_address_of_another_kind_is_refused(tiny, monkeypatch, tmp_path):
    monkeypatch.setenv("CALIPERS_MIRROR", tmp_path.as_uri())
    with pytest.raises(DatasetUnavailableError, match="not an http or https address"):
        load("tiny")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_that_cannot_be_written_is_named(tiny, server, tmp_path, monkeypatch):
    locked = tmp_path / "locked"
    locked.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.setenv("CALIPERS_CACHE", str(locked))
    with pytest.raises(DatasetUnavailableError, match="set CALIPERS_CACHE"):
        load("tiny")


def test_a_cache_that_is_a_file_is_named(tiny, server, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CALIPERS_CACHE", str(tmp_path / "file"))
    with pytest.raises(DatasetUnavailableError, match="set CALIPERS_CACHE"):
        load("tiny")


def test_an_interrupt_leaves_nothing_behind(server, tmp_path):
    def interrupt(path):
        assert path.read_bytes() == b"all of it"
        raise KeyboardInterrupt

    server.behaviours = [server.send(b"all of it")]
    with pytest.raises(KeyboardInterrupt):
        download(server.base + "/x", tmp_path / "a" / "x.txt", check=interrupt, timeout=60)
    assert list((tmp_path / "a").iterdir()) == []


def test_a_failure_leaves_the_old_file_alone(server, tmp_path):
    target = tmp_path / "x.txt"
    target.write_bytes(b"old")
    server.behaviours = [server.send(b"gone", status=410)]
    with pytest.raises(TransferError, match="answered 410"):
        download(server.base + "/x", target, check=lambda path: None, timeout=60)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_pauses_between_attempts_grow(server, tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(_download, "FIRST_PAUSE", 1.0)
    monkeypatch.setattr(_download.time, "sleep", pauses.append)
    server.behaviours = [server.send(b"no", status=502)]
    with pytest.raises(TransferError):
        download(server.base + "/x", tmp_path / "x.txt", check=lambda path: None, timeout=60)
    assert pauses == [1.0, 2.0]


@pytest.mark.parametrize(("verbose", "shown"), [(1, True), (0, False)])
def test_progress_is_shown_on_a_terminal(server, tmp_path, monkeypatch, capsys, verbose, shown):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    server.behaviours = [server.send(b"all of it")]
    target = tmp_path / "x.txt"
    download(server.base + "/x", target, check=lambda path: None, timeout=60, verbose=verbose)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("x.txt" in err) is shown
