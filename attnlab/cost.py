"""What an attention problem costs: exact FLOPs and bytes, and how much memory a path will need. Integers, no torch.

FLOPs count the matrix products only, 2 per multiply-add, over the query-key pairs that the mask leaves visible
(the convention of the FlashAttention papers, Dao 2023, arXiv:2307.08691, section 4, made exact for the mask):
forward 2 products (QKᵀ, PV), backward 5 (dV, dP, dQ, dK, and QKᵀ once more, which flash recomputes and standard reads
back). One count serves all paths of a problem, so that their rates can be compared.
"""

from __future__ import annotations

from attnlab.problem import AttentionProblem

FORWARD_PRODUCTS = 2
BACKWARD_PRODUCTS = 5
FLOAT32_BYTES = 4
SCORES_BACKWARD = {"cuda": 4, "cpu": 3}  # score-sized buffers at once; measured (H200, torch 2.11; CPU, torch 2.13)


def visible_pairs(problem: AttentionProblem) -> int:
    """Query-key pairs of one head of one batch item that the mask leaves, aligned bottom-right."""
    q, kv = problem.seq_q, problem.seq_kv
    if not problem.causal:
        return q * kv
    # Query i sees i + 1 + (kv - q) keys, never fewer than 0: an arithmetic series over the rows that see any.
    rows = min(q, kv)
    first = kv - rows + 1
    return rows * (first + kv) // 2


def dense_flops(problem: AttentionProblem) -> int:
    """FLOPs as if no pair were masked."""
    return _flops(problem, problem.seq_q * problem.seq_kv)


def flops(problem: AttentionProblem) -> int:
    """FLOPs of the problem in its direction, the mask counted exactly."""
    return _flops(problem, visible_pairs(problem))


def _flops(problem: AttentionProblem, pairs: int) -> int:
    products = FORWARD_PRODUCTS + (BACKWARD_PRODUCTS if problem.backward else 0)
    return products * 2 * problem.batch * problem.heads * pairs * problem.head_dim


def query_bytes(problem: AttentionProblem) -> int:
    """Bytes of Q, and as many of O, dO and dQ."""
    return problem.batch * problem.seq_q * problem.heads * problem.head_dim * problem.dtype_bytes


def key_bytes(problem: AttentionProblem) -> int:
    """Bytes of K, and as many of V, dK and dV: once for each KV head."""
    return problem.batch * problem.seq_kv * problem.kv_heads * problem.head_dim * problem.dtype_bytes


def score_bytes(problem: AttentionProblem, element_bytes: int = 0) -> int:
    """Bytes of one score matrix, (batch, heads, seq_q, seq_kv), in the problem's dtype unless told otherwise."""
    return problem.score_elements * (element_bytes or problem.dtype_bytes)


def lse_bytes(problem: AttentionProblem) -> int:
    """Bytes of the log-sum-exp that flash keeps: one float32 for each query row."""
    return problem.batch * problem.heads * problem.seq_q * FLOAT32_BYTES


def min_bytes(problem: AttentionProblem) -> int:
    """The fewest bytes that must cross device memory: each input read once, each output written once."""
    q, k = query_bytes(problem), key_bytes(problem)
    forward = 2 * q + 2 * k  # Q, K, V in; O out
    if not problem.backward:
        return forward
    return forward + (3 * q + 2 * k) + (q + 2 * k)  # Q, O, dO, K, V in; dQ, dK, dV out


def input_bytes(problem: AttentionProblem) -> int:
    """What stands in memory before a call: Q, K, V, dO for a backward pass, and the mask of the standard path (bool)."""
    mask = problem.seq_q * problem.seq_kv if problem.causal else 0
    return query_bytes(problem) * (2 if problem.backward else 1) + 2 * key_bytes(problem) + mask


def predicted_peak_bytes(problem: AttentionProblem, path: str, device_kind: str = "cuda") -> int:
    """The most memory one call of `path` allocates above its inputs, by the buffers it must hold at once.

    A plan, used to foresee that memory runs out; what a call really took is measured. Measured on an H200 and on a CPU
    it was within 5 % for `standard` wherever the scores are larger than the inputs.
    """
    q, k, scores = query_bytes(problem), key_bytes(problem), score_bytes(problem)
    outputs = q + (q + 2 * k if problem.backward else 0)
    if path in ("standard", "compiled"):
        # Forward: scores before and after scaling or softmax. Backward: probabilities, their gradient and the scores'
        # gradient (on a GPU one buffer more), while O and dV are there already.
        return SCORES_BACKWARD[device_kind] * scores + q + k if problem.backward else 2 * scores
    if path == "sdpa-math":
        # PyTorch computes it in float32 and keeps float32 copies of Q, K and V.
        single = score_bytes(problem, FLOAT32_BYTES)
        copies = (q + 2 * k) * FLOAT32_BYTES // problem.dtype_bytes
        return (3 if problem.backward else 2) * single + copies + outputs
    accumulator = q * FLOAT32_BYTES // problem.dtype_bytes if problem.backward else 0  # dQ is summed in float32
    expanded = (
        2 * q if problem.backward and problem.kv_heads != problem.heads else 0
    )  # dK, dV for each query head first
    return outputs + lse_bytes(problem) * (2 if problem.backward else 1) + accumulator + expanded
