"""Nonsense at every door: a problem's fields, the command line, the address, files of runs, lines of a worker. Each time there
is either what was asked for or one line that names what is legal; never another exception, and never a page that fails."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import sys
import tempfile
import time
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from conftest import components, figure_of
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from samples import F25
from streamlit.testing.v1 import AppTest

from attnlab import (
    arguments,
    checked,
    cli,
    cost,
    export,
    figures,
    growth,
    ladder,
    protocol,
    summary,
    table,
    tabular,
    units,
)
from attnlab.export import ImportRefused, run_from_json, run_from_text
from attnlab.lab import Lab
from attnlab.measurement import Measurement
from attnlab.paths import FAULTS, PATHS
from attnlab.problem import DIRECTIONS, DTYPE_BYTES, AttentionProblem, ProblemError
from attnlab.store import Store
from attnlab.sweep import Sweep, default_sweep
from attnlab.tiling import Tiling
from attnlab.ui import exactness_form, explain_form, kept, link, points, shape_form, shell, status, tables, text, tiles
from attnlab.ui.controls import Form

ROOT = Path(__file__).resolve().parent.parent
FAKE = [sys.executable, "-u", str(ROOT / "tests" / "fake_worker.py")]
LIMIT_S = 60.0
LINE_MAX = 1_000  # characters of a message; the legal divisors of a number of heads are the longest list in one

HTML = "<img src=x onerror=alert(1)><script>alert(2)</script>"
MARKUP = "[here](javascript:alert(1)) :red[x] **b** `c` $d$ | e"
HOSTILE = (
    HTML, MARKUP, "../../../etc/passwd", "/dev/null", "C:\\con", "a\nb\r\n\x00\x1b[31m\u2028c", "\u202eevil", "=1+1", "",
    "x" * 200_000, "'; DROP TABLE runs; --", "%s%n{0}", "\N{CAT FACE}", "NaN", "1e999", "٣", "1_0", " 7 ",
)  # fmt: skip
BIG = (10**30, -(10**30), 10**400, 2**63)
ODD_FLOATS = (math.nan, math.inf, -math.inf, 1e308, 5e-324, -0.0)

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.sampled_from(BIG), st.floats(), st.sampled_from(ODD_FLOATS),
    st.text(max_size=20), st.sampled_from(HOSTILE),
)  # fmt: skip
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(HOSTILE[:6]), inner, max_size=3)
    ),
    max_leaves=8,
)


def one_line(said: str) -> None:
    assert said and len(said.splitlines()) == 1 and said.isprintable(), said
    assert len(said) <= LINE_MAX, len(said)
    said.encode()


# A problem, a sweep

PLAUSIBLE = {
    "batch": st.integers(1, 64),
    "seq_q": st.integers(1, 1 << 24),
    "seq_kv": st.integers(1, 1 << 24) | st.none(),
    "heads": st.integers(1, 1 << 14),
    "kv_heads": st.integers(1, 16) | st.none(),
    "head_dim": st.integers(1, 1024),
    "dtype": st.sampled_from(list(DTYPE_BYTES)),
    "causal": st.booleans(),
    "direction": st.sampled_from(DIRECTIONS),
    "window": st.integers(1, 1 << 24) | st.none(),
    "lengths": st.none() | st.lists(st.integers(0, 100), max_size=5).map(tuple),
}
NEEDED = ("batch", "seq_q", "heads", "head_dim")


@st.composite
def problem_fields(draw):
    """Mostly what a person would type, with nonsense in some places."""
    chosen = draw(st.sets(st.sampled_from(list(PLAUSIBLE)))) | set(NEEDED)
    odd = draw(st.sets(st.sampled_from(sorted(chosen)), max_size=2))
    return {name: draw(anything if name in odd else PLAUSIBLE[name]) for name in sorted(chosen)}


def test_the_fuzz_knows_every_field_of_a_problem():
    assert set(PLAUSIBLE) == {field.name for field in fields(AttentionProblem)}


@settings(max_examples=250)
@given(problem_fields())
def test_any_fields_are_a_problem_or_one_line_that_names_the_legal_values(given_fields):
    try:
        problem = AttentionProblem(**given_fields)
    except ProblemError as error:
        one_line(str(error))
        assert "legal" in str(error)
        return
    assert AttentionProblem.from_json(json.loads(json.dumps(problem.to_json()))) == problem
    for path in ("standard", "flash"):  # every number of it can be worked out
        m = Measurement.of(problem, path, "skipped", predicted_bytes=cost.predicted_peak_bytes(problem, path))
        assert Measurement.from_json(m.to_json()) == m
        units.size(m.predicted_bytes)


@settings(max_examples=200)
@given(st.one_of(anything, st.dictionaries(st.sampled_from([*PLAUSIBLE, "heads ", "__class__"]), anything, max_size=5)))
def test_any_json_is_a_problem_or_one_line(data):
    try:
        AttentionProblem.from_json(data)
    except ProblemError as error:
        one_line(str(error))


@settings(max_examples=200)
@given(st.data())
def test_any_fields_are_a_sweep_or_one_line(data):
    whole = default_sweep("cpu").to_json()
    for name in data.draw(st.sets(st.sampled_from([*whole, "task", "extra"]), min_size=1, max_size=3)):
        whole[name] = data.draw(anything)
    try:
        sweep = Sweep.from_json(whole)
    except ProblemError as error:
        one_line(str(error))
        return
    assert Sweep.from_json(sweep.to_json()) == sweep


def test_numbers_that_python_will_not_write_out_are_refused_too():
    for name in ("batch", "seq_q", "heads", "head_dim", "kv_heads", "window"):
        with pytest.raises(ProblemError) as refused:
            AttentionProblem(**dict.fromkeys(NEEDED, 1) | {name: 10**5000})
        one_line(str(refused.value))


def test_a_sweep_of_too_many_lengths_and_a_batch_of_too_many_sequences_are_refused_at_once():
    data = default_sweep("cpu").to_json() | {"seqs": list(range(1, 100_000))}
    with pytest.raises(ProblemError, match="legal: at most 1,000"):
        Sweep.from_json(data)
    with pytest.raises(ProblemError, match="at most 4,096 sequences"):
        AttentionProblem(batch=1 << 20, seq_q=8, heads=1, head_dim=8, lengths=(8,) * (1 << 20))


# The command line


class Started(Exception):
    """A worker would have been started: the arguments were in order."""


def commands_and_options() -> tuple[list[str], list[str]]:
    """As the parser itself says them, so that no new one is forgotten."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), pytest.raises(SystemExit):
        arguments.parse(["no such command"])
    commands = said.getvalue().partition("choose from ")[2].strip(")\n ").replace("'", "").split(", ")
    options = set()
    for command in commands:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), pytest.raises(SystemExit):
            arguments.parse([command, *(["--out", "x.json"] if command == "record" else []), "--no-such-option"])
        options |= set(said.getvalue().partition("legal: ")[2].strip().split(", "))
    return commands, sorted(option for option in options if option.startswith("-"))


