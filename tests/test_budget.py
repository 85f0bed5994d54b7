"""KV cache, paging and tensor parallelism against arithmetic on paper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab import budget, cost, memory_plan
from attnlab.budget import KVCache, read_lengths, split
from attnlab.estimate import MEASURED, Roof, data_sheet_roof, estimate
from attnlab.problem import AttentionProblem, ProblemError

GIB = 2**30
PROBLEM = AttentionProblem(batch=4, seq_q=16_384, heads=32, head_dim=128)
LLAMA = {"layers": 32, "kv_heads": 8, "head_dim": 128, "dtype": "bfloat16"}  # Llama-3 8B


def test_the_cache_of_llama_3_8b():
    cache = KVCache(lengths=(131_072,), **LLAMA)
    assert cache.token_bytes == 128 * 1024
    assert cache.exact_bytes == cache.paged_bytes == cache.padded_bytes == 16 * GIB
    assert cache.saved_share == 0


def test_what_paging_saves_on_uneven_lengths():
    cache = KVCache(lengths=(100, 33, 1), **LLAMA)
    assert cache.blocks == 7 + 3 + 1
    assert cache.paged_bytes == 11 * 16 * cache.token_bytes
    assert cache.padded_bytes == 300 * cache.token_bytes
    assert cache.saved_share == pytest.approx(1 - 176 / 300)
    assert "11 blocks of 16" in cache.sentence and "3 sequences" in cache.sentence


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=20), st.integers(1, 512))
def test_blocks_hold_every_token_and_waste_less_than_one_each(lengths, block):
    cache = KVCache(lengths=tuple(lengths), block_tokens=block, **LLAMA)
    waste = (cache.paged_bytes - cache.exact_bytes) // cache.token_bytes
    assert 0 <= waste <= len(lengths) * (block - 1)
    assert KVCache(lengths=tuple(lengths), block_tokens=1, **LLAMA).paged_bytes == cache.exact_bytes


@pytest.mark.parametrize("text", ["", "5,x", "5,,6", "0", "-3", "1.5", "1e3", "99999999999", "1_0", "²", "16777217"])
def test_bad_lengths_get_one_line(text):
    with pytest.raises(ProblemError, match="legal: whole numbers from 1 to 16,777,216 with commas") as refused:
        read_lengths(text)
    assert "\n" not in str(refused.value)


def test_good_lengths():
    assert read_lengths(" 131072, 9000 ,1") == (131_072, 9000, 1)
    with pytest.raises(ProblemError, match="at most 4,096"):
        read_lengths(",".join(["1"] * 5000))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "devices", "local", "replicas"),
    [
        (32, 32, 8, (4, 4), 1),
        (32, 8, 8, (4, 1), 1),
        (32, 4, 8, (4, 1), 2),
        (32, 1, 8, (4, 1), 8),
        (12, 12, 1, (12, 12), 1),
    ],
)
def test_heads_over_devices(heads, kv_heads, devices, local, replicas):
    problem = AttentionProblem(batch=1, seq_q=1024, heads=heads, kv_heads=kv_heads, head_dim=64)
    share = split(problem, devices)
    assert (share.problem.heads, share.problem.kv_heads) == local and share.replicas == replicas
    assert share.flops * devices == cost.flops(problem)
    assert share.note == (f"each KV head is held by {replicas} devices" if replicas > 1 else "")


@pytest.mark.parametrize(
    ("heads", "kv_heads", "devices", "words"),
    [
        (12, 12, 8, "12 heads do not divide among 8 devices; legal: 1, 2, 3, 4, 6, 12"),
        (24, 3, 2, "3 KV heads neither divide among 2 devices nor repeat; legal: 1, 3, 6, 12, 24"),
    ],
)
def test_what_does_not_divide_is_refused(heads, kv_heads, devices, words):
    with pytest.raises(ProblemError, match=words):
        split(AttentionProblem(batch=1, seq_q=64, heads=heads, kv_heads=kv_heads, head_dim=64), devices)


def test_why_standard_cannot_at_128k():
    said = budget.context_sentence(PROBLEM, 80 * GIB, "A100")
    assert "4 × 32 × 131,072² scores of 2 bytes: one score matrix of 4 TiB, which is 51× the 80 GiB of A100" in said
    assert f"needs {16.1} GiB" in said


def test_parallelism_and_flash_multiply():
    roof = data_sheet_roof("A100-SXM4-80GB", "bfloat16")
    said = budget.product_sentence(PROBLEM, roof, 8)
    one = estimate(PROBLEM, "standard", roof).ms
    both = estimate(split(PROBLEM, 8).problem, "flash", roof).ms
    assert f"8.0× by 8 devices, 3.6× by flash, {one / both:.0f}× together" in said
    needs = memory_plan.total_bytes(split(PROBLEM, 8).problem, "standard") / GIB
    assert f"{needs:.1f} GiB on each instead of 130 GiB" in said
    assert "516× less" in budget.product_sentence(PROBLEM, None, 8)


def test_where_arithmetic_limits_both_flash_is_not_said_to_make_it_faster():
    roof = Roof(peak_tflops=0.1, bandwidth_tbs=0.1, device="CPU", source=MEASURED)
    said = budget.product_sentence(PROBLEM, roof, 8)
    assert "fast enough" not in said and "arithmetic is what limits both on one CPU" in said
