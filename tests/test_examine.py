"""Looks at the answers through the bench, as the worker asks for them: what is right passes, what is planted is found."""

from __future__ import annotations

import pytest
import torch

from attnlab import cost, edges
from attnlab.measure import determinism as determinism_module
from attnlab.measure.edges import EDGES
from attnlab.measure.examine import examiner
from attnlab.measure.point import Bench
from attnlab.measure.support import FEATURES
from attnlab.measurement import Measurement
from attnlab.paths import PATHS, PathInfo
from attnlab.paths.base import Path
from attnlab.problem import AttentionProblem

SMALL = AttentionProblem(
    batch=1, seq_q=64, heads=4, kv_heads=2, head_dim=32, dtype="float32", direction="forward+backward"
)
NOT_COMPILED = [name for name in PATHS if name not in ("compiled", "flex") and not name.startswith("faulty")]


def look(bench: Bench, problem: AttentionProblem, paths: list[str], task: str) -> dict[str, Measurement]:
    points = {}

    def say(event, **fields):
        if event == "measurement":
            m = Measurement.from_json(fields["measurement"])
            points[m.path] = m

    bench.examine(problem, paths, task=task, check=lambda: None, say=say)
    return points


@pytest.fixture(scope="module")
def bench():
    return Bench(torch.device("cpu"))


@pytest.fixture(scope="module")
def cuda_bench():
    return Bench(torch.device("cuda:0"))


def by_name(m: Measurement):
    return {(f.what, f.mode): f for f in m.findings}


def test_an_unknown_task_is_refused(bench):
    with pytest.raises(KeyError):
        examiner("speed", SMALL, bench.trials, bench.timer, lambda: None)


def test_exactness_is_a_measurement_with_findings_and_no_time(bench):
    points = look(bench, SMALL, ["standard", "flash", "flash-attn-2"], "exactness")
    assert points["standard"].status == points["flash"].status == "ok"
    assert points["flash"].device_ms is None and len(points["flash"].findings) == 5
    assert points["flash"].provider.startswith("PyTorch")
    assert points["flash-attn-2"].status == "unsupported" and not points["flash-attn-2"].findings


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_exactness_looks_at_what_the_direction_computes(bench, direction):
    problem = AttentionProblem(batch=2, seq_q=64, heads=2, head_dim=32, direction=direction, lengths=(64, 20))
    found = look(bench, problem, ["standard"], "exactness")["standard"].findings
    assert [f.what for f in found[:-1]] == list(problem.outputs)
    assert found[0].values["compared"] == 84 * 2 * 32 and found[0].values["of"] == 128 * 2 * 32
    assert {f.verdict for f in found} == {"pass"}


def test_a_planted_scale_is_suspect_with_its_reason(monkeypatch):
    monkeypatch.setitem(PATHS, "faulty-wrong", PathInfo("faulty-wrong", "faulty", "a test path: wrong"))
    m = look(Bench(torch.device("cpu")), SMALL.at_seq(320), ["faulty-wrong"], "exactness")["faulty-wrong"]
    assert m.status == "suspect" and m.reason.startswith("exactness: O is ") and m.findings[0].failed


def test_repeats_of_a_host_are_equal_in_both_modes(bench):
    found = by_name(look(bench, SMALL, ["standard"], "determinism")["standard"])
    assert set(found) == {(what, mode) for what in ("O", "dQ", "dK", "dV") for mode in ("default", "deterministic")}
    assert all(f.verdict == "pass" and f.values["identical"] == f.values["repeats"] == 10 for f in found.values())
    assert all(found["O", mode].values["device_ms"] > 0 for mode in ("default", "deterministic"))
    assert not torch.are_deterministic_algorithms_enabled()


class Drifting(Path):
    """Each call answers a little more than the one before."""

    calls = 0

    def build(self, problem):
        def attention(q, k, v):
            self.calls += 1
            return torch.zeros_like(q) + 1e-3 * self.calls

        return attention