def test_the_fuzz_knows_the_commands():
    commands, options = commands_and_options()
    assert {"sweep", "compare", "plan", "roofline"} <= set(commands) and {"--seqs", "--gpu", "--json"} <= set(options)


VALUES = (
    "1", "0", "-1", "128", "128,256", "16777216", "99999999999999999999", "1" * 5000, "1,,2", "1e3", "nan", "inf", "0.5", "",
    " ", "float32", "int8", "standard", "standard,flash", "magic", "forward", "cold", "H200", "llama-3-8b-decode",
    "exactness", "time", "run.json", "~", "~nobody-of-that-name/run.json", "no/such/folder.json", "x" * 5000, "a\x00b",
    "-", "--", "--=", "\udc80", *HOSTILE[:8],
)  # fmt: skip


def run_main(argv: list[str]) -> tuple[int, str]:
    """(exit code, what was said on stderr). Raises Started."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main(argv)
        except SystemExit as left:
            code = left.code
    return code, err.getvalue()


@pytest.fixture(scope="module")
def somewhere():
    """A folder of its own to be in, with no worker that could be started from it."""

    def refuse(*_, **__):
        raise Started

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.chdir(folder)
        for name in ("Lab", "Store", "WorkerProcess", "Examination"):
            patch.setattr(cli, name, refuse, raising=False)
        yield


COMMANDS, OPTIONS = commands_and_options()


@settings(max_examples=250)
@given(
    st.sampled_from([*COMMANDS, *HOSTILE[:4]]),
    st.lists(st.sampled_from(OPTIONS) | st.sampled_from(VALUES) | st.text(max_size=8), max_size=6),
)
@example("sweep", ["--json", "~nobody-of-that-name/run.json"])
@example("sweep", ["--json", "x" * 5000])
@example("record", ["--out", "a\x00b"])
@example("export", ["last", "--pictures", "x" * 5000])
@example("export", ["last", "--pictures", "~nobody-of-that-name"])
@example("export", ["x" * 5000])
@example("plan", ["--gpu", "H200", "--json", "/proc/version"])
@example("sweep", ["--batch", "1" * 5000])
@example("roofline", ["--heads", "16384", "--dim", "1024", "--batch", "1048576", "--gpu", "H200", "--seqs", "16777216"])
def test_any_words_run_or_leave_with_2_and_one_line(somewhere, command, words):
    try:
        code, said = run_main([command, *words])
    except Started:
        return
    assert code in (0, 1, 2) and "Traceback" not in said
    if code:
        assert said.count("\n") == 1 and said.endswith("\n"), said


# The address

KEYS = (
    "batch", "seq", "heads", "head_dim", "kv_heads", "window", "queries", "other_seq", "other_head_dim", "budget",
    "picked_seq", "dtype", "direction", "within", "l2", "clock", "count", "replay", "lengths", "causal", "live", "try_oom",
)  # fmt: skip
VALID_OR_NOT = (
    st.sampled_from(("1", "128", "true", "cold", "float32")) | st.sampled_from(HOSTILE) | st.text(max_size=12)
)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from([*KEYS, *PATHS, *HOSTILE[:5]]), VALID_OR_NOT, max_size=8))
def test_any_address_of_the_live_page_is_understood_or_refused_by_name(address):
    found = link.faults(address, {"h200": F25})
    for fault in found:
        assert fault.key in address and fault.legal
    rest = {key: value for key, value in address.items() if key not in {fault.key for fault in found}}
    assert link.faults(rest, {"h200": F25}) == []
    for key in ("batch", "heads", "seq", "head_dim"):
        assert int(rest.get(key, 1)) >= 1


@settings(max_examples=200)
@given(st.data())
def test_any_address_of_the_other_pages_is_understood_or_refused_in_one_line(data):
    forms = {
        "m_": {**shape_form.FIELDS, "n": kept.number(1.0, 0.001, 1e6), "w": kept.whole(1, 1, 9)},
        explain_form.PREFIX: explain_form.fields("cuda"),
    }
    for prefix, form in forms.items():
        address = data.draw(
            st.dictionaries(st.sampled_from([prefix + name for name in form]), VALID_OR_NOT, max_size=5)
        )
        values, faults = kept.read(prefix, form, address)
        assert set(values) == set(form)
        for said in faults:
            one_line(said)
    names = [exactness_form.PREFIX + name for name in (*exactness_form.WHOLE, *exactness_form.SEVERAL, "causal", "at")]
    address = data.draw(st.dictionaries(st.sampled_from([*names, "at", "show"]), VALID_OR_NOT, max_size=5))
    usual = dict.fromkeys((*exactness_form.WHOLE, *exactness_form.SEVERAL, "causal", "direction"))
    values, faults = exactness_form.read(address, usual, ("NVIDIA H200",))
    assert set(values) == set(usual) and {fault.key for fault in faults} <= set(address)


@pytest.fixture
def page_of(private_home, monkeypatch):
    """page_of("memory", {…}): a page at an address, with a worker that computes nothing, after its first two runs."""
    monkeypatch.setenv("FAKE_WORKER", "{}")
    lab = Lab(Store(private_home), worker_command=FAKE)
    monkeypatch.setattr(shell, "lab", lambda: lab)

    def open_page(name: str, address: dict[str, str]) -> AppTest:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        for key, value in address.items():
            app.query_params[key] = value
        app.run()
        if name != "live":
            app.switch_page(f"pages/{name}.py")
            for key, value in address.items():
                app.query_params[key] = value
            app.run()
        app.run()
        return app

    yield open_page
    lab.close()


def test_pages_stand_whatever_the_address_says(page_of):
    for nonsense in ("-" * 5000, HTML + MARKUP + "\x00\n٣"):
        page = page_of("live", dict.fromkeys((*KEYS, *PATHS, nonsense[:20]), nonsense))
        assert not page.exception
        (warning,) = page.warning
        assert "\n" not in warning.value and "<" not in warning.value.replace("\\<", "")


@pytest.mark.parametrize(
    ("name", "prefix", "keys"),
    [
        ("memory", "m_", ("show", *shape_form.FIELDS, "gpu", "gib", "devices", "layers", "lengths")),
        ("roofline", "r_", ("show", *shape_form.FIELDS, "gpu", "peak", "bandwidth")),
        ("explain", explain_form.PREFIX, (*explain_form.fields("cpu"), "show")),
        ("exactness", exactness_form.PREFIX, (*exactness_form.WHOLE, *exactness_form.SEVERAL, "causal")),
        ("claims", "c_", ("show",)),
    ],
)
def test_other_pages_stand_whatever_the_address_says(page_of, name, prefix, keys):
    page = page_of(name, {prefix + key: MARKUP + HTML + "\x00" for key in keys} | {"at": "9" * 5000, "show": HTML})
    assert not page.exception
    said = [shown.value for kind in (page.markdown, page.warning, page.error) for shown in kind]
    assert any("in the link" in words and "legal" in words for words in said), "it was read, and refused in words"


def test_no_door_leads_to_the_paths_that_misbehave_on_purpose(somewhere, page_of):
    for fault in FAULTS:
        name = f"faulty-{fault}"
        with pytest.raises(ProblemError, match=f"path is '{name}'; legal: standard"):
            Sweep.from_json(default_sweep("cpu").to_json() | {"paths": [name]})
        code, said = run_main(["sweep", "--paths", name])
        assert code == 2 and f"'{name}'; legal: standard" in said
    page = page_of("live", {f"faulty-{fault}": "true" for fault in FAULTS})
    assert not page.exception and not [box.label for box in page.checkbox if "faulty" in box.label]


# Files of runs


@cache
def shipped(name: str) -> dict:
    """A recording that ships, cut down to a few points."""
    data = json.loads((export.DATA / f"{name}.json").read_text(encoding="utf-8"))
    data["measurements"] = data["measurements"][:4]
    return data


RECORDINGS = ("h200", "h200-determinism", "h200-edges-float16")
NONSENSE = (
    None, True, -1, 0, 1.5, 10**30, 10**400, 1e308, -1e308, 5e-324, math.nan, math.inf, "", [], {}, [[]], [None], ["a", "b"],
    {"a": 1}, [["a", 1.0]], [["a"]], *HOSTILE, "\ud800",
)  # fmt: skip


def places(value: object, path: tuple = ()) -> list[tuple]:
    """Every place in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:6]) if isinstance(value, list) else ()
    return [path, *(place for key, child in inner for place in places(child, (*path, key)))]


