"""Every path, on every device there is, answers what attention is defined to answer.

The uniform probe: K = 0, so every visible key weighs the same and each output row is the mean of the visible rows of V.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from attnlab import cost
from attnlab.measure.accuracy import judge, truth
from attnlab.measure.inputs import make_call, make_inputs
from attnlab.measure.trial import Trials, silent, tiny_problem
from attnlab.paths import PATHS, PathInfo, flash, flex
from attnlab.paths.base import load
from attnlab.problem import BACKWARD, DIRECTIONS, FORWARD_BACKWARD, AttentionProblem

DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module")
def trials_of():
    made = {}
    return lambda device: made.setdefault(device, Trials(torch.device(device)))


def build(trials, name, problem):
    """(attention, "") or (None, the reason it is unsupported)."""
    verdict = trials.verdict(name, problem, silent)
    return (None, verdict.reason) if verdict.reason else (verdict.path.build(problem), "")


def probe(problem, device, values):
    """Q random, K = 0, V[b, j, h, :] = values[j]."""
    q, k, v, _ = make_inputs(problem, torch.device(device))
    rows = torch.tensor(values, device=device, dtype=v.dtype)[None, :, None, None]
    return q.detach(), torch.zeros_like(k), rows.expand_as(v).contiguous()


def runnable(trials, problem):
    quick = [name for name in PATHS if not trials.paths[name].compiles]  # the others have tests of their own
    found = {name: attention for name in quick if (attention := build(trials, name, problem)[0]) is not None}
    assert "standard" in found
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_f05_layout_cannot_be_mixed_up_when_seq_equals_heads(device, trials_of):
    problem = AttentionProblem(batch=2, seq_q=16, heads=16, head_dim=64, dtype="float16")
    q, k, v = probe(problem, device, [float(s) for s in range(16)])
    paths = runnable(trials_of(device), problem)
    assert "flash" in paths
    for name, attention in paths.items():
        assert (attention(q, k, v) == 7.5).all(), name


@pytest.mark.gpu
def test_f05_an_odd_length_with_few_heads_runs_and_agrees(trials_of):
    problem = AttentionProblem(batch=1, seq_q=71_280, heads=3, head_dim=128)
    q, k, v, _ = make_inputs(problem, torch.device("cuda:0"))
    paths = {
        n: a for n in ("flash-attn-2", "flash-attn-4", "sdpa-flash") if (a := build(trials_of("cuda:0"), n, problem)[0])
    }
    assert "sdpa-flash" in paths
    for name, attention in paths.items():
        exact = truth(problem, q, k, v, None)
        assert judge(exact.errors((attention(q, k, v),)), exact.standard, problem.dtype) == "", name


@pytest.mark.gpu
def test_f22_on_a_second_device_every_path_answers_there_and_the_first_holds_nothing():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    problem = AttentionProblem(batch=2, seq_q=512, heads=8, head_dim=64)
    before = torch.cuda.memory_allocated(0)
    device = torch.device("cuda:1")
    with torch.cuda.device(device):
        q, k, v, _ = make_inputs(problem, device)
        paths = runnable(Trials(device), problem)
        assert "flash" in paths
        for name, attention in paths.items():
            torch.cuda.reset_peak_memory_stats(device)
            out = attention(q, k, torch.ones_like(v))
            assert out.device == device and (out == 1.0).all(), name
            assert torch.cuda.max_memory_allocated(device) > 0 and torch.cuda.memory_allocated(0) == before, name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_f06_causal_is_aligned_bottom_right_everywhere(device, dtype, trials_of):
    problem = AttentionProblem(batch=1, seq_q=2, seq_kv=5, heads=1, head_dim=64, dtype=dtype, causal=True)
    q, k, v = probe(problem, device, [0.0, 1.0, 2.0, 3.0, 4.0])
    for name, attention in runnable(trials_of(device), problem).items():
        out = attention(q, k, v)[0, :, 0, 0].tolist()
        assert out == pytest.approx([1.5, 2.0], abs=1e-6), name
    exact = truth(problem, q, k, v, None)
    assert {round(row[0].item(), 9) for row in exact.out} <= {1.5, 2.0}


@pytest.mark.parametrize("device", DEVICES)
def test_f07_rows_that_see_no_key_are_zero_forward_and_backward(device, trials_of):
    problem = AttentionProblem(
        batch=1, seq_q=5, seq_kv=2, heads=1, head_dim=64, dtype="float16", causal=True, direction=FORWARD_BACKWARD
    )
    q, k, v = (t.requires_grad_() for t in probe(problem, device, [1.0, 2.0]))
    ones = torch.ones_like(q)
    for name, attention in runnable(trials_of(device), problem).items():
        out, dq, _, dv = make_call(attention, problem, q, k, v, ones)()
        assert out[0, :, 0, 0].tolist() == [0.0, 0.0, 0.0, 1.0, 1.5], name
        assert (dq[0, :3] == 0).all(), name
        assert dv[0, :, 0, 0].tolist() == [1.5, 0.5], name
        assert all(torch.isfinite(t).all() for t in (out, dq, dv)), name


KINDS = [
    {},
    {"causal": True},
    {"kv_heads": 2},
    {"kv_heads": 1, "causal": True, "seq_q": 96, "seq_kv": 200},
    {"direction": FORWARD_BACKWARD},
    {"direction": FORWARD_BACKWARD, "causal": True, "kv_heads": 2},
    {"head_dim": 96, "seq_q": 77},
    {"head_dim": 256},
    {"window": 17},
    {"window": 17, "causal": True, "kv_heads": 2, "direction": FORWARD_BACKWARD},
    {"window": 1, "causal": True},
    {"window": 50, "seq_q": 96, "seq_kv": 200, "direction": FORWARD_BACKWARD},
    {"window": 9, "seq_q": 200, "seq_kv": 96, "causal": True, "direction": FORWARD_BACKWARD},
    {"window": 9, "seq_q": 200, "seq_kv": 96, "direction": FORWARD_BACKWARD},
    {"direction": BACKWARD, "causal": True, "seq_q": 96, "seq_kv": 200},
    {"lengths": (130, 77), "kv_heads": 2},
    {"lengths": (1, 129), "causal": True, "direction": FORWARD_BACKWARD},
    {"lengths": (77, 0), "window": 17, "direction": BACKWARD},
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_every_path_agrees_with_float64(device, dtype, changes, trials_of):
    problem = AttentionProblem(**{"batch": 2, "seq_q": 130, "heads": 4, "head_dim": 64, "dtype": dtype, **changes})
    inputs = make_inputs(problem, torch.device(device))
    exact = truth(problem, *inputs)
    for name, attention in runnable(trials_of(device), problem).items():
        outputs = make_call(attention, problem, *inputs)()
        assert outputs[0].shape == (problem.batch, problem.seq_q, problem.heads, problem.head_dim)
        assert judge(exact.errors(outputs), exact.standard, dtype) == "", name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("causal", "lengths", "expected"),
    [
        (True, (5, 5), [0.0, 0.5, 1.0, 2.0, 3.0]),  # its own key and two before
        (False, (5, 5), [1.0, 1.5, 2.0, 2.5, 3.0]),  # two on either side
        (True, (2, 5), [2.0, 3.0]),
        (False, (2, 5), [2.5, 3.0]),
        (True, (5, 2), [0.0, 0.0, 0.0, 0.0, 0.5]),
        (False, (6, 2), [0.0, 0.0, 0.0, 0.5, 0.5, 0.5]),  # the third sees key 0, of value 0
    ],
)
def test_a_window_of_three_by_the_uniform_probe(device, causal, lengths, expected, trials_of):
    q_len, kv_len = lengths
    problem = AttentionProblem(
        batch=1, seq_q=q_len, seq_kv=kv_len, heads=2, head_dim=64, dtype="float16", causal=causal, window=3
    )
    q, k, v = probe(problem, device, [float(j) for j in range(kv_len)])
    for name, attention in runnable(trials_of(device), problem).items():
        assert attention(q, k, v)[0, :, 0, 0].tolist() == pytest.approx(expected, abs=1e-3), name
    refused = {name: trials_of(device).verdict(name, problem, silent).reason for name in ("flash-attn-2", "sdpa-math")}
    assert refused["sdpa-math"] == ""
    if trials_of(device).paths["flash-attn-2"].status().usable:  # 2.8.3 takes a window beyond all keys for none
        assert refused["flash-attn-2"] == "" or BLIND.fullmatch(refused["flash-attn-2"])


BLIND = re.compile(r"answers \S+ in rows that see no key, where 0 is right")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("mask", [{"causal": True}, {"window": 3}, {"window": 150}], ids=str)
def test_a_wrong_answer_in_blind_rows_is_found_by_the_trial_and_a_right_one_passes(mask, direction, monkeypatch):
    problem = AttentionProblem(batch=2, seq_q=600, seq_kv=200, heads=4, head_dim=32, direction=direction, **mask)
    assert tiny_problem(problem).blind_rows
    trials = Trials(torch.device("cpu"))
    standard = trials.paths["standard"]
    assert trials.verdict("standard", problem, silent).reason == ""
    build = type(standard).build

    def half_in_blind_rows(self, problem):
        attention, blind = build(self, problem), problem.blind_rows

        def wrong(q, k, v):
            out = attention(q, k, v)
            return torch.cat((0.5 + 0 * out[:, :blind] + (q - q.detach())[:, :blind], out[:, blind:]), dim=1)

        return wrong

    monkeypatch.setattr(type(standard), "build", half_in_blind_rows)
    reason = Trials(torch.device("cpu")).verdict("standard", problem, silent).reason
    assert reason.endswith(" in rows that see no key, where 0 is right")
    assert problem.direction == "backward" or reason.startswith("answers 0.5 ")


@pytest.mark.parametrize(
    ("seq_q", "seq_kv", "window"),
    [
        (1000, 900, 9),
        (1000, 900, 300),
        (1000, 900, 950),
        (1000, 900, 1000),
        (1000, 300, 400),
        (6, 2, 3),
        (256, 200, 57),
    ],
)
def test_the_tiny_problem_keeps_how_a_window_lies(seq_q, seq_kv, window):
    problem = AttentionProblem(batch=1, seq_q=seq_q, seq_kv=seq_kv, heads=1, head_dim=64, window=window)
    tiny = tiny_problem(problem)
    for lies in (
        lambda p: p.blind_rows > 0,
        lambda p: p.window > p.seq_kv,
        lambda p: p.window >= p.seq_q,
    ):
        assert lies(tiny) is lies(problem), tiny


def test_a_window_beyond_all_keys_that_is_taken_for_none_is_found_by_the_trial(monkeypatch):
    problem = AttentionProblem(batch=1, seq_q=300, seq_kv=200, heads=2, head_dim=32, window=250)
    assert not problem.blind_rows and Trials(torch.device("cpu")).verdict("standard", problem, silent).reason == ""
    build = type(load("standard", torch.device("cpu"))).build
    monkeypatch.setattr(
        type(load("standard", torch.device("cpu"))), "build", lambda self, p: build(self, replace(p, window=None))
    )
    verdict = Trials(torch.device("cpu")).verdict("standard", problem, silent)
    assert verdict.wrong and verdict.reason.startswith("wrong answer")


PADDED = [
    {"lengths": (5, 3)},
    {"lengths": (5, 3), "causal": True},
    {"lengths": (8, 1), "window": 2},
    {"lengths": (0, 5)},
    {"lengths": (5, 0), "window": 3, "causal": True},
]


@pytest.mark.parametrize("device", DEVICES)
def test_f08_what_stands_in_the_padding_is_neither_seen_nor_answered(device, trials_of):
    """K = 0, V[b, j] = j + 1 on tokens, NaN in the padding."""
    problem = AttentionProblem(batch=2, seq_q=8, heads=2, head_dim=64, lengths=(5, 3))
    q, k, v = probe(problem, device, [float(j + 1) for j in range(8)])
    for b, length in enumerate(problem.lengths):
        k[b, length:], v[b, length:] = torch.nan, torch.nan
    for name, attention in runnable(trials_of(device), problem).items():
        (out,) = make_call(attention, problem, q, k, v, None)()
        tokens = torch.cat((out[0, :5], out[1, :3]))
        right = torch.cat((torch.full_like(out[0, :5], 3.0), torch.full_like(out[1, :3], 2.0)))
        assert tokens.numel() == 1024 and (tokens - right).abs().max() == 0, name
        assert (out[0, 5:] == 0).all() and (out[1, 3:] == 0).all(), name
        assert torch.equal(attention(q, k, v), out), name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("changes", PADDED, ids=str)
def test_a_padded_batch_is_right_or_refused_in_words(device, direction, changes, trials_of):
    problem = AttentionProblem(
        **{"batch": 2, "seq_q": 8, "heads": 4, "kv_heads": 2, "head_dim": 64, "direction": direction, **changes}
    )
    inputs = make_inputs(problem, torch.device(device))
    with torch.no_grad():
        for t in filter(lambda t: t is not None, inputs):
            for b, length in enumerate(problem.lengths):
                t[b, length:] = torch.nan
    exact = truth(problem, *inputs)
    for name in PATHS:
        if trials_of(device).paths[name].compiles:
            continue
        attention, reason = build(trials_of(device), name, problem)
        assert "\n" not in reason
        if attention is None:
            assert len(reason.split()) > 3, (name, reason)
            continue
        outputs = make_call(attention, problem, *inputs)()
        assert judge(exact.errors(outputs), exact.standard, problem.dtype) == "", name
        for output in outputs:
            assert all((output[b, length:] == 0).all() for b, length in enumerate(problem.lengths)), name


def test_pytorchs_flash_kernel_on_a_gpu_takes_a_padded_batch_with_a_causal_mask_alone():
    problem = AttentionProblem(batch=2, seq_q=8, heads=2, head_dim=64, lengths=(5, 3))
    flash = load("sdpa-flash", torch.device("cuda:0"))
    assert flash.unsupported(problem).startswith("a padded batch needs a mask that this kernel does not take")
    assert flash.unsupported(replace(problem, causal=True)) == ""


@pytest.mark.parametrize("name", ["flash-attn-2", "flash-attn-3", "flash-attn-4"])
@pytest.mark.parametrize("changes", [{}, {"causal": True, "direction": FORWARD_BACKWARD}, {"window": 3}], ids=str)
def test_flash_attention_packages_get_a_padded_batch_packed(name, changes, monkeypatch):
    cpu = torch.device("cpu")
    problem = AttentionProblem(batch=4, seq_q=16, heads=4, kv_heads=2, head_dim=8, lengths=(16, 0, 5, 1), **changes)

    def varlen(q, k, v, *, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal, window_size=(-1, -1)):
        """What the packages do, one sequence after the other."""
        assert cu_seqlens_q.tolist() == cu_seqlens_k.tolist() == [0, 16, 16, 21, 22]
        assert cu_seqlens_q.dtype == torch.int32 and (max_seqlen_q, max_seqlen_k) == (16, 16)
        assert window_size == ((-1, -1) if problem.window is None else (2, 2))
        parts = []
        for start, stop in itertools.pairwise(cu_seqlens_q.tolist()):
            if stop > start:
                alone = replace(problem, batch=1, seq_q=stop - start, seq_kv=stop - start, lengths=None)
                rows = slice(start, stop)
                parts.append(load("standard", cpu).build(alone)(q[None, rows], k[None, rows], v[None, rows])[0])
        return torch.cat(parts), None

    path = load(name, cpu)
    monkeypatch.setattr(path, "load_varlen", lambda: varlen)
    inputs = make_inputs(problem, cpu)
    exact = truth(problem, *inputs)
    call = make_call(path.build(problem), problem, *inputs)
    assert call.launch()[0].shape == (22, 4, 8)  # what is timed works on tokens alone
    assert judge(exact.errors(call()), exact.standard, problem.dtype) == ""


@pytest.mark.parametrize("device", DEVICES)
def test_a_backward_pass_alone_can_be_repeated_and_runs_no_forward_pass(device, trials_of):
    problem = AttentionProblem(batch=2, seq_q=40, heads=4, kv_heads=2, head_dim=64, causal=True, direction=BACKWARD)
    inputs = make_inputs(problem, torch.device(device))
    exact = truth(problem, *inputs)
    for name, attention in runnable(trials_of(device), problem).items():
        calls = []

        def counted(q, k, v, attention=attention, calls=calls):
            calls.append(1)
            return attention(q, k, v)

        call = make_call(counted, problem, *inputs)
        for _ in range(2):
            assert judge(exact.errors(call()), exact.standard, problem.dtype) == "", name
        assert len(calls) == 1


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("off", [-1, 1])
def test_a_window_that_is_one_key_off_does_not_pass(causal, off):
    problem = AttentionProblem(
        batch=1, seq_q=64, heads=2, head_dim=64, causal=causal, window=8, direction=FORWARD_BACKWARD
    )
    inputs = make_inputs(problem, torch.device("cpu"))
    exact = truth(problem, *inputs)
    standard = load("standard", torch.device("cpu"))
    right, wrong = (
        exact.errors(make_call(standard.build(replace(problem, window=window)), problem, *inputs)())
        for window in (8, 8 + off)
    )
    assert all(wrong[name] > 10 * right[name] for name in ("O", "dQ", "dK", "dV"))
    assert "wrong answer" in judge(wrong, right, problem.dtype)


def test_a_path_that_takes_no_window_says_so_in_words():
    problem = AttentionProblem(batch=1, seq_q=64, heads=1, head_dim=64, window=8)
    for name in ("sdpa-flash", "sdpa-cudnn", "sdpa-efficient"):
        path = load(name, torch.device("cuda:0"))
        assert path.unsupported(problem) == "a sliding window needs a mask that this kernel does not take"


@pytest.mark.parametrize("name", ["flash-attn-2", "flash-attn-3", "flash-attn-4"])
@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, {"causal": False}),
        ({"causal": True}, {"causal": True}),
        ({"causal": True, "window": 8}, {"causal": True, "window_size": (7, 0)}),
        ({"window": 8}, {"causal": False, "window_size": (7, 7)}),
    ],
)
def test_flash_attention_packages_get_the_window_as_keys_besides_ones_own(name, changes, options, monkeypatch):
    path = load(name, torch.device("cuda:0"))
    given = {}
    monkeypatch.setattr(path, "load", lambda: lambda q, k, v, **more: given.update(more) or q)
    attention = path.build(AttentionProblem(batch=1, seq_q=64, heads=1, head_dim=64, **changes))
    attention(torch.zeros(1), torch.zeros(1), torch.zeros(1))
    assert given == options


STEP_KINDS = [
    {},
    {"batch": 1},
    {"heads": 1},
    {"seq_q": 1},
    {"seq_kv": 1},
    {"kv_heads": 2},
    {"causal": True, "seq_q": 96},
    {"window": 5, "seq_q": 160},
    {"causal": True, "kv_heads": 2, "seq_q": 160},
    {"lengths": (128, 5, 0)},
    {"lengths": (128, 5, 0), "window": 9},
]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("changes", STEP_KINDS, ids=str)
def test_standard_steps_are_what_pytorch_does(changes, direction):
    """The ledger in cost.py against the operations that PyTorch's profiler saw: as many of each kind, of the same size."""
    sizes = {"batch": 3, "seq_q": 128, "seq_kv": 128, "heads": 4, "head_dim": 8, "dtype": "float32"}
    problem = AttentionProblem(**{**sizes, "direction": direction, **changes})
    inputs = make_inputs(problem, torch.device("cpu"))
    call = make_call(load("standard", torch.device("cpu")).build(problem), problem, *inputs)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        call.launch()
    ran = []
    for event in profiler.events():
        first, *others = event.input_shapes or [[]]
        if event.name in KERNELS and first:
            elements = first[0] * first[1] * others[0][2] if event.name == "aten::bmm" else math.prod(first)
            ran.append((event.name, elements * problem.dtype_bytes))
    steps = [(kernel_of(step.name), step.write_bytes) for step in cost.standard_steps(problem)]
    assert sorted(ran) == sorted(step for step in steps if step[0])


