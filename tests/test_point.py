"""One point from end to end in one process: what is in a measurement, and that every failure is one too."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch
from torch.autograd.profiler import profile

from attnlab import cost
from attnlab.measure import point as point_module
from attnlab.measure.inputs import make_call, make_inputs
from attnlab.measure.point import Bench, out_of_memory
from attnlab.measure.series import Stop
from attnlab.measurement import Measurement
from attnlab.paths import FAULTS, PATHS, PathInfo
from attnlab.paths.base import load
from attnlab.paths.faulty import COMPILES_S
from attnlab.problem import BACKWARD, FORWARD_BACKWARD, AttentionProblem

GIB = 1 << 30
MIB = 1 << 20
CPU_PROBLEM = AttentionProblem(batch=1, seq_q=512, heads=8, head_dim=64, dtype="float32")


@pytest.fixture(autouse=True)
def faulty_paths(monkeypatch):
    for fault in FAULTS:
        monkeypatch.setitem(PATHS, f"faulty-{fault}", PathInfo(f"faulty-{fault}", "faulty", ""))


@pytest.fixture
def bench():
    return Bench(torch.device("cpu"))


def visit(bench, problem, paths, *, phase="quick", budget_s=0.05, min_samples=3, l2="cold") -> dict[str, Measurement]:
    found: dict[str, Measurement] = {}

    def say(event, **fields):
        if event == "measurement":
            m = Measurement.from_json(fields["measurement"])
            found[m.path] = m

    stop = Stop(budget_s=budget_s, min_samples=min_samples, target=0.01)
    bench.step(problem, list(paths), phase=phase, stop=stop, check=lambda: None, say=say, l2=l2)
    return found


def test_a_point_on_the_cpu_holds_what_was_measured(bench):
    points = visit(bench, CPU_PROBLEM, ["standard", "flash"])
    for m in points.values():
        assert m.status == "ok" and m.samples == len(m.samples_ms) - len(m.unused) > 0
        assert m.device_ms_low <= m.device_ms <= m.device_ms_high
        assert m.flops == cost.flops(CPU_PROBLEM) and m.first_call_s > 0
        assert "host time" in m.clock and "profiler" in m.memory_source
        assert m.error < 2e-5 and 0 < m.standard_error < 2e-5
    assert points["flash"].peak_bytes < points["standard"].peak_bytes / 5


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"seq_q": 1024},
        {"causal": True},
        {"direction": FORWARD_BACKWARD},
        {"direction": BACKWARD},
        {"dtype": "bfloat16"},
        {"lengths": [300], "seq_kv": 512},
        {"batch": 2, "direction": FORWARD_BACKWARD},
        {"batch": 2, "kv_heads": 2},
        {"batch": 2, "kv_heads": 2, "direction": FORWARD_BACKWARD},
        {"kv_heads": 2, "direction": FORWARD_BACKWARD},
        {"kv_heads": 2, "direction": BACKWARD},
    ],
    ids=str,
)
def test_host_memory_of_standard_is_what_the_plan_says(bench, changes):
    problem = AttentionProblem.from_json({**CPU_PROBLEM.to_json(), "seq_kv": None, **changes})
    measured = visit(bench, problem, ["standard"])["standard"].peak_bytes
    assert measured == pytest.approx(cost.predicted_peak_bytes(problem, "standard", "cpu"), rel=0.05)


@pytest.mark.parametrize("path", ["standard", "flash", "sdpa-math"])
@pytest.mark.parametrize("changes", [{}, {"batch": 2}, {"batch": 2, "kv_heads": 2}], ids=str)
def test_what_a_forward_pass_saves_is_what_the_plan_says(path, changes):
    """Held by the call while nothing runs, which the planner counts beside the inputs."""
    problem = replace(CPU_PROBLEM, **{"direction": BACKWARD, **changes})
    inputs = make_inputs(problem, torch.device("cpu"))
    attention = load({"flash": "sdpa-flash"}.get(path, path), torch.device("cpu")).build(problem)
    held = 0
    with profile(profile_memory=True) as profiler:
        call = make_call(attention, problem, *inputs)
    for event in profiler.kineto_results.events():
        held += event.nbytes() if event.name() == "[memory]" else 0
    assert held == pytest.approx(cost.saved_bytes(problem, path, "cpu"), rel=0.1)
    assert len(call()) == 3


@pytest.mark.parametrize("direction", ["forward", BACKWARD])
def test_a_padded_batch_is_a_point_like_any_other(bench, direction):
    problem = AttentionProblem(
        batch=3, seq_q=64, heads=4, head_dim=32, dtype="float32", direction=direction, lengths=(64, 0, 9)
    )
    points = visit(bench, problem, ["standard", "flash", "sdpa-math"])
    for m in points.values():
        assert m.status == "ok" and m.flops == cost.flops(problem) and m.problem == problem
        assert "119 of 192 query rows are padding; output 0, no part of the work counted" in m.notes


def test_a_second_visit_does_not_time_the_first_call_again(bench):
    first = visit(bench, CPU_PROBLEM, ["flash"])["flash"]
    again = visit(bench, CPU_PROBLEM, ["flash"], phase="refined", min_samples=10)["flash"]
    assert again.first_call_s == first.first_call_s and len(again.samples_ms) >= 10 and again.phase == "refined"


@pytest.mark.parametrize("path", ["faulty-wrong", "faulty-zeros"])
def test_a_wrong_answer_is_suspect_and_says_by_how_much(bench, path):
    points = visit(bench, CPU_PROBLEM, [path, "standard"])
    assert points[path].status == "suspect" and "away from float64" in points[path].reason
    assert points["standard"].status == "ok"


def test_a_compilation_inside_the_clock_is_kept_out_of_the_median(bench):
    for _ in range(
        3
    ):  # on a machine that turns to other work meanwhile, half of the samples may be "far above the smallest"
        m = visit(bench, CPU_PROBLEM, ["faulty-compiles"], phase="refined", min_samples=10)["faulty-compiles"]
        if m.unused:
            break
    assert m.ok and max(m.samples_ms) > 1e3 * COMPILES_S > 2 * m.device_ms_high
    assert m.samples_ms.index(max(m.samples_ms)) in m.unused and m.samples == len(m.samples_ms) - len(m.unused)
    assert any("outlier" in note for note in m.notes)


def test_a_compiled_path_says_that_it_compiles_and_its_first_call_holds_it(bench):
    if bench.trials.paths["compiled"].status().state == "missing":
        pytest.skip("no compiler here")
    said = []
    problem = AttentionProblem(batch=1, seq_q=64, heads=2, head_dim=32, dtype="float32")

    def say(event, **fields):
        said.append((event, fields.get("text", "")))
        if event == "measurement":
            said.append(
                ("first_call_s", fields["measurement"]["first_call_s"] > fields["measurement"]["wall_ms"] / 1e3)
            )

    bench.step(problem, ["compiled"], phase="quick", stop=Stop(0.05, 3, 0.01), check=lambda: None, say=say)
    events = [event for event, _ in said]
    assert events == ["started", "compiling", "compiling", "running", "measurement", "first_call_s"]
    assert said[2][1] == "compiling compiled for sequence 64" and said[-1][1]
    bench.step(problem, ["compiled"], phase="refined", stop=Stop(0.05, 3, 0.01), check=lambda: None, say=say)
    assert [event for event, _ in said[6:]] == ["started", "running", "measurement", "first_call_s"]


def test_a_host_begins_each_visit_anew(bench):
    """Its quick samples may have waited for whatever else ran then."""
    quick = visit(bench, CPU_PROBLEM, ["flash"])["flash"]
    refined = visit(bench, CPU_PROBLEM, ["flash"], phase="refined", min_samples=10)["flash"]
    assert len(refined.samples_ms) >= 10 and not set(quick.samples_ms) & set(refined.samples_ms)


def test_running_out_of_memory_is_a_result_and_the_step_goes_on(bench):
    points = visit(bench, CPU_PROBLEM, ["faulty-oom", "standard"])
    assert points["faulty-oom"].status == "oom" and points["faulty-oom"].device_ms is None
    assert points["standard"].status == "ok"


def test_f22_everything_is_asked_of_the_device_that_was_chosen(monkeypatch):
    asked = []

    def ask(name):
        return lambda device: asked.append((name, str(device)))

    for name in ("device_facts", "Trials", "make_timer", "_take_workspaces"):
        monkeypatch.setattr(point_module, name, ask(name))
    monkeypatch.setattr(torch.cuda, "set_device", ask("set_device"))
    Bench(torch.device("cuda:1"))
    assert asked[0] == ("set_device", "cuda:1")  # or what comes next would find the first
    assert len(asked) == 5 and {device for _, device in asked} == {"cuda:1"}


def test_what_ran_is_read_at_the_size_that_was_measured(monkeypatch):
    """A library may choose another kernel for a longer problem than for the trial's."""
    monkeypatch.setattr(point_module.memory, "host_peak", lambda call: (1 << 20, "kernel_of_this_size"))
    m = visit(Bench(torch.device("cpu")), CPU_PROBLEM, ["sdpa-flash"])["sdpa-flash"]
    assert m.provider == f"PyTorch {torch.__version__} · kernel_of_this_size" and m.peak_bytes == 1 << 20


