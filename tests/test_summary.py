import pytest
from samples import CPU, H200

from attnlab import summary
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.sweep import Sweep

PROBLEM = AttentionProblem(batch=4, seq_q=32_768, heads=32, head_dim=128)
MIB = 1 << 20


def point(path, seq, device_ms=None, peak_mib=None, status="ok", **more):
    peak_bytes = None if peak_mib is None else int(peak_mib * MIB)
    return Measurement(
        problem=PROBLEM.at_seq(seq), path=path, status=status, device_ms=device_ms, peak_bytes=peak_bytes, **more
    )


def run_of(*points, paths=("standard", "flash"), device=H200, **more):
    sweep = Sweep(problem=PROBLEM, seqs=tuple({m.seq for m in points}) or (128,), paths=paths)
    more = {"state": "done", **more}
    return Run(id="r", sweep=sweep, created="2026-11-30T10:00:00Z", device=device, measurements=points, **more)


PAIR = (point("standard", 4096, 11.9, 8580), point("flash", 4096, 1.73, 130))


def test_the_sentence_of_the_stage():
    run = run_of(
        point("standard", 512, 0.26, 160), point("flash", 512, 0.07, 16), *PAIR, point("standard", 32_768, status="oom")
    )
    assert summary.sentence(run) == (
        "At sequence 4,096 flash is 6.9× faster and needs 66× less memory; standard runs out of memory at 32,768."
    )


def test_slower_and_hungrier_is_said():
    run = run_of(point("standard", 512, 1.0, 10), point("flash", 512, 1.4, 15))
    assert summary.sentence(run) == "At sequence 512 flash is 1.4× slower and needs 1.5× more memory."


def test_even_is_not_a_win():
    even = run_of(point("standard", 512, 1.02, 10), point("flash", 512, 1.0, 10))
    assert summary.sentence(even) == (
        "At sequence 512 flash is as fast as standard, as far as the samples can tell, and needs as much memory."
    )
    overlapping = run_of(
        point("standard", 512, 1.3, 20, device_ms_low=0.9, device_ms_high=1.5),
        point("flash", 512, 1.0, 10, device_ms_low=0.8, device_ms_high=1.1),
    )
    assert "as fast as standard" in summary.sentence(overlapping)
    assert "needs 2.0× less memory" in summary.sentence(overlapping)


def test_foreseen_out_of_memory_says_that_it_was_not_tried():
    run = run_of(*PAIR, point("standard", 32_768, status="oom", predicted_bytes=256 << 30))
    assert summary.sentence(run).endswith(
        "; standard is predicted to run out of memory at 32,768 (needs 256 GiB; not tried)."
    )


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("unsupported", "flash cannot run at 8,192 (why)"),
        ("skipped", "flash was skipped at 8,192 (why)"),
        ("timeout", "flash ran into the time limit at 8,192 (why)"),
        ("fault", "flash failed at 8,192 (why)"),
        ("suspect", "flash is suspect and not counted at 8,192 (why)"),
    ],
)
def test_every_status_has_words_and_is_no_figure(status, words):
    run = run_of(
        *PAIR, point("standard", 8192, 50.0, 9000), point("flash", 8192, 0.001, 1, status=status, reason="why.")
    )
    said = summary.sentence(run)
    assert said.startswith("At sequence 4,096 flash is 6.9× faster")
    assert said.endswith(f"; {words}.")
    top = summary.headline(run, 8192)
    assert (top.standard_ms, top.flash_ms, top.speedup, top.memory_ratio) == (50.0, None, None, None)
    assert words in top.note


LOST = "the worker cannot start, tried 3 times: PyTorch cannot be loaded. Install what is missing"


def test_what_nobody_began_is_told_once_and_of_no_path():
    left = [
        point(path, seq, status="unreached", reason=LOST) for path in ("standard", "flash") for seq in (8192, 16_384)
    ]
    run = run_of(*PAIR, *left, state="failed", reason=LOST)
    assert summary.sentence(run).endswith(
        "; 4 points were not reached (the worker cannot start, tried 3 times: PyTorch cannot be loaded)."
    )
    assert summary.headline(run, 8192).note == "standard was not reached at 8,192; flash was not reached at 8,192"
    nothing = run_of(*left, state="failed", reason=LOST)
    assert summary.sentence(nothing) == f"The run failed before anything was measured: {LOST}."


def test_each_kind_of_trouble_once_at_its_shortest_sequence():
    run = run_of(
        *PAIR,
        point("standard", 16_384, status="oom"),
        point("standard", 32_768, status="oom", predicted_bytes=256 << 30),
        point("flash", 32_768, status="skipped"),
    )
    assert summary.sentence(run).endswith("standard runs out of memory at 16,384; flash was skipped at 32,768.")


def test_beside_a_launch_bound_point_the_replays_stand_without_a_winner():
    run = run_of(
        point("standard", 128, 0.05, 16, graph_ms=0.0451),
        point("flash", 128, 0.01, 4, launch_bound=True, graph_ms=0.00896),
    )
    said = summary.sentence(run)
    assert "; as CUDA graphs they take 0.0451 ms and 0.00896 ms; flash needs 4.0× less memory there." in said
    assert "faster" not in said


def test_the_sentence_speaks_of_the_two_that_are_compared():
    more = (point("sdpa-math", 8192, status="oom"), point("sdpa-flash", 4096, status="unsupported", reason="no"))
    run = run_of(*PAIR, *more, paths=("standard", "flash", "sdpa-math", "sdpa-flash"))
    assert summary.sentence(run) == summary.sentence(run_of(*PAIR))
    alone = run_of(*more, point("sdpa-math", 4096, 3.0), paths=("sdpa-math", "sdpa-flash"))
    assert "sdpa-math runs out of memory at 8,192" in summary.sentence(alone)