KERNELS = (
    "aten::bmm",
    "aten::mul",
    "aten::_softmax",
    "aten::_softmax_backward_data",
    "aten::masked_fill_",
    "aten::copy_",
)


def kernel_of(step):
    """The operation that a step's name stands for; None for those that the profiler shows in parts (zeros, sums)."""
    if step.startswith("copy of") or step.endswith(("for each query head", "into zeros")):
        return "aten::copy_"
    names = {
        "scale": "mul",
        "scale backward": "mul",
        "softmax": "_softmax",
        "softmax backward": "_softmax_backward_data",
    }
    names |= {"mask": "masked_fill_"} | dict.fromkeys(("QKᵀ", "AV", "dV", "dP", "dQ", "dK"), "bmm")
    return f"aten::{names[step]}" if step in names else None


@pytest.mark.parametrize("device", DEVICES)
def test_a_scale_that_is_ten_percent_off_does_not_pass(device, monkeypatch):
    monkeypatch.setitem(PATHS, "faulty-wrong", PathInfo("faulty-wrong", "faulty", ""))
    problem = AttentionProblem(batch=1, seq_q=512, heads=2, head_dim=64)
    inputs = make_inputs(problem, torch.device(device))
    exact = truth(problem, *inputs)
    verdicts = {}
    for name in ("standard", "faulty-wrong"):
        path = load(name, torch.device(device))
        errors = exact.errors(make_call(path.build(problem), problem, *inputs)())
        verdicts[name] = judge(errors, exact.standard, problem.dtype)
    assert verdicts["standard"] == ""
    assert "wrong answer" in verdicts["faulty-wrong"] and "O is" in verdicts["faulty-wrong"]