def test_memory_that_runs_out_is_tried_once_more_with_nothing_in_the_way(bench, monkeypatch):
    """What the allocator keeps in pieces may have been in the way."""
    made = []

    def make_call(*arguments):
        made.append(arguments[2])
        if len(made) == 1:
            raise torch.OutOfMemoryError("in pieces")
        return make_call_itself(*arguments)

    make_call_itself = point_module.make_call
    monkeypatch.setattr(point_module, "make_call", make_call)
    m = visit(bench, CPU_PROBLEM, ["standard"])["standard"]
    assert m.status == "ok" and len(made) == 2 and made[0] is not made[1] and torch.equal(*made)


def test_what_a_library_raises_is_a_fault_with_its_first_line(bench, monkeypatch):
    def broken(*arguments):
        raise TypeError("first line\nsecond line")

    monkeypatch.setattr(point_module, "make_call", broken)
    m = visit(bench, CPU_PROBLEM, ["standard"])["standard"]
    assert m.status == "fault" and m.reason == "standard: first line"


def test_an_unsupported_path_is_a_cell_without_a_number(bench):
    m = visit(bench, CPU_PROBLEM, ["sdpa-cudnn"])["sdpa-cudnn"]
    assert m.status == "unsupported" and "NVIDIA GPU" in m.reason and m.device_ms is None


