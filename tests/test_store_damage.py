"""What can happen to the store's file: killed writers, full disks, no access, newer versions, damage. Nothing is lost that
was shown, nothing is overwritten, and whoever measures goes on."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store import DEVICE, SWEEP, finished, point

from attnlab.database import SCHEMA_VERSION, alone, check, set_aside
from attnlab.run import Run
from attnlab.store import Store

ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534
KILLS = 100

# One process that has everything imported forks a writer for each line it reads: a home and a run id. A writer shows a
# point, as the lab does, only when the store has returned.
WRITERS = f"""
import itertools, os, sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
from test_store import DEVICE, Run, Store, SWEEP, point
for line in sys.stdin:
    home, run_id = line.split()
    if pid := os.fork():
        os.waitpid(pid, 0)
        print("ended", flush=True)
        continue
    os.write(1, b"writer %d\\n" % os.getpid())
    store = Store(home)
    store.create_run(Run(id=run_id, sweep=SWEEP, state="running", created="2026-11-30"))
    store.start(run_id, DEVICE)
    for n in itertools.count():
        data = point("flash", 128, samples_ms=(1.5,) * 400).to_json()  # pages enough for a checkpoint now and then
        store.event(run_id, "measurement", data | {{"n": n}})
        os.write(1, b"shown %d\\n" % n)
"""


def in_fresh_python(code: str, *words: str, **how) -> subprocess.CompletedProcess:
    head = f"import sys\nsys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]\nfrom test_store import *\n"
    return subprocess.run(
        [sys.executable, "-c", head + code, *words], capture_output=True, text=True, timeout=60, **how
    )


def integrity(home: Path) -> str:
    with sqlite3.connect(home / "attnlab.db") as db:
        return db.execute("PRAGMA integrity_check").fetchone()[0]


def test_killed_at_any_moment_it_holds_every_point_that_was_shown(tmp_path):
    rng = random.Random(7)
    writers = subprocess.Popen(
        [sys.executable, "-c", WRITERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        for n in range(KILLS):
            home = tmp_path / f"home{n % 20}"  # a file is made anew twenty times, and killed over again five
            writers.stdin.write(f"{home} r{n}\n")
            writers.stdin.flush()
            said, pid = writers.stdout.readline().split()
            assert said == "writer"
            shown, writes = [], rng.choice((0, rng.randrange(1, 20)))
            while len(shown) < writes:  # half of the kills fall among the writes, however busy the machine is
                shown.append(int(writers.stdout.readline().split()[1]))
            time.sleep(rng.uniform(0, 0.01))
            os.kill(int(pid), signal.SIGKILL)
            while (line := writers.stdout.readline()) != "ended\n":
                shown.append(int(line.split()[1]))
            store = Store(home)
            assert store.problem == ""
            assert integrity(home) == "ok"
            run, kept = store.load(f"r{n}"), [data["n"] for _, _, data in store.events(f"r{n}")]
            assert kept == list(range(len(kept))) and kept[: len(shown)] == shown  # at most one that was not shown yet
            assert len(kept) - len(shown) <= 1
            assert run is None or run.state == "cancelled"
            assert run is not None or not shown
            store.close()
    finally:
        writers.kill()
        writers.communicate()


def test_a_killed_server_shows_again_what_its_lab_had_shown(tmp_path):
    """The same through the lab: the points of its last snapshot are those that the next server finds."""
    code = f"""
import json, os
from attnlab.lab import Lab
lab = Lab(Store({str(tmp_path)!r}), worker_command={[sys.executable, "-u", str(ROOT / "tests" / "fake_worker.py")]!r})
run_id = lab.submit(replace(SWEEP, refine=False, budget_s=600))
while len((snapshot := lab.snapshot(run_id)).run.measurements) < 3:
    lab.changed(snapshot.version, 1)
print(run_id, json.dumps([m.to_json() for m in snapshot.run.measurements]), flush=True)
os.kill(os.getpid(), 9)
"""
    ran = in_fresh_python(code, env={**os.environ, "FAKE_WORKER": json.dumps({"delay_s": 0.05})})
    run_id, _, shown = ran.stdout.partition(" ")
    run = Store(tmp_path).load(run_id)
    assert run.state == "cancelled" and ran.returncode == -signal.SIGKILL
    kept = [m.to_json() for m in run.measurements]
    assert [m for m in json.loads(shown) if m not in kept] == []


# No room


FULL = """
import resource
store = Store(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))  # no file may grow beyond that: to SQLite a disk that is full
store.create_run(Run(id="r9", sweep=SWEEP, state="running", created="2026-11-30"))
for n in range(200):
    store.event("r9", "measurement", point("flash", 128, n + 1.0, samples_ms=(1.5,) * 400).to_json())
