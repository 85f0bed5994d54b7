import pytest
from test_trip import DEFAULT

from attnlab.layout_figure import addresses, strides
from attnlab.problem import AttentionProblem


def test_strides_are_torchs():
    torch = pytest.importorskip("torch")
    q = torch.empty(2, 5, 3, 4)
    problem = AttentionProblem(batch=2, seq_q=5, heads=3, head_dim=4)
    view = q.transpose(1, 2)
    assert strides(problem) == (q.stride(), view.stride(), view.contiguous().stride())


def test_addresses_are_the_strides_in_bytes():
    lies, copied = addresses(DEFAULT)["data"]
    assert lies["base"][:3] == [0, 32 * 128 * 2, 2 * 32 * 128 * 2] and copied["base"][:3] == [0, 256, 512]
    assert lies["x"] == [256] * 8