# On a GPU ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cuda_bench():
    return Bench(torch.device("cuda:0"))


@pytest.fixture
def faulty_bench():
    """Made when the faulty paths are there."""
    return Bench(torch.device("cuda:0"))


@pytest.mark.gpu
def test_f11_what_runs_out_of_memory_does_not_depend_on_the_order_of_the_points():
    torch.cuda.set_per_process_memory_fraction(8 * GIB / torch.cuda.get_device_properties(0).total_memory)
    try:
        problem = AttentionProblem(batch=1, seq_q=16_384, heads=16, head_dim=64)
        for seqs in ((1024, 4096, 16_384), (16_384, 4096, 1024)):
            for paths in (("standard", "sdpa-flash"), ("sdpa-flash", "standard")):
                bench = Bench(torch.device("cuda:0"))  # which remembers nothing of the other orders
                gc.collect()
                before, ran_out = torch.cuda.memory_allocated(), set()
                for seq in seqs:
                    points = visit(bench, problem.at_seq(seq), paths)
                    ran_out |= {(m.path, seq) for m in points.values() if m.status == "oom"}
                    gc.collect()
                    assert abs(torch.cuda.memory_allocated() - before) < MIB, (seqs, paths, seq)
                assert ran_out == {("standard", 16_384)}, (seqs, paths)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_f11_running_out_says_what_was_asked_for_what_is_free_and_the_limit():
    text = (
        "CUDA out of memory. Tried to allocate 16.00 GiB. GPU 0 has a total capacity of 139.72 GiB of which 7.81 GiB is "
        "free. Including non-PyTorch memory, this process has 131.91 GiB memory in use. Of the allocated memory 1 GiB"
    )
    said = out_of_memory(torch.OutOfMemoryError(text))
    assert all(words in said for words in ("16.00 GiB", "capacity of 139.72 GiB", "7.81 GiB is free"))
    assert "Including" not in said


