from dataclasses import replace

import pytest
from samples import CPU, H200

from attnlab import cost
from attnlab.hardware import PEAKS
from attnlab.problem import AttentionProblem, ProblemError
from attnlab.tiling import CAPABILITY, SHARED_KB, Tiling, sentence, shared_bytes

DEFAULT = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128)


def problem(seq, causal=False):
    return AttentionProblem(batch=2, seq_q=seq, heads=3, head_dim=64, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seq", [128, 1000, 1024])
@pytest.mark.parametrize("blocks", [(128, 128), (64, 256), (256, 32)])
def test_every_visible_pair_lies_in_a_visited_tile_and_no_visited_tile_is_hidden(seq, causal, blocks):
    tiling = Tiling(problem(seq, causal), *blocks)
    visited = [tiling.at(step) for step in range(tiling.steps)]
    assert len(set(visited)) == tiling.steps
    seen = {
        (query // blocks[0], key // blocks[1])
        for query in range(seq)
        for key in tiling.problem.visible(query)[:: max(1, min(blocks) // 2)]
    } | {(query // blocks[0], tiling.problem.visible(query)[-1] // blocks[1]) for query in range(seq)}
    assert seen == set(visited)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seq", [1000, 1024])
def test_the_walk_ends_at_the_fewest_bytes_and_only_grows(seq, causal):
    tiling = Tiling(problem(seq, causal), 128, 64)
    once = [tiling.once_bytes(step) for step in range(tiling.steps)]
    asked = [tiling.asked_bytes(step) for step in range(tiling.steps)]
    assert once == sorted(once) and asked == sorted(asked)
    assert once[-1] == cost.min_bytes(tiling.problem)
    assert all(few <= many for few, many in zip(once, asked, strict=True))
    token = 2 * 3 * 64 * 2
    assert once[0] == (128 + 2 * 64) * token + 128 * token * (tiling.widths[0] == 1)


def test_asked_bytes_by_hand():
    tiling = Tiling(problem(256), 128, 128)
    token = 2 * 3 * 64 * 2
    # Q block, then K and V twice, O block; and all that once more.
    assert [tiling.asked_bytes(step) // (128 * token) for step in range(4)] == [3, 6, 9, 12]
    assert [tiling.once_bytes(step) // (128 * token) for step in range(4)] == [3, 6, 7, 8]


def test_on_chip_by_hand():
    tiling = Tiling(DEFAULT)
    kb = {name: size / 1024 for name, size in tiling.sram_bytes().items()}
    assert kb == {"Q": 32, "K": 32, "V": 32, "S": 64, "O": 64}
    assert sentence(tiling) == "One tile of 64 KB on chip at a time, instead of 4.29 GB of scores in memory."
    assert Tiling(AttentionProblem(batch=1, seq_q=32, heads=1, head_dim=64)).tile_bytes == 32 * 32 * 4


def test_shared_memory_by_capability_and_by_name():
    assert shared_bytes(H200) == 228 * 1024
    assert shared_bytes(replace(H200, name="NVIDIA A100-SXM4-80GB")) == 164 * 1024
    assert shared_bytes(replace(H200, name="Some card", compute_capability="8.6")) == 100 * 1024
    assert shared_bytes(replace(H200, name="Some card")) is None
    assert shared_bytes(CPU) is None and shared_bytes(None) is None


def test_every_card_of_the_data_sheets_has_a_capability():
    assert {peak.names[0] for peak in PEAKS} == set(CAPABILITY)
    assert set(CAPABILITY.values()) <= set(SHARED_KB)


def test_blocks_that_cannot_be():
    with pytest.raises(ProblemError, match="block_q is 100; legal: 16, 32, 64, 128, 256"):
        Tiling(DEFAULT, 100)
    with pytest.raises(IndexError):
        Tiling(DEFAULT).at(1024)
