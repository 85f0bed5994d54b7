"""How figures, shapes and progress are written."""

from dataclasses import replace

import pytest

from attnlab import units
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.sweep import Sweep

MIB = 1024 * 1024
PROBLEM = AttentionProblem(batch=4, seq_q=256, heads=32, head_dim=128)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0131, "0.0131 ms"),
        (2.687, "2.69 ms"),
        (1.9, "1.90 ms"),
        (11.9, "11.9 ms"),
        (99.97, "100 ms"),
        (999.4, "999 ms"),
        (999.6, "1.00 s"),
        (3379.2, "3.38 s"),
        (1_234_500, "1,234 s"),
    ],
)
def test_ms(value, text):
    assert units.ms(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (130 * MIB, "130 MiB"),
        (8448 * MIB, "8.25 GiB"),
        (1000 * MIB, "1,000 MiB"),
        (1024 * MIB - 1, "1 GiB"),
        (256 << 30, "256 GiB"),
        (1 << 62, "4 EiB"),
    ],
)
def test_size(value, text):
    assert units.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (6.879, "6.9×"), (9.96, "10×"), (66.0, "66×"), (1250.0, "1,250×"), (0.5, "0.5×"), (0.05, "0.05×")],
)
def test_times(value, text):
    assert units.times(value) == text


def test_sequence():
    assert units.sequence(16_384) == "16,384"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (0.0123, "0.012 s"),
        (2.44, "2.4 s"),
        (9.96, "10 s"),
        (30.0, "30 s"),
        (99.6, "100 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_seconds(value, text):
    assert units.seconds(value) == text


def test_small_sizes_keep_their_digits():
    assert units.size(52_000) == "50.8 KiB"


def test_shape():
    assert units.shape(PROBLEM) == "batch 4, heads 32, dim 128, bfloat16"
    grouped = replace(PROBLEM, kv_heads=8, causal=True, direction="forward+backward")
    assert units.shape(grouped) == "batch 4, heads 32 over 8, dim 128, bfloat16, causal, forward+backward"
    padded = replace(PROBLEM, lengths=(256, 100, 28, 0), direction="backward")
    assert units.shape(padded).endswith("bfloat16, padded (38% are tokens), backward")
    windowed = replace(PROBLEM, causal=True, window=4096)
    assert units.shape(windowed) == "batch 4, heads 32, dim 128, bfloat16, causal, window 4,096"


def test_progress():
    run = Run(id="1", sweep=Sweep(problem=PROBLEM, seqs=(128, 256)), state="running", created="", seconds=1.23)
    assert units.progress(run) == "0 of 4 points · 1.2 s"
    busy = replace(run, phase="quick", activity="flash at sequence 128")
    assert units.progress(busy) == "quick pass · 0 of 4 points · 1.2 s · flash at sequence 128"
