import pytest
from looks import CONTROL, answer, exactness, look, point
from samples import H200

from attnlab import summary, table, verdicts
from attnlab.finding import Finding

FLOAT32 = exactness({"standard": 3.1e-7, "flash": 2.9e-7}, dtype="float32")


def test_flash_is_closer_to_the_truth_than_standard():
    assert verdicts.exactness([exactness()]) == (
        "In bfloat16 at sequence 1,024 flash is 2.6× closer to the truth than standard attention (2.2e-3 against 5.7e-3): it"
        " is exact attention, not an approximation; it just rounds less on the way through memory."
    )


def test_in_float32_both_agree():
    said = verdicts.exactness([exactness(), FLOAT32])
    assert said.endswith("through memory. In float32 both agree with float64 to 1e-6.")
    assert verdicts.exactness([FLOAT32]) == (
        "In float32 at sequence 1,024 flash and standard attention both agree with float64 to 1e-6."
    )


@pytest.mark.parametrize(
    ("flash", "words"),
    [
        (5.7e-3, "flash is as close to the truth as standard attention (5.7e-3 against 5.7e-3): it is exact attention"),
        (
            1.0e-2,
            "1.8× further from the truth than standard attention (1.0e-2 against 5.7e-3), no more than bfloat16 explains",
        ),
    ],
)
def test_no_closer_is_said_too(flash, words):
    assert words in verdicts.exactness([exactness({"standard": 5.7e-3, "flash": flash})])


@pytest.mark.parametrize("error", [0.3, None])
def test_a_wrong_answer_comes_first_and_is_never_called_exact(error):
    points = [
        point("standard", 512, answer(5.7e-3), CONTROL),
        point("flash", 512, answer(error, "fail", text="far away"), CONTROL),
    ]
    said = verdicts.exactness([look(*points, seqs=(512,))])
    assert said.startswith("1 of 2 answers FAIL, the first is flash in bfloat16 at 512: O.")
    assert "exact attention" not in said
    assert ("does not give the right answer" if error else "not finite") in said


def test_a_control_that_is_not_noticed_is_said():
    missed = Finding(what=CONTROL.what, verdict="fail", text="a wrong scale was not noticed")
    run = look(point("flash", 512, answer(1e-3), missed), seqs=(512,), paths=("flash",))
    assert verdicts.tally([run]) == (
        "The one answer passes; a wrong scale was NOT rejected for flash in bfloat16 at 512, so the check says nothing there."
    )
    assert [row.verdict for row in verdicts.rows(run, 512)] == ["✓ PASS", "✗ NOT rejected"]


def test_nothing_measured_is_said():
    assert verdicts.exactness([look()]) == ""
    assert verdicts.sentence(look()) == "Nothing is measured yet."
    assert verdicts.sentence(look(state="failed", reason="no torch.")) == (
        "The run failed before anything was looked at: no torch."
    )


def test_a_path_without_findings_has_a_row_with_the_reason():
    run = look(
        point("standard", 512, status="oom", reason="asked for 64 GiB"),
        point("flash", 512, status="unsupported", reason="needs a GPU"),
        seqs=(512, 1024), state="running",
    )  # fmt: skip
    assert [(row.path, row.verdict, row.text) for row in verdicts.rows(run, 512)] == [
        ("standard", "out of memory", "asked for 64 GiB"),
        ("flash", "– unsupported", "needs a GPU"),
    ]
    assert {row.verdict for row in verdicts.rows(run, 1024)} == {"…"}


def test_what_nobody_began_is_counted_and_its_reason_is_the_runs():
    lost = [point(path, 1024, status="unreached", reason="no worker starts") for path in ("standard", "flash")]
    run = look(point("standard", 512, answer(2e-3), CONTROL), *lost, state="failed", reason="no worker starts")
    assert [(row.path, row.verdict, row.text) for row in verdicts.rows(run, 1024)] == [
        ("standard", "not reached", ""),
        ("flash", "not reached", ""),
    ]
    assert verdicts.tally([run]).startswith("The one answer passes; 2 not reached;")
    none = look(*lost, state="failed", reason="no worker starts")
    assert verdicts.sentence(none) == "The run failed before anything was looked at: no worker starts."


def test_a_recorded_run_says_where():
    run = exactness(recorded=True, device=H200)
    assert summary.sentence(run).endswith("(recorded on NVIDIA H200, 2026-11-30).")


@pytest.mark.parametrize("task", ["exactness", "determinism", "edges", "support"])
def test_a_look_never_speaks_of_speed(task):
    run = look(point("standard", 512, answer(1e-3)), point("flash", 512, answer(1e-3)), seqs=(512,), task=task)
    said = "\n".join([*table.rows(run), *table.said(run), *map(table.point_line, run.measurements)])
    assert not {"faster", "slower", "speed-up", "adds"} & set(said.replace(",", " ").split())
    assert "PASS" in said and "1 pass" in said


def repeats(what, mode, identical, **values):
    verdict = "fail" if mode == "deterministic" and identical < 10 else "pass"
    values = {"identical": identical, "repeats": 10, "spread_max_abs": 0.0 if identical == 10 else 1e-3} | values
    return Finding(what=what, mode=mode, verdict=verdict, values=values)


def timed(ms, within):
    return {"device_ms": ms, "device_ms_low": ms - within, "device_ms_high": ms + within}


def test_determinism_says_what_differs_and_what_the_promise_costs():
    def found(within):
        return [
            repeats("O", "default", 10, **timed(1.0, within), peak_bytes=100), repeats("dQ", "default", 0),
            repeats("O", "deterministic", 10, **timed(1.5, within), peak_bytes=300), repeats("dQ", "deterministic", 10),
        ]  # fmt: skip

    vague = look(point("flash", 512, *found(0.3)), task="determinism", seqs=(512,), paths=("flash",))
    assert "takes" not in verdicts.determinism(vague)  # the intervals overlap
    found = found(0.1)
    run = look(point("flash", 512, *found), task="determinism", seqs=(512,), paths=("flash",))
    assert verdicts.determinism(run) == (
        "By default not the same bits each time: flash dQ (0 of 10 equal). Deterministic mode takes flash 1.5× the time."
    )
    assert verdicts.mode_costs(run, "flash", 512) == (1.5, 3.0)
    assert "10 of 10 equal" in "\n".join(verdicts.lines(run))


def test_a_broken_promise_is_said():
    found = [repeats("O", "default", 10), repeats("O", "deterministic", 9)]
    run = look(point("flash", 512, *found), task="determinism", seqs=(512,), paths=("flash",))
    assert "BROKEN: flash in bfloat16 at 512: O, deterministic." in verdicts.determinism(run)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0022, "2.2e-3"), (0.0, "0"), (None, "–"), (2.0, "2.0e0"), (3e-12, "3.0e-12")]
)
def test_errors_have_two_digits(value, text):
    assert verdicts.number(value) == text


def test_what_could_not_be_looked_at_is_said():
    run = look(
        point("standard", 512, status="oom", reason="asked for 64 GiB"), point("flash", 512, answer(2e-3), CONTROL),
        seqs=(512,),
    )  # fmt: skip
    assert verdicts.tally([run]).startswith(
        "The one answer passes; 1 not looked at, the first is standard in bfloat16 at 512: out of memory;"
    )