@pytest.mark.gpu
def test_f11_after_running_out_of_memory_the_allocator_is_where_it_was(cuda_bench):
    torch.cuda.set_per_process_memory_fraction(8 * GIB / torch.cuda.get_device_properties(0).total_memory)
    try:
        problem = AttentionProblem(batch=1, seq_q=16_384, heads=16, head_dim=64)
        gc.collect()
        before = torch.cuda.memory_allocated()
        points = visit(cuda_bench, problem, ["standard", "sdpa-flash"])
        assert points["standard"].status == "oom" and "GiB" in points["standard"].reason
        assert points["sdpa-flash"].status == "ok" and points["sdpa-flash"].peak_bytes < 40 * MIB
        gc.collect()
        assert abs(torch.cuda.memory_allocated() - before) < MIB
        assert visit(cuda_bench, problem.at_seq(2048), ["standard"])["standard"].status == "ok"
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.gpu
def test_f12_peak_memory_is_that_of_one_call(cuda_bench):
    problem = AttentionProblem(batch=1, seq_q=8192, heads=16, head_dim=128)
    paths = ["flash-attn-2", "sdpa-flash", "standard"]
    first = visit(cuda_bench, problem, paths)
    spare = torch.empty(GIB, dtype=torch.uint8, device="cuda:0")
    del spare
    again = visit(Bench(torch.device("cuda:0")), problem, paths)
    for name in paths:
        if first[name].status == "unsupported":
            assert "not installed" in first[name].reason
            continue
        assert abs(first[name].peak_bytes - again[name].peak_bytes) < MIB, name
        assert first[name].reserved_bytes >= first[name].peak_bytes, name
        assert first[name].device_used_bytes >= first[name].reserved_bytes, name
        if name != "standard":
            assert 32.5 * MIB <= first[name].peak_bytes <= 40 * MIB, name
    assert first["standard"].peak_bytes == pytest.approx(cost.predicted_peak_bytes(problem, "standard"), rel=0.05)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "changes",
    [{"causal": True}, {"direction": FORWARD_BACKWARD}, {"direction": FORWARD_BACKWARD, "causal": True}],
    ids=str,
)
def test_the_plan_holds_on_the_device_too(cuda_bench, changes):
    problem = AttentionProblem(**{"batch": 1, "seq_q": 4096, "heads": 16, "head_dim": 128, **changes})
    measured = visit(cuda_bench, problem, ["standard"])["standard"].peak_bytes
    assert measured == pytest.approx(cost.predicted_peak_bytes(problem, "standard"), rel=0.05)


@pytest.mark.gpu
def test_f13_no_latency_is_below_what_the_hardware_allows(cuda_bench):
    from attnlab import hardware

    peak = hardware.dense_peak_tflops(torch.cuda.get_device_name(0), "bfloat16")
    if peak is None:
        pytest.skip("no data sheet peak is known for this device")
    problem = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128)
    points = visit(cuda_bench, problem, [name for name in PATHS if not name.startswith("faulty")])
    measured = {name: m for name, m in points.items() if m.device_ms}
    assert "standard" in measured and "flash" in measured
    for name, m in measured.items():
        assert m.status == "ok", (name, m.reason)
        assert m.device_ms >= m.flops / peak / 1e9, name


@pytest.mark.gpu
def test_work_outside_the_timed_stream_is_impossible(faulty_bench):
    problem = AttentionProblem(batch=4, seq_q=2048, heads=32, head_dim=128)
    for phase in ("quick", "refined"):
        m = visit(faulty_bench, problem, ["faulty-unsynced"], phase=phase)["faulty-unsynced"]
        assert m.status == "suspect" and "impossible" in m.reason, (phase, m)


@pytest.mark.gpu
@pytest.mark.parametrize("path", ["faulty-wrong", "faulty-zeros"])
def test_a_planted_wrong_answer_is_found_on_the_device(faulty_bench, path):
    problem = AttentionProblem(batch=2, seq_q=1024, heads=4, head_dim=128)  # F16
    points = visit(faulty_bench, problem, [path, "standard", "flash"])
    assert points[path].status == "suspect" and "away from float64" in points[path].reason
    assert points["standard"].status == points["flash"].status == "ok"