def put(whole: dict, place: tuple, value: object, *, delete: bool) -> object:
    if not place:
        return value
    whole = copy.deepcopy(whole)
    at = whole
    for key in place[:-1]:
        at = at[key]
    if delete:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return whole


def stands(run) -> None:
    """Everything that a page and a file make of a run, without one. Figures are JSON, so no NaN is in them."""
    if run.recorded:
        assert run_from_text(export.run_to_text(run)) == run
    tabular.to_csv(run).encode()
    one_line(" ".join(units.shape(run.sweep.problem).split()))
    drawn = [figures.memory(run)]
    for clock in figures.CLOCKS:
        drawn += [figures.latency(run, clock), figures.speedup(run, clock)]
    drawn += [figures.efficiency(run, count) for count in figures.COUNTS]
    for figure in drawn:
        json.dumps(figure, allow_nan=False).encode()
    summary.sentence(run)
    growth.lines(run)
    table.rows(run)
    tables.arrow(points.rows(run), points.CONFIG)
    for seq in run.sweep.seqs:
        summary.headline(run, seq)
        ladder.ladder(run, seq)
    said = status.recording("file", run) + text.escape(run.mark)
    said.encode()


def a_run_or_one_line(read, what) -> None:
    try:
        run = read(what)
    except ImportRefused as error:
        one_line(str(error))
        return
    stands(run)


