"""The list of runs: names, notes, deletion and undo, imports, the file of an older version; search and filters."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import replace

import looks
import pytest
from samples import F25, H200
from test_store import DEVICE, SWEEP, finished, point

from attnlab import database, history, store, summary
from attnlab.history import Entry, chosen, entry_of
from attnlab.run import Run
from attnlab.store import KEPT_S, Store


@pytest.fixture
def runs(tmp_path):
    opened = Store(tmp_path)
    yield opened
    opened.close()


def ids(runs):
    return [entry.run.id for entry in runs.entries()]


# In the store


def test_an_entry_says_what_the_run_shows_without_its_points(runs, monkeypatch):
    finished(runs, "r1", standard_256=point("standard", 256, None, "oom", reason="asked for 64 GiB"))
    runs.create_run(Run(id="r2", sweep=SWEEP, state="running", created="2026-11-30T00:00:09"))
    assert [(e.run.id, e.sentence) for e in runs.entries()] == [("r2", ""), ("r1", "")]
    assert runs.describe(10.0)
    monkeypatch.setattr(Store, "load", None)  # from here on no point is read
    going_on, ended = runs.entries()
    assert (going_on.sentence, going_on.status) == ("", "running")
    assert ended.sentence.endswith("standard runs out of memory at 256.") or "host memory at 256" in ended.sentence
    assert ended.status == "3 ok, 1 out of memory" and ended.run.measurements == ()
    assert runs.describe(10.0)  # and nothing is left to do


def test_the_description_ends_when_its_time_is_used_up(runs):
    for n in range(3):
        finished(runs, f"r{n}")
    assert not runs.describe(-1.0)
    assert [e.sentence for e in runs.entries()] == ["", "", ""]
    assert runs.describe(10.0) and all(e.sentence for e in runs.entries())


def test_the_list_sees_what_is_written_here_and_by_others_and_is_nobodys_to_change(runs, tmp_path):
    finished(runs, "r1")
    runs.entries().clear()
    assert ids(runs) == ["r1"]
    other = Store(tmp_path)
    finished(other, "r2")
    assert ids(runs) == ["r2", "r1"]
    other.label("r2", "elsewhere", "")
    assert runs.entries()[0].name == "elsewhere"
    runs.label("r2", "here", "")
    assert runs.entries()[0].name == other.entries()[0].name == "here"
    other.close()


def test_a_name_and_a_note_stay(runs, tmp_path):
    finished(runs, "r1")
    runs.label("r1", "  before \n the update ", "fans at 100 %\n<b>loud</b>")
    (entry,) = Store(tmp_path).entries()
    assert (entry.name, entry.note, entry.title) == (
        "before the update",
        "fans at 100 %\n<b>loud</b>",
        "before the update",
    )


@pytest.mark.parametrize(("name", "note"), [("x" * 101, ""), ("", "x" * 4_001), ("\ud800", "")])
def test_a_label_that_cannot_be_is_refused_in_one_line(runs, name, note):
    finished(runs, "r1")
    with pytest.raises(ValueError, match="legal: text of at most") as refused:
        runs.label("r1", name, note)
    assert "\n" not in str(refused.value) and runs.entries()[0].name == ""


def test_deleted_runs_are_hidden_together_and_come_back_together(runs):
    for n in range(4):
        finished(runs, f"r{n}")
    runs.delete(["r0"])
    runs.delete(["r2", "r3"])
    assert ids(runs) == ["r1"] and runs.deleted_count() == 3 and [run.id for run in runs.recent()] == ["r1"]
    runs.undo_delete()
    assert ids(runs) == ["r3", "r2", "r1"] and runs.load("r2").get("flash", 256).ok
    runs.undo_delete()
    assert ids(runs) == ["r3", "r2", "r1", "r0"] and runs.deleted_count() == 0
    runs.undo_delete()  # nothing to do


def test_a_run_that_goes_on_cannot_be_deleted(runs):
    runs.create_run(Run(id="r1", sweep=SWEEP, state="running", created="2026-11-30"))
    runs.delete(["r1"])
    assert ids(runs) == ["r1"] and runs.deleted_count() == 0


def test_what_was_deleted_a_day_ago_is_gone_at_the_next_start(runs, tmp_path, monkeypatch):
    finished(runs, "r1")
    finished(runs, "r2")
    then = time.time() - KEPT_S - 1
    monkeypatch.setattr(store.time, "time", lambda: then)
    runs.delete(["r1"])
    monkeypatch.undo()
    runs.delete(["r2"])
    runs.close()
    again = Store(tmp_path)
    assert again.load("r1") is None and again.events("r1") == []
    assert again.load("r2") is not None and again.deleted_count() == 1


def test_a_deleted_run_answers_no_question(runs):
    finished(runs, "r1")
    assert runs.find_answer(SWEEP, DEVICE.key).id == "r1"
    runs.delete(["r1"])
    assert runs.find_answer(SWEEP, DEVICE.key) is None


def test_an_imported_run_comes_back_as_it_was_and_is_marked(runs, tmp_path):
    assert runs.add(F25) == "added"
    again = Store(tmp_path)
    assert again.load("r1") == F25 and again.load("r1").mark == "recorded on NVIDIA H200, 2026-11-30"
    assert again.add(replace(F25, measurements=())) == "known" and again.load("r1") == F25
    again.delete(["r1"])
    assert again.add(F25) == "restored" and ids(again) == ["r1"]


def test_a_name_and_a_note_come_in_with_a_run_and_go_out_with_it(runs, tmp_path):
    named = replace(F25, name="before the update", note="fans at 100 %\n<b>loud</b>")
    assert runs.add(named) == "added" and runs.load("r1") == named
    (entry,) = Store(tmp_path).entries()
    assert (entry.name, entry.note) == (named.name, named.note)
    assert runs.add(replace(named, name="another")) == "known" and runs.load("r1") == named, (
        "what is here is not renamed"
    )
    runs.label("r1", "mine", "")
    runs.delete(["r1"])
    assert runs.add(named) == "restored" and runs.load("r1").name == "mine"


def test_an_imported_run_answers_no_question(runs):
    finished(runs, "r1")
    run = runs.load("r1")
    runs.delete(["r1"])
    runs.add(replace(run, id="r2"))
    assert runs.load("r2").device.key == DEVICE.key and runs.find_answer(SWEEP, DEVICE.key) is None


def test_an_import_that_fails_half_way_leaves_nothing(runs, monkeypatch):
    real, calls = store.dump, []

    def fail_late(data):
        calls.append(data)
        if len(calls) > 6:  # the run's own row is in by then
            raise ValueError("no room")
        return real(data)

    monkeypatch.setattr(store, "dump", fail_late)
    with pytest.raises(ValueError, match="no room"):
        runs.add(F25)
    monkeypatch.undo()
    assert ids(runs) == [] and runs.add(F25) == "added"


def test_a_store_in_memory_lists_and_deletes_too(tmp_path):
    (tmp_path / "file").write_text("")
    memory = Store(tmp_path / "file" / "below")
    finished(memory, "r1")
    assert memory.describe(10.0) and memory.entries()[0].sentence
    memory.delete(["r1"])
    assert memory.entries() == []


# A file of an older version


def old_file(path):
    """As the first version wrote it, with one run in it."""
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(database.FIRST_SCHEMA)
    db.execute("PRAGMA user_version = 1")
    row = store.row_of(replace(F25, id="old"))
    del row["imported"]
    db.execute(f"INSERT INTO runs ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})", row)
    events = [("old", 0.0, "measurement", store.dump(m.to_json())) for m in F25.measurements]
    db.executemany(store.INSERT_EVENT, events)
    return db


def schema(db):
    return [tuple(row) for row in db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name")]


def test_an_older_file_is_brought_up_to_date_with_all_that_is_in_it(tmp_path):
    old_file(tmp_path / "attnlab.db").close()
    opened = Store(tmp_path)
    assert opened.problem == ""
    assert opened.load("old") == replace(F25, id="old", recorded=False)
    assert opened.describe(10.0) and opened.entries()[0].sentence == summary.sentence(opened.load("old"))
    with sqlite3.connect(tmp_path / "attnlab.db") as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == database.SCHEMA_VERSION
        (tmp_path / "new").mkdir()
        Store(tmp_path / "new").close()
        assert schema(db) == schema(sqlite3.connect(tmp_path / "new" / "attnlab.db"))


def test_a_program_of_the_older_version_goes_on_beside_this_one(tmp_path):
    db = old_file(tmp_path / "attnlab.db")
    opened = Store(tmp_path)
    row = store.row_of(replace(F25, id="later", created="2026-12-01"))
    del row["imported"]
    db.execute(f"INSERT INTO runs ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})", row)
    assert ids(opened) == ["later", "old"]


def test_an_upgrade_that_fails_changes_nothing(tmp_path, monkeypatch):
    old_file(tmp_path / "attnlab.db").close()
    step = f"{database.STEPS[1]}CREATE UNIQUE INDEX one ON events(kind);\n"  # all events in there are of one kind
    monkeypatch.setattr(database, "STEPS", (database.FIRST_SCHEMA, step))
    with sqlite3.connect(tmp_path / "attnlab.db") as db:
        before = schema(db)
    assert "cannot be used" in Store(tmp_path).problem
    with sqlite3.connect(tmp_path / "attnlab.db") as db:
        assert schema(db) == before and db.execute("PRAGMA user_version").fetchone()[0] == 1


def test_a_damaged_file_of_the_older_version_is_not_changed(tmp_path):
    path = tmp_path / "attnlab.db"
    db = old_file(path)
    db.executemany(store.INSERT_EVENT, [("old", 0.0, "note", "x" * 500)] * 200)
    db.close()
    content = bytearray(path.read_bytes())
    content[-8192:-4096] = b"\xff" * 4096  # a page in the middle of the events
    path.write_bytes(content)
    opened = Store(tmp_path)
    assert "damaged" in opened.problem and opened.load("old").device == F25.device
    (aside,) = tmp_path.glob("*damaged*")
    assert aside.read_bytes() == content


# Search and filters


ENTRIES = (
    entry_of(F25),
    entry_of(looks.exactness(device=replace(H200, name="NVIDIA A100", torch="2.11.0"))),
    Entry(run=replace(F25, id="named", device=None, measurements=(), name="The *fast* one", note="café")),
)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [0, 1, 2]),
        ({"search": "  H200 "}, [0]),
        ({"search": "a100 exactness"}, [1]),
        ({"search": "fast CAFÉ"}, [2]),
        ({"search": "out memory flash-attn-4"}, [0]),
        ({"search": "'; drop table runs; --"}, []),
        ({"devices": ("NVIDIA A100", "unknown device")}, [1, 2]),
        ({"paths": ("flash",)}, [0, 1, 2]),
        ({"paths": ("sdpa-math",)}, []),
        ({"shapes": (ENTRIES[0].shape,)}, [0, 2]),
        ({"shapes": (ENTRIES[0].shape,), "devices": ("NVIDIA H200",)}, [0]),
    ],
)
def test_what_is_chosen(wanted, found):
    assert chosen(ENTRIES, **wanted) == [ENTRIES[i] for i in found]


def test_an_entry_in_words():
    first = ENTRIES[0]
    assert first.versions == "torch 2.11.0+cu130 · flash-attn-4 4.0.0b36"
    assert first.status == "4 ok, 1 out of memory, 1 skipped"
    assert first.shape == "batch 1, heads 8 over 2, dim 64, bfloat16, causal"
    assert (first.title, ENTRIES[2].title) == ("NVIDIA H200, 2026-11-30", "The *fast* one")
    assert ENTRIES[1].shape.endswith("bfloat16, exactness") and ENTRIES[2].versions == ""
    decode = replace(F25.sweep, seq_q=1, problem=replace(F25.sweep.problem, causal=False))
    assert history.shape(decode).endswith("bfloat16, queries 1")
