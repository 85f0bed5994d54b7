"""The script of a talk: what ships, what a file of one's own may say, and what a rehearsal makes of it."""

import json
from dataclasses import replace

import pytest
from samples import H200

from attnlab import cost, rehearsal, stage_words, talk
from attnlab.device import Device
from attnlab.export import recorded_runs
from attnlab.measurement import Measurement
from attnlab.presets import PRESETS
from attnlab.problem import AttentionProblem
from attnlab.rehearsal import BAD, GOOD, LATE_S, NOTHING, SLOW, WAITS
from attnlab.run import Run
from attnlab.sweep import Sweep, powers_of_two
from attnlab.talk import TalkRefused, from_json

SHAPE = {"batch": 1, "heads": 8, "head_dim": 64, "longest": 512, "dtype": "float32"}
STEP = {"headline": "A headline", "kind": "sweep", "shape": SHAPE}
SWEEP = Sweep(problem=AttentionProblem(batch=1, seq_q=512, heads=8, head_dim=64), seqs=powers_of_two(512))
CPU = Device(kind="cpu", name="A CPU", uuid="", total_bytes=1 << 34, free_bytes=1 << 33)


def point(path, seq, status="ok", ms=1.0, **more):
    fields = {"device_ms": ms, "peak_bytes": 1 << 20} if status == "ok" else {}
    return Measurement(problem=SWEEP.at(seq), path=path, status=status, **(fields | more))


def run(*points, state="done", seconds=1.0, **more):
    fields = {"id": "r", "created": "2026-11-30T10:00:00+00:00", "device": H200, "sweep": SWEEP}
    return Run(state=state, seconds=seconds, measurements=points, **(fields | more))


def all_points():
    return [point(path, seq) for path in SWEEP.paths for seq in SWEEP.seqs]


# What ships


def test_the_talk_that_ships_tells_the_whole_story_in_eight_steps_and_ends_with_the_audience():
    shipped = talk.read(talk.SHIPPED)
    assert len(shipped.steps) == 8
    assert [(step.kind, step.chart) for step in shipped.steps[:2]] == [("sweep", "latency"), ("sweep", "memory")]
    kinds = [step.kind for step in shipped.steps[2:]]
    assert kinds == ["trip", "tiles", "softmax", "exactness", "roofline", "yours"]
    assert shipped.steps[0].gpu.seqs == (128, 256, 512) == shipped.steps[0].cpu.seqs
    assert [shipped.place(n) for n in (1, 8)] == ["1 / 8", "8 / 8"] and shipped.yours() == 8


def test_the_shipped_headlines_are_true_on_every_device():
    """They are read out whatever was measured, so they are arithmetic or a question."""
    first, second = talk.read(talk.SHIPPED).steps[:2]
    for sweep in (first.gpu, first.cpu):
        short, long = sweep.at(sweep.seqs[0]), sweep.at(sweep.seqs[-1])
        assert long.seq_q == 4 * short.seq_q and long.score_elements == 16 * short.score_elements
    for seq in second.gpu.seqs[-4:]:
        problem = second.gpu.at(seq)
        assert cost.predicted_peak_bytes(problem, "standard") >= cost.score_bytes(problem)
        assert cost.predicted_peak_bytes(problem, "flash") < cost.score_bytes(problem) / 10


def test_on_a_cpu_nothing_of_the_shipped_talk_is_sized_for_a_gpu_and_what_it_replays_is_there():
    recorded, refused = recorded_runs()
    assert not refused
    for step in talk.read(talk.SHIPPED).steps:
        here = step.sweep("cpu")
        if here is not None:
            problem = here.at(here.seqs[-1])
            assert problem.score_elements <= 8 * 2048**2 and here.budget_s <= 300
        if step.recorded:
            assert recorded[step.recorded].device.name == "NVIDIA H200"
        if step.kind in talk.SWEPT:
            assert here is not None or step.recorded
            assert step.sweep("cuda") is not None


def test_out_of_memory_is_tried_for_real_on_a_gpu_and_recorded_for_a_cpu():
    step = talk.read(talk.SHIPPED).steps[1]
    longest = step.gpu.at(step.gpu.seqs[-1])
    assert step.gpu.try_oom and cost.predicted_peak_bytes(longest, "standard") > 288 << 30  # no card holds as much
    assert step.sweep("cpu") is None
    replayed = recorded_runs()[0][step.recorded]
    assert replayed.get("standard", replayed.sweep.seqs[-1]).status == "oom"