def test_on_a_cpu_gpu_paths_say_why_they_are_missing(trials_of):
    problem = AttentionProblem(batch=1, seq_q=128, heads=1, head_dim=64)
    for name in ("flash-attn-2", "flash-attn-3", "flash-attn-4", "sdpa-cudnn", "sdpa-efficient"):
        assert "needs an NVIDIA GPU" in build(trials_of("cpu"), name, problem)[1]


def test_on_a_cpu_flash_is_pytorchs_flash_kernel(trials_of):
    problem = AttentionProblem(batch=1, seq_q=128, heads=1, head_dim=64, dtype="float32")
    verdict = trials_of("cpu").verdict("flash", problem, silent)
    assert verdict.path.name == "sdpa-flash" and "flash_attention_for_cpu" in verdict.provider


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["flash-attn-2", "flash-attn-4", "sdpa-flash", "sdpa-cudnn"])
def test_f03_float32_is_refused_in_words_that_name_the_dtype(name, trials_of):
    problem = AttentionProblem(batch=1, seq_q=512, heads=4, head_dim=64, dtype="float32")
    reason = build(trials_of("cuda:0"), name, problem)[1]
    assert "not installed" in reason or ("float32" in reason and "float16 or bfloat16" in reason)


@pytest.mark.gpu
def test_f04_nothing_runs_as_math_under_a_flash_name(trials_of):
    problem = AttentionProblem(batch=1, seq_q=512, heads=16, kv_heads=2, head_dim=320, causal=True)
    trials = trials_of("cuda:0")
    for name in ("flash", "flash-attn-2", "flash-attn-4", "sdpa-flash"):
        assert build(trials, name, problem)[1], name
    verdict = trials.verdict("sdpa-math", problem, silent)
    assert verdict.reason == "" and "flash" not in verdict.provider


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["compiled", "flex"])
@pytest.mark.parametrize(
    "changes",
    [
        {"head_dim": 80},
        {"causal": True, "seq_q": 96, "seq_kv": 200, "kv_heads": 2, "window": 17},
        {"direction": FORWARD_BACKWARD},
        {"direction": BACKWARD, "causal": True},
        {"batch": 3, "lengths": (0, 97, 130), "heads": 2, "window": 17},
    ],
    ids=str,
)
def test_what_is_compiled_agrees_with_float64(device, name, changes):
    path = load(name, torch.device(device))
    if (status := path.status()).state == "missing":
        pytest.skip(status.reason)
    problem = AttentionProblem(**{"batch": 1, "seq_q": 130, "heads": 4, "head_dim": 64, "dtype": "bfloat16", **changes})
    if reason := path.unsupported(problem):
        assert reason == "FlexAttention has no backward pass on a CPU" and device == "cpu" and problem.backward
        return
    inputs = make_inputs(problem, torch.device(device))
    exact = truth(problem, *inputs)
    call = make_call(path.build(problem), problem, *inputs)
    for _ in range(2):
        assert judge(exact.errors(call()), exact.standard, problem.dtype) == ""


