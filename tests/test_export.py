import csv
import io
import json
import math
import os
from dataclasses import replace

import looks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import F25, f25_point

from attnlab import export, tabular
from attnlab.finding import Finding
from attnlab.measurement import STATUSES
from attnlab.run import label
from attnlab.sweep import TASKS, TIME


def run_of(*points, **more):
    return replace(F25, measurements=points, **more)


def strict(text):
    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_is_strict_with_null_beside_the_status():
    data = strict(export.run_to_text(F25))
    assert data == export.run_to_json(F25)
    assert data["run"]["device"]["name"] == "NVIDIA H200"
    states = {(m["path"], m["seq_kv"]): (m["status"], m["device_ms"]) for m in data["measurements"]}
    assert states["standard", 1024] == ("ok", 0.12)
    assert states["standard", 65_536] == ("oom", None)
    assert states["standard", 131_072] == ("skipped", None)


def test_measurement_fields_that_readers_rely_on():
    fields = (
        "path provider batch seq_q seq_kv heads kv_heads head_dim dtype causal direction status reason device_ms"
        " device_ms_low device_ms_high samples wall_ms first_call_s peak_bytes flops min_bytes"
    )
    assert set(fields.split()) <= set(export.run_to_json(F25)["measurements"][0])


def test_round_trip_is_exact():
    assert export.run_from_text(export.run_to_text(F25)) == F25
    assert export.run_from_text(export.run_to_text(F25).encode(), recorded=False) == replace(F25, recorded=False)
    bare = run_of(device=None)
    assert export.run_from_text(export.run_to_text(bare)) == bare


numbers = st.floats(min_value=1e-9, max_value=1e12)
some = st.one_of(st.none(), numbers)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("standard", "flash")), st.sampled_from((1024, 65_536, 131_072)), st.sampled_from(STATUSES)
        ),
        unique_by=lambda t: t[:2],
    ),
    some,
    numbers,
    st.text(max_size=20),
)
def test_any_run_comes_back(points, wall_ms, device_ms, reason):
    measured = dict(wall_ms=wall_ms, device_ms=device_ms, reason=reason)
    run = run_of(*(f25_point(*point, **measured) for point in points))
    assert export.run_from_text(export.run_to_text(run)) == run


def test_a_name_and_a_note_travel_with_the_run():
    evil = '<img src=x onerror=alert(1)> "*b*" \N{CAT FACE}'
    named = run_of(name=evil, note=f"{evil}\n  second line")
    assert export.run_from_text(export.run_to_text(named)) == named
    assert (strict(export.run_to_text(named))["run"]["name"], named.note) == (evil, f"{evil}\n  second line")


def test_a_run_without_a_name_is_a_file_as_it_was():
    assert not {"name", "note"} & set(export.run_to_json(F25)["run"])
    given_nothing = export.run_to_json(F25)
    given_nothing["run"] |= {"name": "", "note": ""}
    assert export.run_from_json(given_nothing) == F25


def test_a_name_from_a_file_is_kept_as_one_that_is_typed():
    data = export.run_to_json(F25)
    data["run"] |= {"name": "  before \n the update ", "note": "\n fans "}
    run = export.run_from_json(data)
    assert (run.name, run.note) == ("before the update", "fans")


@settings(max_examples=40)
@given(st.text(max_size=100), st.text(max_size=200))
def test_any_name_comes_back(name, note):
    name, note = label(name, note)
    named = run_of(name=name, note=note)
    assert export.run_from_text(export.run_to_text(named).encode()) == named


@pytest.mark.parametrize(
    ("what", "value", "most"),
    [("name", "x" * 101, "100"), ("note", "x" * 4_001, "4,000"), ("name", "\ud800", "100"), ("note", None, "4,000"),
     ("name", 7, "100"), ("note", ["x"], "4,000")],
)  # fmt: skip
def test_a_name_that_cannot_be_is_refused_by_the_rules_of_the_page(what, value, most):
    data = export.run_to_json(F25)
    data["run"][what] = value
    with pytest.raises(
        export.ImportRefused, match=f"the {what} is .*; legal: text of at most {most} characters"
    ) as refused:
        export.run_from_json(data)
    assert "\n" not in str(refused.value)


def test_unfinished_run_comes_back_as_ended():
    run = export.run_from_json(export.run_to_json(run_of(state="running", phase="quick")))
    assert (run.state, run.active, run.reason) == ("cancelled", False, "exported while it ran")