# A file of one's own


def test_a_preset_and_all_the_fields_are_understood():
    step = {
        "headline": "Decode", "kind": "sweep", "preset": "llama-3-8b-decode", "chart": "speedup", "scale": "linear",
        "paths": ["standard", "sdpa-cudnn", "flash"], "shown": 2, "try_oom": True, "recorded": "h200",
        "cpu": {**SHAPE, "kv_heads": 2, "causal": True, "queries": 1, "window": 9, "direction": "forward"},
    }  # fmt: skip
    read = from_json({"title": "Mine", "steps": [step]})
    (found,) = read.steps
    assert found.gpu == replace(PRESETS["llama-3-8b-decode"].sweep(("standard", "sdpa-cudnn", "flash")), try_oom=True)
    assert (found.cpu.seq_q, found.cpu.problem.kv_heads, found.cpu.problem.window) == (1, 2, 9)
    assert (found.chart, found.scale, found.shown, read.title) == ("speedup", "linear", 2, "Mine")


def test_without_a_shape_for_the_cpu_and_without_a_recording_the_step_is_measured_as_it_is():
    (step,) = from_json({"steps": [STEP]}).steps
    assert step.sweep("cpu") == step.sweep("cuda") == step.gpu


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], 'legal: a JSON object with "steps", a list of 1 to 40 steps'),
        ({"steps": []}, "a list of 1 to 40 steps"),
        ({"steps": [STEP] * 41}, "a list of 1 to 40 steps"),
        ({"steps": [STEP], "author": "me"}, "unknown field 'author'; legal: title, steps"),
        ({"steps": [STEP], "title": 3}, "title is 3; legal: 1 to 90 characters"),
        ({"steps": ["words"]}, "step 1 is 'words'; legal: an object with headline, kind"),
        ({"steps": [STEP, STEP | {"colour": "red"}]}, "step 2 has an unknown field 'colour'; legal: headline, kind"),
        ({"steps": [STEP | {"headline": ""}]}, "headline is ''; legal: 1 to 90 characters in one line"),
        ({"steps": [STEP | {"headline": "a\nb"}]}, "in one line"),
        ({"steps": [STEP | {"headline": "x" * 91}]}, "legal: 1 to 90 characters"),
        ({"steps": [STEP | {"kind": "song"}]}, "kind is 'song'; legal: sweep, trip, tiles, softmax"),
        ({"steps": [STEP | {"kind": ["sweep"]}]}, "legal: sweep, trip, tiles"),
        ({"steps": [{"headline": "x"}]}, "kind is None; legal: sweep"),
        ({"steps": [STEP | {"chart": "pie"}]}, "chart is 'pie'; legal: latency, memory, speedup"),
        ({"steps": [STEP | {"scale": "square"}]}, "scale is 'square'; legal: log, linear"),
        ({"steps": [{"headline": "x", "kind": "sweep", "preset": "gpt-9"}]}, "legal: llama-3-8b-prefill"),
        ({"steps": [STEP | {"preset": "gpt-2"}]}, "has a preset and a shape; legal: one of them"),
        ({"steps": [{"headline": "x", "kind": "sweep"}]}, "says of what; legal: a preset or a shape"),
        ({"steps": [{"headline": "x", "kind": "tiles"}]}, "says of what; legal: a preset or a shape"),
        ({"steps": [STEP | {"paths": ["standard", "fast"]}]}, "legal: a list of standard, flash"),
        ({"steps": [STEP | {"paths": []}]}, "legal: a list of standard"),
        ({"steps": [STEP | {"shown": 3}]}, "shown is 3; legal: whole numbers from 1 to 2"),
        ({"steps": [STEP | {"shown": True}]}, "shown is True; legal: whole numbers from 1 to 2"),
        ({"steps": [STEP | {"try_oom": "yes"}]}, "try_oom is 'yes'; legal: true, false"),
        ({"steps": [STEP | {"recorded": 5}]}, "recorded is 5; legal: the name of a file"),
        ({"steps": [STEP | {"shape": [1]}]}, "step 1's shape is [1]; legal: an object with batch, heads"),
        ({"steps": [STEP | {"shape": SHAPE | {"layers": 2}}]}, "unknown field 'layers'; legal: batch"),
        ({"steps": [STEP | {"shape": {"batch": 1}}]}, "step 1's shape lacks heads; legal: an object with"),
        ({"steps": [STEP | {"shape": SHAPE | {"longest": "long"}}]}, "longest is 'long'; legal: whole numbers from 1"),
        ({"steps": [STEP | {"shape": SHAPE | {"heads": 0}}]}, "step 1: heads is 0; legal: whole numbers from 1"),
        ({"steps": [STEP | {"cpu": SHAPE | {"dtype": "int8"}}]}, "dtype is 'int8'; legal: "),
        ({"steps": [STEP | {"shape": SHAPE | {"kv_heads": 3}}]}, "legal for 8 heads: 1, 2, 4, 8"),
        ({"steps": [STEP | {"shape": SHAPE | {"queries": -1}}]}, "queries is -1; legal: whole numbers"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_that_names_what_is_legal(data, says):
    with pytest.raises(TalkRefused) as refused:
        from_json(data)
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_a_file_that_is_none_is_told_and_the_shipped_talk_stands(tmp_path):
    shipped = talk.read(talk.SHIPPED)
    bad = tmp_path / "bad.json"
    bad.write_text("{steps: 1}")
    huge = tmp_path / "huge.json"
    huge.write_text(" " * (talk.FILE_MAX_BYTES + 1))
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({"steps": [STEP | {"kind": "song"}]}))
    for path, says in (
        (tmp_path / "absent.json", "cannot be read"), (tmp_path, "cannot be read"), (bad, "is not JSON"),
        (huge, "is larger than 1 MiB"), (wrong, "legal: sweep, trip"), ("nul\0l", "cannot be read"),
    ):  # fmt: skip
        found, trouble = talk.chosen({talk.VARIABLE: str(path)}.get)
        assert found == shipped
        assert trouble.startswith("ATTNLAB_TALK: ") and says in trouble and "shown instead" in trouble