@settings(max_examples=100)
@given(st.sampled_from(RECORDINGS), st.data())
def test_a_changed_recording_is_a_run_or_one_line(name, data):
    changed = shipped(name)
    for _ in range(data.draw(st.integers(1, 2))):
        if not isinstance(changed, dict):
            break
        place = data.draw(st.sampled_from(places(changed)))
        changed = put(changed, place, data.draw(st.sampled_from(NONSENSE)), delete=data.draw(st.booleans()))
    a_run_or_one_line(run_from_json, changed)
    with contextlib.suppress(ValueError):  # of numbers with more digits than Python writes out
        a_run_or_one_line(run_from_text, json.dumps(changed))


def test_a_whole_number_of_more_than_64_bits_stands_in_the_table():
    data = shipped("h200")
    data["measurements"][0]["device_ms"] = 10**30
    run = run_from_json(data)
    assert tables.arrow(points.rows(run), points.CONFIG)["device_ms"][0].as_py() == 1e30


@settings(max_examples=150)
@given(st.sampled_from(RECORDINGS), st.data())
def test_a_damaged_text_of_a_recording_is_a_run_or_one_line(name, data):
    whole = json.dumps(shipped(name))
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, min(len(whole), start + 40)) | st.just(len(whole)))
    tokens = ("", "NaN", "-Infinity", "1e999", "9" * 5000, '"', "}", "[" * 900, "\x00", "\\ud800", '"a":1,', "\ud800")
    a_run_or_one_line(run_from_text, whole[:start] + data.draw(st.sampled_from(tokens)) + whole[stop:])