def test_a_promise_that_is_not_kept_fails_and_a_spread_without_one_does_not(bench):
    from attnlab.measure.trial import Verdict

    problem = AttentionProblem(batch=1, seq_q=8, heads=1, head_dim=8, dtype="float32")
    looking = determinism_module.Determinism(problem, torch.device("cpu"), bench.timer, lambda: None)
    default, promised = looking.look("drifting", Verdict(Drifting("drifting", torch.device("cpu")), ""))
    assert default.verdict == "pass" and default.values["spread_max_abs"] == pytest.approx(0.01, rel=0.01)
    assert promised.verdict == "fail" and promised.values["identical"] == 0 and "not kept" in promised.text


def test_the_global_switch_is_as_it_was_even_after_an_error():
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(ZeroDivisionError), determinism_module.deterministic(False):
            assert not torch.are_deterministic_algorithms_enabled()
            raise ZeroDivisionError
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_every_edge_has_its_why_and_the_cpu_paths_answer_right_in_float32(bench):
    assert [edge.name for edge in EDGES] == list(edges.WHY)
    for name, m in look(bench, SMALL, ["standard", "sdpa-flash", "sdpa-math"], "edges").items():
        assert [f.what for f in m.findings] == list(edges.WHY)
        assert {f.verdict for f in m.findings} <= {"pass", "unsupported"}, (name, m.findings)


def test_scores_beyond_float16_break_standard_attention_and_not_flash(bench):
    problem = AttentionProblem(batch=1, seq_q=64, heads=2, head_dim=64, dtype="float16")
    points = look(bench, problem, ["standard", "sdpa-flash"], "edges")
    standard, flash = (by_name(points[name])[edges.LARGE_LOGITS, ""] for name in ("standard", "sdpa-flash"))
    assert flash.verdict == "pass"
    if standard.verdict == "fail":  # a library that scales before it rounds would pass, and that is right too
        assert standard.values["got"] is None and "nan" in standard.text
        assert points["standard"].status == "suspect" and edges.LARGE_LOGITS in points["standard"].reason


def test_a_wrong_answer_at_an_edge_stands_beside_the_right_one():
    from attnlab.measure.edges import compared

    right = {"O": torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)}
    wrong = compared("rows", {"O": torch.tensor([0.0, 1.5, 2.0], dtype=torch.float64)}, right, 0.01)
    assert wrong.verdict == "fail" and wrong.text == "answers 1.5 in O where 1 is right"
    assert (wrong.values["got"], wrong.values["right"]) == (1.5, 1.0)
    nan = compared("rows", {"O": torch.tensor([0.0, 1.0, torch.nan], dtype=torch.float64)}, right, 0.01)
    assert nan.verdict == "fail" and nan.values["got"] is None and nan.values["max_abs"] is None
    assert compared("rows", right, right, 0.01).verdict == "pass"


@pytest.mark.parametrize("more", [{}, {"causal": True}, {"kv_heads": 2}, {"causal": True, "seq_kv": 80}], ids=str)
def test_anatomy_takes_standard_attention_apart_line_by_line(bench, more):
    problem = AttentionProblem(**{"batch": 2, "seq_q": 64, "heads": 4, "head_dim": 32, "dtype": "float32"} | more)
    points = look(bench, problem, ["standard", "flash"], "anatomy")
    found = {f.what: f for f in points["standard"].findings}
    lines = ["QKᵀ", "scale", *(["mask"] if problem.causal else []), "softmax", "AV"]
    expand = ["K and V for each query head"] if problem.kv_heads < problem.heads else []
    assert list(found) == [*expand, *lines, "transpose of Q", "contiguous Q"]
    for operation in cost.standard_operations(problem):
        values = found[operation.name].values
        assert (values["read_bytes"], values["write_bytes"]) == (operation.read_bytes, operation.write_bytes)
        assert values["device_ms"] > 0 and found[operation.name].text
    assert found["contiguous Q"].values["read_bytes"] == cost.query_bytes(problem)
    (flash,) = points["flash"].findings
    assert flash.what == "kernel" and "flash" in flash.text
    assert flash.values["read_bytes"] + flash.values["write_bytes"] == cost.min_bytes(problem)


