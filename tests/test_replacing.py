"""Files are replaced atomically, and locks exclude other writers."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from calipers import _files
from calipers._files import append_to, cache_folder, locked, replace_file, replacing

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="locks of POSIX")


def test_a_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
        assert Path(file.name).read_bytes() == b"new"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(bytes(1 // 0))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_names_the_folder_that_does_not_exist(tmp_path):
    folder = tmp_path / "lost"
    with pytest.raises(FileNotFoundError, match="no such folder") as found:
        replace_file(folder / "table.csv", b"new")
    assert found.value.filename == str(folder)
    folder.write_bytes(b"a file")
    with pytest.raises(NotADirectoryError, match="not a folder") as found:
        replace_file(folder / "table.csv", b"new")
    assert found.value.filename == str(folder)


@POSIX
def test_a_pipe_stays_one_and_is_written_to(tmp_path):
    """As a device does: a rename would put a file in its place."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()))
    reader.start()
    replace_file(path, b"new")
    reader.join(60)
    assert found == [b"new"]
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_kill_left_is_overwritten(tmp_path):
    (tmp_path / ".table.csv.part").write_bytes(b"left by a process that was killed")
    replace_file(tmp_path / "table.csv", b"new")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"table.csv": b"new"}


@POSIX
def test_a_second_writer_is_refused_or_waits(tmp_path):
    path = tmp_path / "table.csv"
    opened = threading.Event()

    def wait():
        opened.set()
        with replacing(path, wait=True) as file:
            file.write(b"second")

    second = threading.Thread(target=wait)
    with replacing(path) as file:
        with pytest.raises(BlockingIOError, match=r"another process is writing .*table\.csv"):
            replace_file(path, b"refused")
        second.start()
        assert opened.wait(60)
        file.write(b"first")
    second.join(60)
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


@POSIX
def test_a_writer_that_finishes_just_before_the_lock_keeps_its_file(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    lock = _files._lock

    def overtaken(descriptor, wait):
        monkeypatch.setattr(_files, "_lock", lock)
        replace_file(path, b"first")  # takes the file that was just opened, and its name
        return lock(descriptor, wait)

    monkeypatch.setattr(_files, "_lock", overtaken)
    with replacing(path) as file:
        assert path.read_bytes() == b"first"
        file.write(b"second")
        file.flush()
        assert path.read_bytes() == b"first"
    assert path.read_bytes() == b"second"


@pytest.mark.parametrize("race", [False, True])
def test_without_locks_or_in_a_race_every_writer_has_a_file_of_its_own(tmp_path, monkeypatch, race):
    if not race:
        monkeypatch.setattr(_files, "_lock", lambda *_: False)
    path = tmp_path / "table.csv"
    with replacing(path, race=race) as one, replacing(path, race=race) as other:
        assert one.name != other.name
        one.write(b"one")
        other.write(b"other")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"table.csv": b"one"}


@POSIX
def test_permissions_are_those_asked_for_less_the_umask(tmp_path):
    with replacing(tmp_path / "private", mode=0o600) as file:
        file.write(b"")
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600


COUNT = """
import sys
from pathlib import Path
from calipers._files import locked
path = Path(sys.argv[1])
for _ in range(200):
    with locked(path.with_name("lock")):
        path.write_text(str(int(path.read_text()) + 1))
"""


@POSIX
def test_a_lock_keeps_processes_apart(tmp_path):
    count = tmp_path / "count"
    count.write_text("0")
    command = [sys.executable, "-c", COUNT, str(count)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert count.read_text() == "600"


@POSIX
def test_appended_bytes_replace_what_a_killed_process_left(tmp_path):
    path = tmp_path / "log"
    assert append_to(path, b"one\n", 0) == 4
    path.write_bytes(b"one\ntw")
    assert append_to(path, b"two\n", 4) == 8
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_folder_can_be_locked_and_is_released_by_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    with locked(tmp_path):
        assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="folders of Linux")
def test_the_cache_folder_is_where_it_was(monkeypatch, tmp_path):
    monkeypatch.setenv("CALIPERS_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("CALIPERS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "calipers"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "calipers"
