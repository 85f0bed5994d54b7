"""The textbook's table as it stands in textbooks, and the corrections derived from arithmetic."""

from __future__ import annotations

import pytest

from attnlab.estimate import estimate
from attnlab.problem import AttentionProblem
from attnlab.textbook import HEADS, ROOF, SEQS, counted, row, speedup, textbook, what_is_wrong


def test_the_textbook_is_reproduced():
    assert SEQS == (512, 1024, 2048, 4096, 8192)
    for seq, ms in zip(SEQS, ("0.003", "0.010", "0.041", "0.165", "0.661"), strict=True):
        assert row(seq, *textbook(seq)) == (str(seq), ms, ms, "1.0x", "compute-bound", "compute-bound")


@pytest.mark.parametrize(
    ("passes", "seq", "ratio"),
    [(4, 512, 5.5), (4, 8192, 4.9), (6, 512, 7.9), (6, 8192, 7.4), (4, 10**7, 4.9), (6, 10**7, 7.3)],
)
def test_twelve_heads_make_standard_memory_bound(passes, seq, ratio):
    standard, flash = counted(seq, passes=passes)
    moved = passes * 12 * seq * seq * 2 + 4 * seq * 768 * 2
    assert standard.memory_ms == pytest.approx(moved / 2.0e12 * 1e3)
    assert (standard.bound, flash.bound) == ("memory", "compute")
    assert round(speedup(standard, flash), 1) == ratio


@pytest.mark.parametrize("seq", SEQS)
def test_six_passes_are_what_the_steps_of_standard_attention_move(seq):
    problem = AttentionProblem(batch=1, seq_q=seq, heads=HEADS, head_dim=64, dtype="float16")
    standard, flash = counted(seq)
    assert standard == estimate(problem, "standard", ROOF)
    assert flash == estimate(problem, "flash", ROOF)


def test_what_is_wrong_is_said_with_its_numbers():
    said = what_is_wrong()
    assert "says 1.0× at 8,192" in said and "4.9× slower" in said and "7.4×" in said
    assert "12 heads" in said and "makes 6" in said
