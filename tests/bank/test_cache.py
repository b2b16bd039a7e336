"""Compiled programs on disk: found again, never trusted blindly, never in the way."""

import errno
import functools
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest

from calipers import bank, heads, losses, networks, objectives
from calipers.bank import SCHEDULES, Program, _cache
from calipers.heads import HEADS
from calipers.networks import ACTIVATIONS, Activation, Around, DenseFactory
from calipers.objectives import LOSSES

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="rights of POSIX")


@dataclass(frozen=True)
class Scale:
    """A program that multiplies; equal ones are one program."""

    factor: float

    def run(self, x):
        return self.factor * x


X = np.arange(3, dtype=np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CALIPERS_CACHE", str(tmp_path))
    return tmp_path / "programs"


@pytest.fixture
def compilations(monkeypatch):
    """Counts what the compiler is asked to do."""
    done = []
    compile_ = jax.stages.Lowered.compile

    def counted(lowered, *arguments, **options):
        done.append(lowered)
        return compile_(lowered, *arguments, **options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", counted)
    return done


@pytest.fixture
def run(folder, monkeypatch):
    """Runs a program as a fresh process would, which has none in memory."""

    def fresh(factor=2.0):
        monkeypatch.setattr(_cache, "_compiled", OrderedDict())
        result = _cache.compiled(Scale(factor).run, (X,))(X)
        np.testing.assert_array_equal(result, factor * X)

    return fresh


def entry(folder):
    (path,) = folder.iterdir()
    return path


def test_a_program_is_compiled_once_for_all_processes(run, folder, compilations):
    run()
    run()
    assert len(compilations) == 1
    assert entry(folder).suffix == ".program"


def test_equal_programs_are_one_in_memory(run, folder, compilations):
    run()
    entry(folder).unlink()
    _cache.compiled(Scale(2.0).run, (X,))(X)
    assert len(compilations) == 1
    assert len(_cache._compiled) == 1


def test_a_program_that_cannot_be_hashed_is_kept_by_identity(folder, compilations, monkeypatch):
    class Unhashable(Scale):
        __hash__ = None

    monkeypatch.setattr(_cache, "_compiled", OrderedDict())
    program = Unhashable(2.0)
    for _ in range(2):
        _cache.compiled(program.run, (X,))(X)
    assert len(compilations) == len(_cache._compiled) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"no pickle at all",
        lambda content: content[: len(content) // 2],
        lambda content: pickle.dumps("not a program"),
        lambda content: pickle.dumps((b"no executable", *pickle.loads(content)[1:])),
    ],
    ids=["empty", "garbage", "cut short", "another pickle", "no executable"],
)
def test_a_corrupt_entry_is_compiled_again_and_replaced(run, folder, compilations, damage):
    run()
    path = entry(folder)
    path.write_bytes(damage(path.read_bytes()))
    run()
    run()
    assert len(compilations) == 2
    assert entry(folder) == path


def test_a_program_that_fails_when_it_runs_is_compiled_again(
    run, folder, compilations, monkeypatch
):
    def broken(*_):
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: another number of devices")

    run()
    with monkeypatch.context() as patch:
        patch.setattr(_cache, "_load", lambda *_: broken)
        run()
    assert len(compilations) == 2
    run()
    assert len(compilations) == 2


def test_a_failure_that_deleted_the_arguments_is_an_error(folder, monkeypatch):
    def broken(x):
        x.delete()
        raise jax.errors.JaxRuntimeError("INTERNAL")

    monkeypatch.setattr(_cache, "_compiled", OrderedDict())
    monkeypatch.setattr(_cache, "_load", lambda *_: broken)
    argument = jax.device_put(X)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        _cache.compiled(Scale(2.0).run, (argument,))(argument)


def test_programs_used_longest_ago_are_removed_first(run, folder, compilations, monkeypatch):
    run(2.0)
    size = entry(folder).stat().st_size
    monkeypatch.setattr(_cache, "_MAX_CACHE", 3.5 * size)
    run(3.0)
    run(4.0)
    for age, path in enumerate(sorted(folder.iterdir(), key=lambda p: -p.stat().st_mtime_ns)):
        os.utime(path, (1e9 - age, 1e9 - age))
    run(2.0)  # was the oldest, and now is the one used last
    run(5.0)
    assert len(list(folder.iterdir())) == 3
    assert len(compilations) == 4
    run(2.0)
    assert len(compilations) == 4
    run(3.0)
    assert len(compilations) == 5


def test_a_file_that_another_process_evicted_first_is_no_error(run, folder, caplog, monkeypatch):
    stat = _cache.Path.stat

    def gone(path, **options):
        if path.suffix == ".program":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return stat(path, **options)

    monkeypatch.setattr(_cache.Path, "stat", gone)
    with caplog.at_level("INFO"):
        run()
    assert "not kept" not in caplog.text


@POSIX
class TestOwner:
    """What others could have written is code of theirs."""

    class Bomb:
        def __init__(self, mark):
            self.mark = mark

        def __reduce__(self):
            return (self.mark.touch, ())

    @pytest.fixture
    def bomb(self, run, folder, tmp_path):
        run()
        mark = tmp_path / "exploded"
        entry(folder).write_bytes(pickle.dumps(self.Bomb(mark)))
        return mark

    def test_the_bomb_would_work(self, bomb, run):
        run()
        assert bomb.exists()

    @pytest.mark.parametrize("mode", [0o620, 0o602])
    def test_a_file_that_others_may_write(self, bomb, run, folder, caplog, compilations, mode):
        entry(folder).chmod(mode)
        with caplog.at_level("INFO"):
            run()
        assert not bomb.exists()
        assert "is writable by other users: chmod go-w" in caplog.text
        run()  # it was replaced by a file of one's own
        assert len(compilations) == 1

    def test_a_folder_that_others_may_write(self, bomb, run, folder, caplog, compilations):
        folder.chmod(0o777)
        before = entry(folder).read_bytes()
        with caplog.at_level("INFO"):
            run()
            run()
        assert not bomb.exists()
        assert entry(folder).read_bytes() == before
        assert len(compilations) == 2

    def test_an_owner_who_is_someone_else(self, bomb, run, folder, caplog, monkeypatch):
        monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
        with caplog.at_level("INFO"):
            run()
        assert not bomb.exists()
        assert "belongs to another user" in caplog.text

    def test_a_link(self, bomb, run, folder, tmp_path):
        path = entry(folder)
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        run()
        assert not bomb.exists()

    def test_what_is_kept_is_private(self, run, folder):
        before = os.umask(0)
        try:
            run()
        finally:
            os.umask(before)
        assert entry(folder).stat().st_mode & 0o777 == 0o600
        assert folder.stat().st_mode & 0o777 == 0o700


@dataclass(frozen=True)
class Described(Scale):
    """A program that is identified by its description; it counts how often it is traced."""

    description: str | None = "doubled"

    def run(self, x):
        TRACED.append(self)
        return super().run(x)


TRACED = []


class TestDescribed:
    """Programs that have a description are not traced if they are on disk."""

    @pytest.fixture
    def run(self, folder, monkeypatch):
        TRACED.clear()

        def fresh(factor=2.0, description="doubled", x=X):
            monkeypatch.setattr(_cache, "_compiled", OrderedDict())
            program = Described(factor, description)
            return np.asarray(_cache.compiled(program.run, (x,), results=0)(x))

        return fresh

    def test_it_is_traced_once_for_all_processes(self, run, compilations):
        np.testing.assert_array_equal(run(), 2 * X)
        np.testing.assert_array_equal(run(), 2 * X)
        assert len(TRACED) == len(compilations) == 1

    def test_without_a_description_the_text_decides(self, run, compilations):
        for factor in (2.0, 3.0, 2.0):
            np.testing.assert_array_equal(run(factor, None), factor * X)
        assert len(TRACED) == 3
        assert len(compilations) == 2

    def test_anything_else_is_another_program(self, run, compilations, monkeypatch):
        run()
        run(3.0, "tripled")
        run(x=np.arange(4, dtype=np.float32))
        with monkeypatch.context() as patch:
            patch.setattr(_cache, "_SOURCES", "of another version")
            patch.setattr(_cache, "_sources", lambda: "of another version")
            run()
        with jax.numpy_rank_promotion("raise"):
            run()
        assert len(compilations) == 5

    def test_one_that_fails_when_it_runs_is_traced_and_compiled(
        self, run, compilations, monkeypatch
    ):
        def broken(*_):
            raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT")

        run()
        with monkeypatch.context() as patch:
            patch.setattr(_cache, "_load", lambda *_: broken)
            np.testing.assert_array_equal(run(), 2 * X)
        assert len(TRACED) == len(compilations) == 2

    @pytest.mark.parametrize("module", [objectives, networks, losses, heads, bank])
    def test_sources_are_those_of_the_library(self, module, monkeypatch):
        before, read = _cache._SOURCES, _cache.Path.read_bytes

        def changed(path):
            return read(path) + b"#" * (str(path) == module.__file__)

        with monkeypatch.context() as patch:
            patch.setattr(_cache.Path, "read_bytes", changed)
            assert _cache._sources() != before
        assert _cache._sources() == before

    def test_a_process_whose_sources_were_replaced_goes_by_the_text(self, run, monkeypatch):
        read, next_version = _cache._SOURCES, "of the next version"
        monkeypatch.setattr(_cache, "_sources", lambda: next_version)
        np.testing.assert_array_equal(run(2.0), 2 * X)
        monkeypatch.setattr(_cache, "_SOURCES", next_version)
        np.testing.assert_array_equal(run(3.0), 3 * X)  # as the next version has it
        monkeypatch.setattr(_cache, "_SOURCES", read)
        monkeypatch.setattr(_cache, "_sources", lambda: read)
        np.testing.assert_array_equal(run(4.0), 4 * X)


class TestWhoseCode:
    """A program with any code that is not the library's has no description."""

    PROGRAM = Program(DenseFactory((5,), "silu"), LOSSES["density"], in_size=3)

    def test_the_librarys_own(self):
        assert "silu" in self.PROGRAM.description
        others = [
            replace(self.PROGRAM, network=DenseFactory((5,), "silu", amplitude=0.5)),
            replace(self.PROGRAM, objective=LOSSES["crps"]),
            replace(self.PROGRAM, components=2),
            replace(self.PROGRAM, network=Around(DenseFactory((5,), "silu"), 0)),
        ]
        assert len({program.description for program in [self.PROGRAM, *others]}) == 5

    def test_code_of_users(self, monkeypatch):
        class Own(LOSSES["density"]):
            pass

        class OwnFactory(DenseFactory):
            pass

        def network(in_size, out_size, *, key):
            return DenseFactory()(in_size, out_size, key=key)

        class OwnProgram(Program):
            def _training_loss(self, *given):
                loss, predicted = super()._training_loss(*given)
                return 2 * loss, predicted

        for change in ({"objective": Own}, {"network": OwnFactory()}, {"network": network}):
            assert replace(self.PROGRAM, **change).description is None
        assert OwnProgram(**self.PROGRAM.__getstate__()).description is None
        around = replace(self.PROGRAM, network=Around(network, 0))
        assert around.description is None

    def test_parts_of_the_library_that_were_replaced(self, monkeypatch):
        def own(*_, **__):
            return 0.0

        for place, name, part in (
            (ACTIVATIONS, "silu", Activation(own)),
            (SCHEDULES, "exponential", own),
        ):
            with monkeypatch.context() as patch:
                patch.setitem(place, name, part)
                assert replace(self.PROGRAM).description is None
        monkeypatch.setattr(LOSSES["density"], "loss", staticmethod(own))
        assert replace(self.PROGRAM).description is None
        wrapped = functools.wraps(losses.qd_plus)(own)  # has the name of the library's own
        monkeypatch.setattr(LOSSES["qd+"], "loss", staticmethod(wrapped))
        assert replace(self.PROGRAM, objective=LOSSES["qd+"]).description is None

    @pytest.mark.parametrize(
        "change",
        [
            lambda patch: patch.setitem(ACTIVATIONS, "relu", Activation(jax.nn.leaky_relu)),
            lambda patch: patch.setitem(HEADS, "free", HEADS["ordered"]),
            lambda patch: patch.setitem(SCHEDULES, "cosine", SCHEDULES["constant"]),
            lambda patch: patch.setattr(LOSSES["qd+"], "head", "ordered"),
            lambda patch: patch.setattr(LOSSES["qd+"], "loss", staticmethod(losses.qd_paper)),
        ],
        ids=["activation", "head", "schedule", "head of the loss", "loss"],
    )
    def test_another_part_of_the_library_under_the_same_name(self, change, monkeypatch):
        network = DenseFactory((5,), "relu")
        program = Program(network, LOSSES["qd+"], in_size=3, schedule="cosine")
        before, code = program.description, program.code
        change(monkeypatch)
        assert program.description != before
        assert program.code != code


class Times(type(HEADS["point"])):
    """A point in units of one's own."""

    name = "times"

    def __init__(self, factor):
        self.factor = factor

    def parameters(self, raw):
        return (self.factor * raw[..., 0],)


def double(x):
    return 2 * x


def trained(program):
    """Weights after a few epochs."""
    x = np.linspace(-1, 1, 60)[:, None]
    table = bank.Table.from_arrays(x, np.sin(4 * x[:, 0]))
    plan = bank.Plan(1, np.arange(60), settings=bank.Settings(epochs=3))
    return bank.train(program, table, [plan], n_jobs=1).weights[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("place", "first", "second"),
    [
        (HEADS, Times(1.0), Times(10.0)),
        (ACTIVATIONS, Activation(jax.nn.elu), Activation(jax.nn.hard_tanh)),
    ],
    ids=["head", "activation"],
)
@pytest.mark.parametrize("new_process", [False, True])
def test_what_is_registered_again_is_trained_again(
    place, first, second, new_process, folder, monkeypatch
):
    found = []
    for part in (first, second, first):
        monkeypatch.setitem(HEADS, "times", HEADS["point"])
        monkeypatch.setitem(ACTIVATIONS, "times", Activation(double))
        monkeypatch.setitem(place, "times", part)
        if new_process or not found:
            monkeypatch.setattr(_cache, "_compiled", OrderedDict())
        network = DenseFactory((4,), "times")
        found.append(trained(Program(network, LOSSES["mse"], in_size=1, head="times")))
    assert not np.array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


PROGRAM = """
import sys
from dataclasses import dataclass
import jax, numpy as np
from calipers.bank import _cache

@dataclass(frozen=True)
class Sine:
    def run(self, x):
        return jax.numpy.sin(x) @ x

done = []
compile_ = jax.stages.Lowered.compile
jax.stages.Lowered.compile = lambda *a, **k: done.append(a) or compile_(*a, **k)
x = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
sys.stdin.readline()
for device in map(int, sys.argv[1:]):
    done.clear()
    _cache._compiled.clear()
    with jax.default_device(jax.devices()[device]):
        y = _cache.compiled(Sine().run, (x,))(x)
    print(len(jax.devices()), y.devices().pop().id, len(done), float(y.sum()))
"""


def start(folder, devices=1, chosen=(0,)):
    """A process that runs a program on some of its devices when it has read a line."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, chosen)],
        env=os.environ | {"CALIPERS_CACHE": str(folder.parent), "XLA_FLAGS": flags},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(process):
    """Devices of a process, the one it ran on, compilations and the result, for each run."""
    out, _ = process.communicate("go\n", timeout=600)
    assert process.returncode == 0
    runs = [line.split() for line in out.splitlines()]
    return [(int(devices), int(chosen), int(n), total) for devices, chosen, n, total in runs]


@pytest.mark.slow  # test_campaigns.py has a fast share of such races
def test_processes_at_once(folder):
    processes = [start(folder) for _ in range(2)]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    (first,), (second,) = (finish(process) for process in processes)
    assert first[3] == second[3]
    entry(folder)  # the only file: nothing half written stays
    assert finish(start(folder))[0][2] == 0


@pytest.mark.long
def test_the_devices_of_a_process_belong_to_a_program(folder):
    """Each run finds no program in memory, as a new process would not."""
    processes = [(2, (0, 1, 0, 1)), (1, (0, 0))]
    found = [run for process in processes for run in finish(start(folder, *process))]
    assert [run[:2] for run in found] == [(2, 0), (2, 1), (2, 0), (2, 1), (1, 0), (1, 0)]
    assert [run[2] for run in found] == [1, 1, 0, 0, 1, 0]
    assert len({run[3] for run in found}) == 1
