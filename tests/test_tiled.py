import pytest
import torch

from attnlab.paths import PATHS
from attnlab.paths.reference import attend
from attnlab.paths.tiled import standard, tiled
from attnlab.problem import AttentionProblem


def reference(problem, q, k, v):
    """(batch, heads, seq, dim) in, out in float64."""
    groups = [(b, h) for b in range(problem.batch) for h in range(problem.heads)]
    out = attend(problem, q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), None, groups)["O"]
    return out.reshape(problem.batch, problem.heads, problem.seq_q, problem.head_dim)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("seq_q", "seq_kv"), [(256, 256), (100, 100), (1, 77), (33, 130), (130, 33)])
@pytest.mark.parametrize("blocks", [(128, 128), (16, 48), (64, 1)])
def test_it_is_the_reference(seq_q, seq_kv, causal, blocks):
    problem = AttentionProblem(batch=2, seq_q=seq_q, seq_kv=seq_kv, heads=3, head_dim=32, causal=causal)
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, seq, 32) for seq in (seq_q, seq_kv, seq_kv))
    out = tiled(q, k, v, causal, *blocks)
    torch.testing.assert_close(out.double(), reference(problem, q, k, v), rtol=1e-5, atol=1e-6)
    if not causal:
        torch.testing.assert_close(standard(q, k, v).double(), reference(problem, q, k, v), rtol=1e-5, atol=1e-6)


def test_large_logits_do_not_overflow():
    q, k, v = (100 * torch.randn(1, 1, 64, 16) for _ in range(3))
    torch.testing.assert_close(tiled(q, k, v, block_k=8), standard(q, k, v))


def test_it_is_to_be_read_and_no_path():
    assert "tiled" not in PATHS