@pytest.mark.gpu
def test_a_planted_compilation_is_kept_out_on_the_device(faulty_bench):
    problem = AttentionProblem(batch=4, seq_q=1024, heads=32, head_dim=128)
    points = visit(faulty_bench, problem, ["faulty-compiles", "standard"], phase="refined", min_samples=10)
    m, plain = points["faulty-compiles"], points["standard"]
    assert m.ok and m.unused and m.device_ms == pytest.approx(plain.device_ms, rel=0.1)
    assert m.device_ms_high < COMPILES_S * 1e3 / 10


@pytest.mark.gpu
def test_samples_of_two_visits_are_one_series_on_a_device(cuda_bench):
    problem = AttentionProblem(batch=4, seq_q=1024, heads=32, head_dim=128)
    quick = visit(cuda_bench, problem, ["standard"])["standard"]
    refined = visit(cuda_bench, problem, ["standard"], phase="refined", min_samples=len(quick.samples_ms) + 4)[
        "standard"
    ]
    assert refined.samples_ms[: len(quick.samples_ms)] == quick.samples_ms


@pytest.mark.gpu
def test_a_point_has_three_clocks(cuda_bench):
    problem = AttentionProblem(batch=4, seq_q=256, heads=32, head_dim=128)
    points = visit(cuda_bench, problem, ["standard", "flash"], phase="refined", min_samples=10)
    for m in points.values():
        assert m.ok and m.l2 == "cold" and "cold L2" in m.clock
        assert m.device_ms < m.wall_ms and m.graph_ms < m.wall_ms, m
        assert m.clock_mhz > 0 and m.power_w > 0 and m.host_ms > 0


@pytest.mark.gpu
def test_a_decode_step_over_a_short_cache_shows_what_a_hot_cache_hides(cuda_bench):
    """One query over 8 MiB of keys and values: they fit into L2 and stay there between samples that do not flush it."""
    problem = AttentionProblem(batch=1, seq_q=1, seq_kv=2048, heads=8, head_dim=128)
    cold, hot = (
        visit(cuda_bench, problem, ["sdpa-efficient"], phase="refined", min_samples=20, l2=l2)["sdpa-efficient"]
        for l2 in ("cold", "hot")
    )
    assert (cold.l2, hot.l2) == ("cold", "hot")
    assert hot.device_ms < cold.device_ms


@pytest.mark.gpu
def test_f14_a_shape_measured_first_and_third_agrees(cuda_bench):
    shapes = [
        AttentionProblem(batch=1, seq_q=s, heads=8, head_dim=128, causal=True, direction=FORWARD_BACKWARD)
        for s in (1024, 2048, 1024)
    ]
    first, _, third = (visit(cuda_bench, p, ["flash"], budget_s=0.5, min_samples=20)["flash"] for p in shapes)
    assert first.status == third.status == "ok", (first.reason, third.reason)
    assert first.device_ms == pytest.approx(third.device_ms, rel=0.1)


@pytest.mark.gpu
def test_f15_short_sequences_are_marked_launch_bound(cuda_bench):
    for seq in (64, 128, 256, 512):
        problem = AttentionProblem(batch=1, seq_q=seq, heads=8, head_dim=64)
        m = visit(cuda_bench, problem, ["flash"])["flash"]
        assert m.launch_bound and m.host_ms > m.device_ms, (seq, m)


def test_a_worker_that_lives_for_days_forgets_its_oldest_points(monkeypatch):
    monkeypatch.setattr("attnlab.measure.point.POINTS_KEPT", 2)
    bench = Bench(torch.device("cpu"))
    for seq in (16, 32, 48):
        for phase in ("quick", "refined"):
            visit(
                bench,
                AttentionProblem(batch=1, seq_q=seq, heads=1, head_dim=32, dtype="float32"),
                ["flash"],
                phase=phase,
            )
    assert [problem.seq_q for _, problem in bench._known] == [32, 48] and len(bench._series) == 2