def test_support_names_every_feature_once_and_says_why_not(bench):
    points = look(bench, SMALL, ["standard", "sdpa-math", "sdpa-cudnn"], "support")
    names = [feature.name for feature in FEATURES if feature.needs("cpu")]
    assert len(set(names)) == len(names)
    for name, m in points.items():
        assert [f.what for f in m.findings] == names
        assert all(f.text for f in m.findings), name
    assert {f.verdict for f in points["standard"].findings} == {"pass"}
    assert {f.verdict for f in points["sdpa-cudnn"].findings} == {"unsupported"}


# On a GPU ------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_f16_every_path_that_runs_is_as_exact_as_its_dtype_allows(cuda_bench, dtype):
    problem = AttentionProblem(batch=2, seq_q=1_024, heads=4, head_dim=128, dtype=dtype, direction="forward+backward")
    points = look(cuda_bench, problem, NOT_COMPILED, "exactness")
    assert all(m.status in ("ok", "unsupported") and (m.findings or m.reason) for m in points.values()), points
    assert points["standard"].status == points["sdpa-math"].status == "ok"
    if dtype == "bfloat16":
        error = {name: by_name(points[name])["O", ""].values["relative"] for name in ("standard", "flash")}
        assert error["flash"] < error["standard"]


@pytest.mark.gpu
def test_f17_a_default_backward_may_spread_in_dq_and_a_promise_is_kept_or_says_so(cuda_bench):
    problem = AttentionProblem(batch=1, seq_q=4_096, heads=16, head_dim=128, causal=True, direction="forward+backward")
    for name, m in look(cuda_bench, problem, NOT_COMPILED, "determinism").items():
        found = by_name(m)
        if m.status == "unsupported":
            continue
        assert found["O", "default"].values["identical"] == 10, name
        for (what, mode), f in found.items():
            if mode == "deterministic" and f.verdict == "pass":
                assert f.values["spread_max_abs"] == 0.0
            elif mode == "deterministic":
                assert f.text, (name, what)
            else:
                assert f.verdict == "pass"
        if name.startswith("flash-attn"):
            assert {f.verdict for (_, mode), f in found.items() if mode == "deterministic"} == {"pass"}
            assert found["O", "deterministic"].values["peak_bytes"] > 0


@pytest.mark.gpu
def test_f10_a_batch_beyond_the_grid_runs_right_or_says_its_limit(cuda_bench):
    problem = AttentionProblem(batch=1, seq_q=16, heads=2, head_dim=64, dtype="float16")
    points = look(cuda_bench, problem, NOT_COMPILED, "support")
    for name, m in points.items():
        if m.status == "fault" or not m.provider:
            assert "memory" not in m.reason
            continue
        within, beyond = by_name(m)["batch 65,535", ""], by_name(m)["batch 65,536", ""]
        assert within.verdict == "pass", (name, within)
        assert beyond.verdict == "pass" or (beyond.verdict == "unsupported" and beyond.text), (name, beyond)
        assert "memory" not in beyond.text
    assert by_name(points["standard"])["batch 65,536", ""].verdict == "pass"
    assert {m.status for m in look(cuda_bench, problem, ["standard", "flash"], "exactness").values()} == {"ok"}


@pytest.mark.gpu
def test_f07_a_path_that_is_wrong_where_rows_see_nothing_never_passes(cuda_bench):
    """The verdict is pinned, not the library's answer: a library that is mended passes."""
    problem = AttentionProblem(batch=1, seq_q=64, heads=2, head_dim=64, dtype="float16", direction="forward+backward")
    for name, m in look(cuda_bench, problem, NOT_COMPILED, "edges").items():
        for f in m.findings:
            assert f.verdict in ("pass", "unsupported") or (f.text and m.status == "suspect"), (name, f)
            if f.verdict == "pass":
                assert f.values["max_abs"] <= f.values["allowed"]