def test_csv_has_empty_cells_and_a_status():
    rows = {(r["path"], r["seq_kv"]): r for r in csv.DictReader(io.StringIO(tabular.to_csv(F25)))}
    assert len(rows) == 6
    good, oom = rows["standard", "1024"], rows["standard", "65536"]
    assert (good["status"], good["device_ms"], good["notes"], good["device"]) == ("ok", "0.12", "a; b", "NVIDIA H200")
    assert (oom["status"], oom["device_ms"], oom["peak_bytes"]) == ("oom", "", "")
    assert oom["reason"] == "out of memory, asked for 64 GiB"  # the comma is quoted
    assert (rows["flash", "1024"]["launch_bound"], oom["launch_bound"], oom["causal"]) == ("true", "false", "true")
    assert not {"nan", "inf", "None"} & set(tabular.to_csv(F25).replace("\n", ",").split(","))


def test_csv_holds_no_formula_of_somebody_elses():
    run = run_of(f25_point("standard", 1024, "fault", reason='=HYPERLINK("http://x")', notes=("@SUM(1)",)), id="+1")
    (row,) = csv.DictReader(io.StringIO(tabular.to_csv(run)))
    assert (row["run"], row["reason"], row["notes"]) == ("'+1", '\'=HYPERLINK("http://x")', "'@SUM(1)")


def test_csv_holds_no_nul():
    """The csv module of Python 3.10 cannot write one."""
    (row,) = csv.DictReader(io.StringIO(tabular.to_csv(run_of(f25_point("standard", 1024, "fault", reason="a\0b\0")))))
    assert row["reason"] == "ab"


def test_csv_of_an_empty_run_has_a_header():
    assert tabular.to_csv(run_of()).startswith("run,created,device,driver,cuda,torch,batch,")


def changed(change):
    data = json.loads(export.run_to_text(F25))
    change(data)
    return data


def set_in(*keys, value):
    def change(data):
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    return change


def drop(*keys):
    def change(data):
        for key in keys[:-1]:
            data = data[key]
        del data[keys[-1]]

    return change


FIRST = ("measurements", 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_in("run", value=3), '"run" and "measurements"'),
        (drop("measurements"), "measurements must be a list"),
        (set_in("measurements", value={}), "measurements must be a list"),
        (set_in("measurements", value=[{}] * 10_001), "at most 10,000"),
        (set_in("run", "format", value=2), "format is 2; legal: 1"),
        (drop("run", "id"), "needs id as text"),
        (set_in("run", "created", value=5), "created is 5; legal: text"),
        (set_in("run", "seconds", value="long"), "seconds is 'long'; legal: 0 or a number from 1e-100 to 1.3e+30"),
        (set_in("run", "state", value="asleep"), "legal: queued, running, done, cancelled, failed"),
        (set_in("run", "sweep", value=None), "sweep cannot be read"),
        (set_in("run", "sweep", "seqs", value=7), "sweep cannot be read"),
        (set_in("run", "sweep", "paths", value=["magic"]), "path is 'magic'; legal: standard"),
        (set_in("run", "device", value="H200"), "device must be an object"),
        (drop("run", "device", "uuid"), "device lacks uuid"),
        (set_in("run", "device", "total_bytes", value="big"), "total_bytes is 'big'; legal: a whole number from 0"),
        (set_in("run", "device", "packages", value=[["a"]]), "packages is"),
        (set_in("run", "device", "colour", value="red"), "unknown field 'colour'"),
        (set_in(*FIRST, value=[]), "measurement 1 must be an object"),
        (set_in(*FIRST, "status", value="fine"), "status is 'fine'; legal: ok, oom"),
        (drop(*FIRST, "status"), "measurement 1 lacks status"),
        (drop(*FIRST, "batch"), "lacks batch"),
        (set_in(*FIRST, "device_ms", value="fast"), "legal: 0 or a number from 1e-100 to 1.3e+30 or null"),
        (set_in(*FIRST, "device_ms", value=5e-324), "device_ms is '5e-324'; legal: 0 or a number from 1e-100"),
        (set_in(*FIRST, "device_ms", value=True), "device_ms is True"),
        (set_in(*FIRST, "device_ms", value=-1.0), "device_ms is '-1.0'"),
        (set_in(*FIRST, "device_ms", value=math.inf), "device_ms is 'inf'"),
        (set_in(*FIRST, "device_ms", value=None), "is ok but has no device_ms above 0"),
        (set_in(*FIRST, "device_ms", value=0), "is ok but has no device_ms above 0"),
        (set_in(*FIRST, "samples_ms", value=["x"]), "samples_ms is"),
        (set_in(*FIRST, "samples_ms", value=[math.nan]), "samples_ms is"),
        (set_in(*FIRST, "peak_bytes", value=1.5), "peak_bytes is '1.5'; legal: a whole number from 0 or null"),
        (set_in(*FIRST, "notes", value="text"), "notes is"),
        (set_in(*FIRST, "extra", value=1), "unknown field 'extra'"),
        (set_in(*FIRST, "batch", value=2), "another problem than the run's sweep"),
        (set_in(*FIRST, "path", value="sdpa-math"), "another problem than the run's sweep"),
        (set_in("measurements", 1, value=export.run_to_json(F25)["measurements"][0]), "repeats standard at 1,024"),
    ],
)
def test_bad_file_is_refused_in_one_line(change, words):
    with pytest.raises(export.ImportRefused) as error:
        export.run_from_json(changed(change))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"run": NaN}', "holds NaN"),
        ('{"run": -Infinity}', "holds -Infinity"),
        ("[]", '"run" and "measurements"'),
        (b" " * (export.MAX_TEXT_BYTES + 1), "larger than 32 MiB"),
    ],
)
def test_bad_text_is_refused(text, words):
    with pytest.raises(export.ImportRefused) as error:
        export.run_from_text(text)
    assert words in str(error.value)