@settings(max_examples=60)
@given(st.binary(max_size=60))
def test_any_bytes_are_no_run(raw):
    with pytest.raises(ImportRefused) as refused:
        run_from_text(raw)
    one_line(str(refused.value))


@pytest.mark.parametrize("depth", [100, 900, 10_000, 1_000_000])
def test_deep_files_are_refused_in_one_line(depth):
    for raw in ("[" * depth, '{"run":' * depth, "[" * depth + "]" * depth):
        with pytest.raises(ImportRefused) as refused:
            run_from_text(raw)
        one_line(str(refused.value))
    inside = export.run_to_text(F25).replace('"phase": ""', '"phase": ' + "[" * depth + "]" * depth)
    with pytest.raises(ImportRefused) as refused:
        run_from_text(inside)
    one_line(str(refused.value))


def test_a_huge_file_among_the_recordings_is_refused_without_being_read(tmp_path):
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(200 << 20)
    (tmp_path / "whole.json").write_text(export.run_to_text(F25), encoding="utf-8")
    runs, (refusal,) = export.recorded_runs(tmp_path)
    assert list(runs) == ["whole"] and refusal.startswith("huge.json: the file is larger than 32 MiB")


def hostile_run():
    data = export.run_to_json(F25)
    name = f"{HTML} {MARKUP} ../../etc\n\x00"
    data["run"]["device"]["name"] = data["run"]["id"] = data["run"]["reason"] = name
    for m in data["measurements"]:
        m |= {
            "provider": name,
            "reason": name,
            "notes": [name],
            "clock": name,
            "memory_source": name,
            "throttle": [name],
        }
    return run_from_json(data)


def test_markup_in_a_file_is_shown_as_text(page_of, monkeypatch):
    run = hostile_run()
    stands(run)
    monkeypatch.setattr(shell, "recorded_runs", lambda: ({"hostile": run}, []))
    page = page_of("live", {"replay": "hostile"})
    page.run()
    assert not page.exception and page.query_params["replay"] in ("hostile", ["hostile"])
    said = [shown.value for kind in (page.markdown, page.caption, page.warning, page.error) for shown in kind]
    said += [metric.help or "" for metric in page.metric]
    assert any("onerror" in words for words in said)
    for words in said:
        plain = words.replace("\\<", "").replace("\\[", "").replace("\\:", "").replace("\\*", "")
        assert "<img" not in plain and "[here]" not in plain and ":red[x]" not in plain and "\x00" not in words, words
    for html in page.get("html"):
        assert "<img" not in html.value and "<script" not in html.value
    for chart in components(page):
        drawn = figure_of(chart)
        assert "onerror" in json.dumps(drawn) or chart.key not in ("latency", "memory")
        assert "<img" not in json.dumps(drawn) and "<script" not in json.dumps(drawn)


def test_a_device_with_markup_for_a_name_is_text_in_the_walk_through_the_tiles():
    tiling = Tiling(AttentionProblem(batch=1, seq_q=128, heads=1, head_dim=16), block_q=64, block_k=64)
    assert "<" not in tiles.walk(tiling, 1 << 17, HTML)["chip"]


# Lines of a worker


@settings(max_examples=200)
@given(st.text(max_size=50) | anything.map(lambda value: json.dumps(value, default=str) if sane(value) else "[" * 5000))
def test_any_line_is_a_message_or_none(line):
    message = protocol.parse(line)
    assert message is None or isinstance(message, dict)