assert "cannot be written any more" in store.problem and "\\n" not in store.problem, store.problem
assert len(store.events("r9")) == 200
run = store.load("r9")
assert run.get("flash", 128).device_ms == 200.0, "what came after the disk was full is there"
assert store.load("r1").state == "done", "and what stood in the file"
"""


def test_a_disk_that_fills_up_costs_the_history_and_no_point(tmp_path):
    store = Store(tmp_path)
    finished(store, "r1")
    store.close()
    ran = in_fresh_python(FULL, str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert integrity(tmp_path) == "ok"
    again = Store(tmp_path)
    assert again.problem == "" and again.load("r1").state == "done" and again.load("r9").state == "cancelled"
    assert again.events("r9"), "what fitted"


@pytest.fixture
def impatient(monkeypatch):
    """Nobody waits for a lock, and the way back is tried at every write."""
    monkeypatch.setattr("attnlab.database.BUSY_TIMEOUT_S", 0.1)
    monkeypatch.setattr("attnlab.keeper.COME_BACK_S", 0.0)


def test_a_lock_of_another_program_costs_nothing_once_it_is_let_go(tmp_path, impatient):
    store = Store(tmp_path)
    finished(store, "r1")
    store.create_run(Run(id="r2", sweep=SWEEP, state="running", created="2026-11-30"))
    with sqlite3.connect(tmp_path / "attnlab.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        store.event("r2", "measurement", point("flash", 128, 1.5).to_json())
        store.label("r1", "while it was locked", "")
        assert "locked" in store.problem and "unless the file can be used again" in store.problem
        assert store.load("r2").get("flash", 128).device_ms == 1.5 and store.load("r1").name == "while it was locked"
        other.execute("ROLLBACK")
        store.event("r2", "measurement", point("flash", 256, 2.5).to_json())
    other.close()
    assert store.problem == "" and integrity(tmp_path) == "ok"
    for reader in (store, Store(tmp_path)):
        assert [m.device_ms for m in reader.load("r2").measurements] == [1.5, 2.5]
        assert reader.load("r1").name == "while it was locked"


def test_what_was_missed_is_written_when_the_program_ends(tmp_path, impatient, monkeypatch):
    store = Store(tmp_path)
    with sqlite3.connect(tmp_path / "attnlab.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        finished(store, "r1")
        assert "locked" in store.problem
        other.execute("ROLLBACK")
    other.close()
    monkeypatch.setattr(store._keeper, "_next_try", time.monotonic() + 60)
    store.close()
    assert Store(tmp_path).load("r1").state == "done"


def test_a_store_that_was_locked_from_the_start_shows_the_history_later(tmp_path, impatient):
    finished(first := Store(tmp_path), "r1")
    first.close()
    with sqlite3.connect(tmp_path / "attnlab.db", isolation_level=None) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE runs SET note = note")
        store = Store(tmp_path)
        finished(store, "r2")
        assert store.problem
    other.close()
    finished(store, "r3")
    assert store.problem == "" and {run.id for run in store.recent()} == {"r1", "r2", "r3"}


def test_a_folder_that_is_deleted_meanwhile_is_said_and_costs_no_run(tmp_path):
    store = Store(tmp_path / "home")
    finished(store, "r1")
    shutil.rmtree(tmp_path / "home")
    finished(store, "r2")
    assert "it was deleted" in store.problem and "kept in memory" in store.problem
    assert [store.load(run_id).state for run_id in ("r1", "r2")] == ["done", "done"]


def test_a_disk_that_is_full_from_the_start_leaves_a_store_in_memory(tmp_path):
    code = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
store = Store(sys.argv[1])
assert "memory" in store.problem and "\\n" not in store.problem, store.problem
finished(store, "r1")
assert store.load("r1").state == "done"
"""
    ran = in_fresh_python(code, str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    finished(later := Store(tmp_path), "r1")
    assert later.problem == "" and later.load("r1").state == "done"  # there is room again


# No access


@pytest.fixture
def common_folder():
    """A folder that every user can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="attnlab-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def mere_user(common_folder):
    """The rest of the test has no more rights than a user; root could write anywhere."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def read_only(folder: Path) -> dict[str, bytes]:
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def before_rights_go(folder: Path) -> dict[str, bytes]:
    store = Store(folder)
    finished(store, "r1")
    store.close()
    return read_only(folder)


@pytest.fixture
def read_only_folder(common_folder):
    yield common_folder, before_rights_go(common_folder)
    common_folder.chmod(0o755)


def test_a_read_only_directory_is_left_as_it_is(read_only_folder, mere_user):
    folder, before = read_only_folder
    store = Store(folder)
    finished(store, "r2")
    assert "memory" in store.problem and "\n" not in store.problem and str(folder) in store.problem
    assert store.load("r2").state == "done"
    assert contents(folder) == before


def test_a_directory_that_may_not_be_made_leaves_a_store_in_memory(read_only_folder, mere_user):
    store = Store(read_only_folder[0] / "below" / "that")
    finished(store, "r2")
    assert "Permission denied" in store.problem and store.load("r2").state == "done"


# Not ours


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_file_of_a_newer_version_is_not_written_to(tmp_path, journal):
    path = tmp_path / "attnlab.db"
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA journal_mode = {journal}")
        db.execute("CREATE TABLE runs (id TEXT, what_is_new TEXT)")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    before = path.read_bytes()
    store = Store(tmp_path)
    finished(store, "r1")
    said = f"schema {SCHEMA_VERSION + 1} was written by a newer AttnLab; this one knows {SCHEMA_VERSION}"
    assert said in store.problem and "\n" not in store.problem
    assert store.load("r1").state == "done"
    store.close()
    assert path.read_bytes() == before and not list(tmp_path.glob("*damaged*"))


def test_a_database_of_another_program_is_not_written_to(tmp_path):
    path = tmp_path / "attnlab.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
    db.close()
    before = path.read_bytes()
    store = Store(tmp_path)
    finished(store, "r1")
    assert "database of another program" in store.problem and store.load("r1").state == "done"
    assert path.read_bytes() == before


# Damage


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a file with 40 runs."""
    home = tmp_path_factory.mktemp("whole")
    store = Store(home)
    for n in range(40):
        finished(store, f"r{n}")
    store.close()
    return (home / "attnlab.db").read_bytes()


@settings(max_examples=60)
@given(data=st.data())
def test_whatever_is_in_the_file_it_opens_and_what_was_there_is_kept(whole, data):
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        at, length = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.sampled_from((1, 100, 4096, 20_000)))
        damaged[at : at + length] = data.draw(st.sampled_from((b"\0", b"\xff", b"x"))) * len(damaged[at : at + length])
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged) - 1)) :]
    home = Path(tempfile.mkdtemp())
    try:
        (home / "attnlab.db").write_bytes(damaged)
        store = Store(home)
        finished(store, "new1")
        assert store.load("new1").state == "done" and (store.problem + "-").isprintable()
        for n in range(40):
            if (run := store.load(f"r{n}")) is not None:
                assert run.sweep.paths
            assert isinstance(store.events(f"r{n}"), list)
        store.recent()
        store.find_answer(SWEEP, DEVICE.key)
        store.close()
        if store.problem:
            assert bytes(damaged) in contents(home).values(), "nothing of it was overwritten"
    finally:
        shutil.rmtree(home)


def a_page_of(whole: bytes, table: str) -> int:
    """The offset of a page in the midst of a table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "whole.db"
        path.write_bytes(whole)
        with sqlite3.connect(path) as db:
            size = db.execute("PRAGMA page_size").fetchone()[0]
            try:
                pages = db.execute(
                    "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf'", (table,)
                ).fetchall()
            except sqlite3.OperationalError:
                pytest.skip("this SQLite cannot say where a table's pages are")
        db.close()
    return (pages[len(pages) // 2][0] - 1) * size


@pytest.mark.parametrize("name", [b"seconds REAL", b"CREATE INDEX events_by_run", b"index", b"note TEXT"])
@pytest.mark.parametrize("with_what", [b"\xff", b"x", b"\n", b"\x1b"])
def test_a_schema_that_is_damaged_is_a_damaged_file(whole, tmp_path, name, with_what):
    damaged = whole.replace(name, with_what + name[1:])
    assert damaged != whole
    (tmp_path / "attnlab.db").write_bytes(damaged)
    store = Store(tmp_path)
    finished(store, "new1")
    assert store.load("new1").state == "done" and (store.problem + "-").isprintable()
    assert damaged in contents(tmp_path).values() or not store.problem
    store.close()


def test_a_damaged_page_costs_the_rows_on_it(whole, tmp_path):
    damaged = bytearray(whole)
    at = a_page_of(whole, "events")
    damaged[at : at + 4096] = b"\xff" * 4096
    (tmp_path / "attnlab.db").write_bytes(damaged)
    store = Store(tmp_path)
    assert "was damaged" in store.problem and "can still be read" in store.problem
    kept = [len(store.events(f"r{n}")) for n in range(40)]
    assert kept[0] == kept[39] == 4 and 100 < sum(kept) < 160  # before and behind the page
    assert store.load("r0").get("flash", 256) == point("flash", 256)
    (aside,) = tmp_path.glob("*damaged*[0-9]")
    assert aside.read_bytes() == damaged
    store.close()
    assert Store(tmp_path).problem == "" and integrity(tmp_path) == "ok"


def test_a_file_that_is_damaged_while_a_run_is_measured_costs_no_point_of_it(whole, tmp_path):
    path = tmp_path / "attnlab.db"
    path.write_bytes(whole)
    store = Store(tmp_path)
    assert store.problem == ""
    store.create_run(Run(id="now", sweep=SWEEP, state="running", created="2026-11-30"))
    store.event("now", "measurement", point("flash", 128).to_json())
    at = a_page_of(whole, "events")
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 4096)
    store._keeper.db.execute("PRAGMA shrink_memory")  # as if the pages had left SQLite's cache
    for n in range(40):
        store.events(f"r{n}")
    store.event("now", "measurement", point("flash", 256).to_json())
    assert "was damaged" in store.problem
    run = store.load("now")
    assert run.get("flash", 128) and run.get("flash", 256)
    assert Store(tmp_path).load("now").get("flash", 256), "on the disk again"


OTHER = """
store = Store(sys.argv[1])
finished(store, "other7")
print("open", flush=True)
sys.stdin.read()
finished(store, "late8")
"""


def test_two_programs_that_find_the_same_damage_go_on_in_one_file(whole, tmp_path, monkeypatch):
    """The second comes in the moment in which the first sets the damaged file aside: it must neither set its successor
    aside nor be left with a file that nobody will look at again."""
    path = tmp_path / "attnlab.db"
    damaged = bytearray(whole)
    at = a_page_of(whole, "events")
    damaged[at : at + 4096] = b"\xff" * 4096
    path.write_bytes(damaged)
    others = []

    def meanwhile(damaged_path):
        head = f"import sys\nsys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]\nfrom test_store import *\n"
        others.append(other := subprocess.Popen([sys.executable, "-c", head + OTHER, str(tmp_path)],
                                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))  # fmt: skip
        select.select([other.stdout], [], [], 3.0)  # until it has opened the file, unless it waits for us
        return set_aside(damaged_path)

    monkeypatch.setattr("attnlab.keeper.set_aside", meanwhile)
    store = Store(tmp_path)
    assert "was damaged" in store.problem
    finished(store, "mine9")
    (other,) = others
    assert other.stdout.readline() == "open\n"
    other.communicate()
    again = Store(tmp_path)
    assert again.problem == "" and integrity(tmp_path) == "ok"
    assert [run_id for run_id in ("r0", "other7", "late8", "mine9") if again.load(run_id) is None] == []
    (aside,) = tmp_path.glob("*damaged*[0-9]")
    assert aside.read_bytes() == damaged


def test_a_folder_that_somebody_keeps_to_himself_for_ever_does_not_stop_the_measuring(tmp_path, monkeypatch):
    monkeypatch.setattr("attnlab.database.BUSY_TIMEOUT_S", 0.2)
    with alone(tmp_path):
        store = Store(tmp_path)
        finished(store, "r1")
        store.close()
    assert store.problem == "" and Store(tmp_path).load("r1").state == "done"


def test_cells_that_hold_nonsense_hide_no_other_run(tmp_path):
    store = Store(tmp_path)
    for n in range(1, 6):
        finished(store, f"r{n}")
    store.remember_device(["worker"], DEVICE, ())
    store.create_run(Run(id="r9", sweep=SWEEP, state="running", created="2026-11-30T00:00:09"))
    for n in (6, 7, 8):
        finished(store, f"r{n}")
    store.close()
    deep = "[" * 100_000
    with sqlite3.connect(tmp_path / "attnlab.db") as db:
        db.execute("UPDATE runs SET sweep = '3' WHERE id = 'r1'")
        db.execute("UPDATE runs SET sweep = '{\"seqs\": 7, \"paths\": []}' WHERE id = 'r2'")
        db.execute("UPDATE runs SET device = '[]' WHERE id = 'r3'")
        db.execute("UPDATE runs SET sweep = ? WHERE id = 'r4'", (deep,))
        db.execute("UPDATE runs SET state = 'asleep' WHERE id = 'r6'")
        db.execute("UPDATE runs SET created = 'long ago' WHERE id = 'r7'")
        db.execute("UPDATE runs SET seconds = 'many' WHERE id = 'r8'")
        db.execute("UPDATE runs SET owner = ? WHERE id = 'r9'", (deep,))
        db.execute("UPDATE events SET data = 'null' WHERE run_id = 'r5' AND id % 2")
        db.execute("UPDATE devices SET device = '[]'")
    again = Store(tmp_path)
    assert again.problem == ""
    assert [again.load(f"r{n}") for n in (1, 2, 3, 4, 6, 7, 8)] == [None] * 7
    assert len(again.load("r5").measurements) == 2 and [run.id for run in again.recent()] == ["r9", "r5"]
    assert again.load("r9").state == "cancelled" and "unknown" in again.load("r9").reason
    assert again.find_answer(SWEEP, DEVICE.key) is None and again.last_device(["worker"]) is None
    with sqlite3.connect(tmp_path / "attnlab.db") as db:
        check(db)
