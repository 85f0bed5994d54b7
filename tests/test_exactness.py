"""The pass rule has two sides: healthy paths pass, what is wrong fails, and a check that cannot fail says so."""

import pytest
import torch

from attnlab.measure.exactness import MOST_GROUPS, Errors, Exactness, errors, sampled_groups, truth_dtype
from attnlab.measure.trial import Verdict
from attnlab.paths.base import Path, load
from attnlab.problem import DTYPE_BYTES, AttentionProblem

CPU = torch.device("cpu")


def problem(**more):
    return AttentionProblem(
        **{"batch": 2, "seq_q": 96, "heads": 4, "kv_heads": 2, "head_dim": 32, "dtype": "bfloat16"} | more
    )


def look(path, p):
    exactness = Exactness(p, CPU, lambda: None)
    path = load(path, CPU) if isinstance(path, str) else path
    return list(exactness.look(path.name, Verdict(path, "")))


class Spoilt(Path):
    """Standard attention with something done to its answer."""

    def __init__(self, spoil):
        super().__init__("spoilt", CPU)
        self.spoil = spoil

    def build(self, p):
        attention = load("standard", CPU).build(p)
        return lambda q, k, v: self.spoil(attention(q, k, v))


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
@pytest.mark.parametrize("path", ["standard", "sdpa-flash", "sdpa-math"])
def test_f16_healthy_paths_pass_and_the_control_is_rejected(path, dtype):
    found = look(path, problem(dtype=dtype, direction="forward+backward", causal=True))
    assert [f.what for f in found] == ["O", "dQ", "dK", "dV", "control: scale × 1.1"]
    assert {f.verdict for f in found} == {"pass"}, found
    for output in found[:-1]:
        values = output.values
        assert values["relative"] <= values["bound_relative"] and values["max_abs"] <= values["bound_max_abs"]
        assert values["bound_relative"] == pytest.approx(2 * values["standard_relative"] + 1e-5)
        assert values["compared"] == values["of"] and values["nonfinite"] == 0
    assert found[-1].values["relative"] > 0.01


def test_flash_is_the_more_exact_one_in_half_precision():
    """H200, seq 1,024: 2.2e-3 against 5.7e-3; the CPU's kernel rounds in the same places."""
    (flash, *_), (standard, *_) = look("sdpa-flash", problem(seq_q=512)), look("standard", problem(seq_q=512))
    assert flash.values["relative"] < 0.7 * standard.values["relative"]


def test_one_number_that_is_not_finite_fails_and_is_found():
    def one_nan(out):
        out = out.clone()
        out[1, 7, 3, 5] = torch.nan
        return out

    first = look(Spoilt(one_nan), problem())[0]
    assert first.failed and first.values["nonfinite"] == 1 and first.values["max_abs"] is None
    assert "(batch 1, seq 7, head 3, dim 5)" in first.text


def test_one_number_that_is_far_off_fails_though_the_relative_error_does_not_notice():
    def one_off(out):
        out = out.clone()
        out[0, 95, 2, 31] += 0.2
        return out

    first = look(Spoilt(one_off), problem(seq_q=96))[0]
    assert first.failed and "(batch 0, seq 95, head 2, dim 31)" in first.text


def test_a_wrong_scale_fails():
    class Scaled(Spoilt):
        def build(self, p):
            attention = load("sdpa-flash", CPU).build(p)
            return lambda q, k, v: attention(1.1 * q, k, v)

    assert look(Scaled(None), problem())[0].failed


def test_where_no_row_sees_two_keys_the_control_says_that_it_cannot_tell():
    control = look("standard", problem(window=1))[-1]
    assert control.verdict == "unsupported" and "scale" in control.text


def test_errors_of_equal_and_of_empty_answers_are_zero():
    ones = torch.ones(3, dtype=torch.float64)
    assert errors(ones, ones) == Errors(0.0, 0.0, 0)
    assert errors(ones[:0], ones[:0]) == Errors(0.0, 0.0, 0)
    assert errors(ones, torch.zeros(3, dtype=torch.float64)).relative == pytest.approx(3**0.5)


def test_the_sample_always_holds_the_last_head_of_the_last_batch_item():
    p = problem(batch=3, heads=8, kv_heads=4)
    each = p.seq_q * p.seq_kv * 2
    for count in (0, 1, 2, 5, 12, 100):
        groups = sampled_groups(p, count * each)
        assert len(groups) == max(1, min(count, 12)) == len(set(groups))
        assert groups[-1] == (2, 3)
        assert count < 2 or groups[0] == (0, 0)
        assert all(0 <= b < 3 and 0 <= h < 4 for b, h in groups)


def test_a_batch_of_many_short_sequences_is_sampled_too():
    p = problem(batch=65_536, seq_q=16, heads=2, kv_heads=2)
    groups = sampled_groups(p, 1 << 33)
    assert len(groups) == MOST_GROUPS and groups[0] == (0, 0) and groups[-1] == (65_535, 1)


@pytest.mark.parametrize(
    ("capability", "dtype", "wanted"),
    [((9, 0), "bfloat16", "float64"), ((8, 0), "float16", "float64"), ((8, 9), "bfloat16", "float32"),
     ((12, 0), "bfloat16", "float32"), ((8, 9), "float32", "float64")],
)  # fmt: skip
def test_the_truth_is_float64_unless_a_card_has_hardly_any_units_for_it(capability, dtype, wanted, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert truth_dtype(problem(dtype=dtype), torch.device("cuda")) == getattr(torch, wanted)