def test_overflowing_number_is_refused():
    with pytest.raises(export.ImportRefused, match="device_ms"):
        export.run_from_text(export.run_to_text(F25).replace('"device_ms": 0.12', '"device_ms": 1e999'))


def test_recorded_runs_newest_first(tmp_path):
    old, new = replace(F25, id="old", created="2025-01-01T00:00:00Z"), F25
    (tmp_path / "a.json").write_text(export.run_to_text(old), encoding="utf-8")
    (tmp_path / "b.json").write_text(export.run_to_text(new), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("not a run")
    runs, refusals = export.recorded_runs(tmp_path)
    assert list(runs.items()) == [("b", new), ("a", old)] and refusals == []


def test_a_damaged_recording_is_a_line_and_hides_no_other(tmp_path):
    (tmp_path / "a.json").write_text(export.run_to_text(F25), encoding="utf-8")
    (tmp_path / "b.json").write_text("{}")
    (tmp_path / "c.json").mkdir()
    runs, (no_run, no_file) = export.recorded_runs(tmp_path)
    assert runs == {"a": F25}
    assert no_run.startswith('b.json: this is no run; legal: a JSON object with "run"') and "\n" not in no_run
    assert no_file.startswith("c.json: ") and "\n" not in no_file


def test_a_run_that_ships_was_recorded_on_an_h200_with_both_paths():
    runs, refusals = export.recorded_runs()
    assert refusals == []
    assert all(run.mark.startswith("recorded on NVIDIA H200, ") for run in runs.values())
    timed = [run for run in runs.values() if run.sweep.task == TIME]  # what the live page replays
    assert timed and all("flash" in {m.path for m in run.measurements if m.ok} for run in timed)
    assert all({m.status for m in run.measurements if m.path == "standard"} <= {"ok", "oom"} for run in timed)


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    export.write_run(F25, path)
    assert export.run_from_text(path.read_bytes()) == F25
    whole = path.read_bytes()

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(export.os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        export.write_run(run_of(), path)
    assert path.read_bytes() == whole and list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_written_as_it_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    export.write_run(F25, pipe)
    assert strict(os.read(reader, 1 << 16).decode()) == export.run_to_json(F25)
    os.close(reader)
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("task", [task for task in TASKS if task != TIME])
def test_a_look_at_answers_comes_back(task):
    found = Finding(what="dQ", verdict="fail", text="first at (batch 0, seq 3)", mode="default",
                    values={"relative": None, "nonfinite": 7, "got": -0.5})  # fmt: skip
    points = looks.point("standard", 512, found), looks.point("flash", 512, status="oom", reason="asked for 64 GiB")
    run = looks.look(*points, task=task, seqs=(512,), recorded=True)
    text = export.run_to_text(run)
    assert strict(text)["run"]["sweep"]["task"] == task
    assert export.run_from_text(text) == run


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"findings": "none"}, "measurement 1's findings is 'none'; legal: a list of findings"),
        ({"findings": [3]}, "measurement 1's findings is [3]; legal: a list of findings"),
        ({"findings": [{"what": "O"}]}, "measurement 1: a finding is a JSON object with what, verdict"),
        ({"findings": [{"what": "O", "verdict": "great"}]}, "verdict is 'great'; legal: pass, fail, unsupported"),
        ({"findings": [{"what": "O", "verdict": "pass", "values": {"relative": "x"}}]}, "'relative' is 'x'"),
        ({"findings": []}, "measurement 1 is ok but has no findings"),
    ],
)
def test_bad_findings_are_refused_in_one_line(change, words):
    data = export.run_to_json(looks.exactness(recorded=True))
    data["measurements"][0] |= change
    with pytest.raises(export.ImportRefused) as refused:
        export.run_from_json(data)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_csv_leaves_findings_out():
    assert "finding" not in tabular.to_csv(looks.exactness())