def sane(value: object) -> bool:
    try:
        json.dumps(value)
    except ValueError:
        return False
    return True


def messages(problem: AttentionProblem, step_id: int) -> list[dict]:
    """One of each kind, as a worker in order says them of the step in flight."""
    m = Measurement.of(problem, "flash", "ok", device_ms=1.0, samples=3, samples_ms=(1.0, 1.0, 1.0))
    device = F25.device.to_json()
    return [
        {"event": "hello", "pid": 1, "device": device, "paths": []},
        {"event": "path", "status": {"name": "flash", "state": "ready"}},
        {"event": "ceilings", "matmul_tflops": [["bfloat16", 700.0]], "copy_tbs": 4.2},
        {"event": "waiting", "id": step_id, "text": "process 1 is measuring"},
        {"event": "started", "id": step_id, "path": "standard"},
        {"event": "compiling", "id": step_id, "path": "flash", "text": "compiling"},
        {"event": "running", "id": step_id, "path": "flash"},
        {"event": "measurement", "id": step_id, "measurement": m.to_json()},
        {"event": "done", "id": step_id + 1, "cancelled": False, "free_bytes": 1},
        {"event": "fatal", "reason": 7},
    ]


@pytest.fixture(scope="module")
def busy_lab(tmp_path_factory):
    """A lab whose worker is silent in the midst of a step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_WORKER", json.dumps({"hang_at": ["standard", 128]}))
        lab = Lab(Store(tmp_path_factory.mktemp("home")), worker_command=FAKE, time_limit_s=600.0)
        run_id = lab.submit(default_sweep("cpu"))
        while not (snapshot := lab.snapshot(run_id)).run.activity:
            lab.changed(snapshot.version, 1.0)
        yield lab, run_id
        lab.close()


def heard(lab: Lab, lines: list[bytes]) -> None:
    """Returns when the lab has taken in the lines, as if its worker had written them."""
    lab.notes.clear()
    for line in [*lines, b"this was the last\n"]:
        lab._supervisor._inbox.put(("line", lab._supervisor._process, line))
    limit = time.monotonic() + LIMIT_S
    while not any("this was the last" in note for note in list(lab.notes)):
        assert time.monotonic() < limit, "the lab hears no more"
        time.sleep(0.0005)


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_line_of_a_worker_ends_the_lab(busy_lab, data):
    lab, run_id = busy_lab
    step = lab._supervisor._job.step
    lines = []
    for _ in range(data.draw(st.integers(1, 4))):
        message = data.draw(st.sampled_from(messages(step.problem, lab._supervisor._job.step_id)))
        place = data.draw(st.sampled_from([place for place in places(message) if place]))
        if place not in (("event",), ("id",)):  # those two are drawn below, where a lab may be told what it did not ask
            message = put(message, place, data.draw(st.sampled_from(NONSENSE[:-1])), delete=data.draw(st.booleans()))
        if data.draw(st.integers(0, 4)) == 0:
            message["event"] = data.draw(st.sampled_from(("nobody knows this", 7, None, ["started"], *HOSTILE[:3])))
        if message.get("event") == "fatal" and isinstance(message.get("reason"), str):
            continue  # that one it may believe
        with contextlib.suppress(ValueError):
            lines.append(json.dumps(message).encode() + data.draw(st.sampled_from((b"\n", b"\r\n", b"", b"\x00\n"))))
    lines += data.draw(st.lists(st.binary(max_size=30), max_size=2))
    heard(lab, lines)
    snapshot = lab.snapshot(run_id)
    assert not lab._supervisor.join(0) and snapshot.worker.state == "busy" and snapshot.run.active
    assert lab._supervisor._job.step is step and {m.path for m in snapshot.run.measurements} <= {"flash"}
    stands(snapshot.run)
    status.line(snapshot, snapshot.run, Form(snapshot.run.sweep)).encode()
    status.device_line(snapshot.worker, trouble="", offer=False).encode()
    for path in snapshot.worker.paths:
        assert path.name in PATHS


def test_numbers_in_messages_stay_within_what_arithmetic_can_hold():
    assert checked.is_number(2**77) and not checked.is_number(10**400) and not checked.is_number(math.nan)
    assert not checked.is_number(True) and not checked.is_number(-1)