def test_a_file_of_ones_own_is_the_talk(tmp_path):
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"title": "Mine", "steps": [STEP]}))
    found, trouble = talk.chosen({talk.VARIABLE: f" {mine} "}.get)
    assert (found.title, len(found.steps), trouble) == ("Mine", 1, "")
    assert talk.chosen({}.get) == (talk.read(talk.SHIPPED), "")


# On stage: live or kept


def test_the_kept_result_waits_until_the_live_one_is_late_and_leaves_when_that_has_caught_up():
    kept, nothing = run(*all_points(), id="kept"), run(state="running")
    assert rehearsal.on_stage(nothing, kept, False) == (nothing, False)
    assert not rehearsal.late(nothing, LATE_S - 0.1) and rehearsal.late(nothing, LATE_S)
    assert rehearsal.on_stage(nothing, kept, True) == (kept, True)
    some = run(*all_points()[:2], state="running")
    assert rehearsal.on_stage(some, kept, True) == (kept, True), "a fuller picture is not taken away"
    assert rehearsal.on_stage(some, kept, False) == (some, False), "it was there in time"
    assert not rehearsal.late(some, 100)
    caught_up = run(*all_points(), state="running")
    assert rehearsal.on_stage(caught_up, kept, True) == (caught_up, False)
    assert rehearsal.on_stage(nothing, None, True) == (nothing, False)


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_live_run_that_ended_early_leaves_the_stage_to_the_kept_one(state):
    kept, live = run(*all_points(), id="kept"), run(all_points()[0], state=state)
    assert rehearsal.on_stage(live, kept, False) == (kept, True)
    assert rehearsal.on_stage(live, None, True) == (live, False)


def test_a_live_run_in_which_nothing_worked_is_not_preferred_to_a_kept_one():
    kept = run(*all_points(), id="kept")
    lost = run(*[point(path, seq, "fault", reason="lost") for path in SWEEP.paths for seq in SWEEP.seqs])
    assert rehearsal.on_stage(lost, kept, False) == (kept, True)
    assert rehearsal.on_stage(lost, lost, False) == (lost, False)


# The rehearsal


def judged(found, recorded=None, step=None, refusal=""):
    step = step or from_json({"steps": [STEP]}).steps[0]
    row = rehearsal.row(step, "cuda", found, recorded, refusal)
    return row.verdict, row.words