def test_flex_finds_the_same_blocks_some_queries_at_a_time(monkeypatch):
    from torch.nn.attention.flex_attention import create_block_mask

    def visible(batch, head, query, key):
        return (query + 100 - key >= 0) & (query + 100 - key < 300)

    whole = create_block_mask(visible, None, None, 1000, 1100, device="cpu")
    monkeypatch.setattr("attnlab.paths.flex.MASK_PAIRS", 1)
    problem = AttentionProblem(batch=1, seq_q=1000, seq_kv=1100, heads=2, head_dim=32)
    in_parts = flex._blocks(visible, None, problem, torch.device("cpu"))
    assert in_parts.seq_lengths == whole.seq_lengths and in_parts.BLOCK_SIZE == whole.BLOCK_SIZE
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices"):
        assert torch.equal(getattr(in_parts, name), getattr(whole, name)), name


def test_compiling_needs_a_compiler_and_says_which(monkeypatch):
    monkeypatch.setattr("attnlab.paths.compiled.shutil.which", lambda name: None)
    status = load("compiled", torch.device("cpu")).status()
    assert status.state == "missing" and "C++ compiler" in status.reason


def test_the_readme_names_every_path():
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## Attention paths")[2].partition("\n## ")[0]
    assert [name for name in PATHS if f"`{name}`" not in table and not name.startswith("faulty")] == []


def test_flash_prefers_what_splits_the_keys_where_few_queries_look_at_many():
    decode = AttentionProblem(batch=1, seq_q=1, seq_kv=131_072, heads=32, kv_heads=8, head_dim=128)
    newest_first, splitting_first = flash.FLASH_CANDIDATES, flash.candidates(decode, 132, (9, 0))
    assert splitting_first[0] == "flash-attn-3" and splitting_first[-1] == "flash-attn-4"
    assert set(splitting_first) == set(newest_first)
    for other in ({"batch": 8}, {"seq_q": 131_072}, {"seq_kv": 512}):
        assert flash.candidates(replace(decode, **other), 132, (9, 0)) == newest_first
    assert flash.candidates(decode, 148, (10, 0)) == newest_first