def test_a_long_reason_is_read_out_to_its_first_full_stop_and_no_further_than_a_breath():
    reason = "For dense input, query and key need the same heads. Query.sizes(): [1, 4, 128, 128]"
    run = run_of(*PAIR, point("flash", 8192, status="unsupported", reason=reason))
    assert summary.sentence(run).endswith("(For dense input, query and key need the same heads).")
    run = run_of(*PAIR, point("flash", 8192, status="unsupported", reason="word " * 200))
    assert len(summary.sentence(run)) < 300 and "word …)" in summary.sentence(run)


def test_reason_does_not_repeat_the_path():
    run = run_of(*PAIR, point("flash", 8192, status="unsupported", reason="flash needs an NVIDIA GPU"))
    assert summary.sentence(run).endswith("; flash cannot run at 8,192 (needs an NVIDIA GPU).")


def test_launch_bound_point_is_no_win():
    run = run_of(point("standard", 128, 0.05, 16), point("flash", 128, 0.01, 4, launch_bound=True))
    assert summary.sentence(run) == (
        "At sequence 128 standard and flash are too short to compare: the host's launch cost dominates;"
        " flash needs 4.0× less memory there."
    )
    top = summary.headline(run)
    assert (top.speedup, top.memory_ratio, top.note) == (None, 4.0, summary.TOO_SHORT)


def test_paths_without_a_comparison():
    only = run_of(point("standard", 4096, 11.9), paths=("standard",))
    assert summary.sentence(only) == (
        "Only standard is in this run, so there is no speed-up; at sequence 4,096 standard takes 11.9 ms."
    )
    others = run_of(
        point("flash", 4096, 1.73),
        point("sdpa-cudnn", 4096, 1.86),
        point("flash", 512, 0.1),
        paths=("flash", "sdpa-cudnn"),
    )
    assert summary.sentence(others) == (
        "Standard is not in this run, so there is no speed-up; at sequence 4,096 the fastest is flash with 1.73 ms."
    )
    assert summary.headline(others) == summary.Headline(path="flash", note="no sequence was measured by both paths")


def test_first_other_path_stands_in_for_flash():
    run = run_of(point("standard", 4096, 12.0), point("sdpa-cudnn", 4096, 2.0), paths=("standard", "sdpa-cudnn"))
    assert summary.sentence(run) == "At sequence 4,096 sdpa-cudnn is 6.0× faster."
    assert summary.headline(run).path == "sdpa-cudnn"


def test_no_common_sequence():
    run = run_of(point("standard", 4096, status="oom"), point("flash", 4096, 1.0))
    assert summary.sentence(run) == (
        "Standard and flash were both measured at no sequence, so there is no speed-up;"
        " standard runs out of memory at 4,096."
    )


def test_nothing_measured():
    assert summary.sentence(run_of(state="running")) == "Nothing is measured yet."
    assert summary.sentence(run_of(state="failed", reason="torch is missing.")) == (
        "The run failed before anything was measured: torch is missing."
    )
    assert summary.sentence(run_of(state="cancelled")) == "The run was cancelled before anything was measured."


def test_recorded_run_ends_with_its_mark():
    run = run_of(*PAIR, recorded=True)
    assert summary.sentence(run) == (
        "At sequence 4,096 flash is 6.9× faster and needs 66× less memory (recorded on NVIDIA H200, 2026-11-30)."
    )


def test_on_a_cpu_memory_is_host_memory():
    run = run_of(*PAIR, point("standard", 8192, status="oom"), device=CPU)
    assert "66× less host memory; standard runs out of host memory at 8,192" in summary.sentence(run)


def test_headline_at_a_chosen_sequence():
    run = run_of(
        *PAIR, point("standard", 8192, 50.9, 33_280), point("flash", 8192, 6.68, 260), point("flash", 16_384, 26.9, 520)
    )
    assert summary.headline(run).seq == 8192
    top = summary.headline(run, 4096)
    assert (top.seq, top.standard_ms, top.flash_ms) == (4096, 11.9, 1.73)
    assert top.speedup == pytest.approx(6.879, abs=1e-3)
    assert top.memory_ratio == 66.0
    assert summary.headline(run, 16_384).note == "standard is not measured at 16,384"


def test_different_clocks_are_said_and_the_figure_stays():
    fast, slow = {"clock_mhz": 1980.0}, {"clock_mhz": 1635.0}
    run = run_of(point("standard", 512, 2.0, **fast), point("flash", 512, 1.0, **slow))
    top = summary.headline(run)
    assert (top.speedup, top.note) == (2.0, "measured at different clocks: 1,980 and 1,635 MHz")
    within = run_of(point("standard", 512, 2.0, **fast), point("flash", 512, 1.0, clock_mhz=1890.0))
    unknown = run_of(point("standard", 512, 2.0, **fast), point("flash", 512, 1.0))
    assert summary.headline(within).note == summary.headline(unknown).note == ""
    short = run_of(point("standard", 512, 2.0, **fast), point("flash", 512, 1.0, launch_bound=True, **slow))
    assert summary.headline(short).note == summary.TOO_SHORT


def test_missing_memory_leaves_the_speed():
    run = run_of(point("standard", 512, 2.0, None), point("flash", 512, 1.0, 10))
    assert summary.sentence(run) == "At sequence 512 flash is 2.0× faster."