def test_each_step_is_judged_by_its_run():
    oom = [*all_points()[:-1], point("flash", 512, "oom")]
    timeout = [
        *all_points()[:-2],
        *(point("flash", seq, "timeout", reason="no answer in 60 s. More.") for seq in (256, 512)),
    ]
    skipped = [*all_points()[:-1], point("flash", 512, "skipped", reason="predicted to take 99 s")]
    assert judged(None) == (WAITS, "not rehearsed")
    assert judged(run(state="queued")) == (WAITS, "queued")
    assert judged(run(*all_points()[:2], state="running"))[0] == WAITS
    assert judged(run(*all_points(), seconds=2.9)) == (GOOD, "measured in 2.9 s")
    assert judged(run(*all_points(), seconds=7.2)) == (SLOW, "measured in 7.2 s; longer than 3 s")
    assert judged(run(*oom)) == (GOOD, "measured in 1 s; flash out of memory at 512")
    verdict, words = judged(run(*timeout))
    assert verdict == BAD and "at 256 and 1 more (no answer in 60 s)" in words
    assert judged(run(*skipped))[1].endswith("skipped at 512 (predicted to take 99 s)")
    assert judged(run(state="failed", reason="no torch")) == (BAD, "failed: no torch")
    assert judged(run(all_points()[0], state="cancelled", reason="stopped"))[0] == BAD
    assert judged(None, refusal="too long for this server") == (BAD, "too long for this server")


def test_a_step_that_measures_nothing_says_what_it_shows_instead_and_a_missing_recording_fails():
    on_paper = from_json({"steps": [{"headline": "x", "kind": "softmax"}]}).steps[0]
    assert judged(None, step=on_paper) == (NOTHING, "arithmetic")
    replays = from_json({"steps": [STEP | {"recorded": "h999"}]}).steps[0]
    row = rehearsal.row(replays, "cpu", None, None)
    assert (row.verdict, row.words) == (BAD, "no run h999 is recorded here: nothing will be shown")
    there = rehearsal.row(replays, "cpu", None, run(*all_points(), recorded=True))
    assert (there.verdict, there.words) == (NOTHING, "recorded on NVIDIA H200, 2026-11-30")


def test_the_rehearsal_in_a_sentence():
    def rows(*verdicts):
        return [rehearsal.Row(headline="h", verdict=v, words="not rehearsed" if v == WAITS else "") for v in verdicts]

    assert rehearsal.sentence(rows(WAITS, WAITS, NOTHING, WAITS)).startswith("Not rehearsed")
    said = rehearsal.sentence(rows(SLOW, BAD, NOTHING, SLOW))
    assert said == "3 of 3 steps that measure are rehearsed; will fail: 2; take longer than 3 s: 1, 4."
    assert rehearsal.sentence(rows(GOOD, WAITS, NOTHING, GOOD)) == "2 of 3 steps that measure are rehearsed."


# What is said of a chart


def test_one_path_alone_is_said_to_grow_and_both_are_compared():
    found = run(
        *[point(p, s, ms=m) for p, s, m in (("standard", 128, 2.0), ("standard", 512, 10.0), ("flash", 512, 1.0))]
    )
    grew = "From 128 to 512, 4× the tokens, standard takes 5.0× as long."
    assert stage_words.sentence(found, "latency", ["standard"]) == grew
    assert "adds 1.0× as much memory" in stage_words.sentence(found, "memory", ["standard"])
    assert "flash is 10× faster" in stage_words.sentence(found, "latency", ["standard", "flash"])
    marked = stage_words.sentence(replace(found, recorded=True), "latency", ["standard"])
    assert marked.endswith("5.0× as long (recorded on NVIDIA H200, 2026-11-30).")


def test_a_growth_that_is_not_known_is_not_said():
    wide = [point("standard", 128, ms=2.0, device_ms_low=1.0, device_ms_high=4.0, samples=9)]
    wide.append(point("standard", 512, ms=10.0, device_ms_low=8.0, device_ms_high=12.0, samples=9))
    assert "standard takes 2.0× to 12× as long" in stage_words.sentence(run(*wide), "latency", ["standard"])
    only = run(point("standard", 128, ms=2.0))
    assert stage_words.sentence(only, "latency", ["standard"]) == "At 128 standard takes 2.00 ms."
    bound = run(point("standard", 128, launch_bound=True), point("standard", 512, ms=4.0))
    assert "the host's launch cost in the first" in stage_words.sentence(bound, "latency", ["standard"])
    assert stage_words.sentence(run(device=CPU, state="running"), "latency", ["standard"]) == "Nothing is measured yet."
