"""What an attention problem costs: exact FLOPs and bytes, and how much memory a path will need. Integers, no torch.

FLOPs count the matrix products only, 2 per multiply-add, over the query-key pairs that the mask leaves visible
(the convention of the FlashAttention papers, Dao 2023, arXiv:2307.08691, section 4, made exact for the mask):
forward 2 products (QKᵀ, PV), backward 5 (dV, dP, dQ, dK, and QKᵀ once more), so 2.5 times the forward. That last one
flash computes anew and standard reads back; `recompute_flops` is its share, and no part of what the hardware must do.
One count serves all paths of a problem, so that their rates can be compared. `flops` counts visible pairs only,
`dense_flops` all of them.

Bytes come in two kinds: the fewest that any kernel must move (`min_bytes`), and what each operation of the standard path
moves (`standard_steps`), which is where its time goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlab.problem import AttentionProblem

FORWARD_PRODUCTS = 2
BACKWARD_PRODUCTS = 5
RECOMPUTED_PRODUCTS = 1  # QKᵀ, among the five
FLOAT32_BYTES = 4
SCORES_BACKWARD = {"cuda": 4, "cpu": 3}  # score-sized buffers at once; measured (H200, torch 2.11; CPU, torch 2.13)


def visible_pairs(problem: AttentionProblem) -> int:
    """Query-key pairs of one head of one batch item that mask and window leave, aligned bottom-right. O(1).

    Query i sees the keys from `first` up to `stop`, both i plus a constant, cut to 0 … seq_kv (AttentionProblem.visible).
    """
    q, kv, window = problem.seq_q, problem.seq_kv, problem.window
    own = kv - q
    stops = q * kv if not problem.masked else _cut_sum(q, kv, own + 1 if problem.causal else own + window)
    return stops - (0 if window is None else _cut_sum(q, kv, own - window + 1))


def _cut_sum(rows: int, most: int, start: int) -> int:
    """Σ of start + i, cut to 0 … most, over i from 0 to rows - 1: cutting x is max(0, x) - max(0, x - most)."""

    def series(stop: int) -> int:  # Σ of max(0, x) over all x < stop
        return max(0, stop - 1) * max(0, stop) // 2

    return (series(start + rows) - series(start)) - (series(start + rows - most) - series(start - most))


def dense_flops(problem: AttentionProblem) -> int:
    """FLOPs as if no pair were masked."""
    return _flops(problem, problem.seq_q * problem.seq_kv)


def flops(problem: AttentionProblem) -> int:
    """FLOPs of the problem in its direction, the mask counted exactly."""
    return _flops(problem, visible_pairs(problem))


def recompute_flops(problem: AttentionProblem) -> int:
    """The part of `flops` that a backward pass spends on QKᵀ once more; 0 for a forward pass."""
    return RECOMPUTED_PRODUCTS * _product_flops(problem, visible_pairs(problem)) if problem.backward else 0


def _flops(problem: AttentionProblem, pairs: int) -> int:
    products = FORWARD_PRODUCTS + (BACKWARD_PRODUCTS if problem.backward else 0)
    return products * _product_flops(problem, pairs)


def _product_flops(problem: AttentionProblem, pairs: int) -> int:
    """FLOPs of one matrix product over `pairs` pairs of each head."""
    return 2 * problem.batch * problem.heads * pairs * problem.head_dim


def query_bytes(problem: AttentionProblem) -> int:
    """Bytes of Q, and as many of O, dO and dQ."""
    return problem.batch * problem.seq_q * problem.heads * problem.head_dim * problem.dtype_bytes


def seen_query_bytes(problem: AttentionProblem) -> int:
    """Bytes of the rows of Q that see a key, and as many of dO: nobody need read the others."""
    return query_bytes(problem) * (problem.seq_q - problem.blind_rows) // problem.seq_q


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
    return min_read_bytes(problem) + min_write_bytes(problem)


def min_read_bytes(problem: AttentionProblem) -> int:
    """Q, K and V read once, K and V once for each KV head; for a backward pass Q, K, V, O and dO once more.

    Rows that see nothing, and keys that no window reaches, need not be read.
    """
    q = seen_query_bytes(problem)
    first, last = problem.visible(problem.blind_rows), problem.visible(problem.seq_q - 1)
    k = key_bytes(problem) * (last.stop - first.start) // problem.seq_kv
    return q + 2 * k + (3 * q + 2 * k if problem.backward else 0)


def min_write_bytes(problem: AttentionProblem) -> int:
    """O written once; for a backward pass dQ, dK and dV too."""
    q, k = query_bytes(problem), key_bytes(problem)
    return q + (q + 2 * k if problem.backward else 0)


@dataclass(frozen=True)
class MemoryStep:
    """One operation of the standard path, and what it moves: each operand read once, each result written once.

    What is still in a cache is not read from memory, and a kernel that passes over its input twice reads it twice.
    """

    name: str
    read_bytes: int
    write_bytes: int

    @property
    def moved_bytes(self) -> int:
        return self.read_bytes + self.write_bytes


def standard_steps(problem: AttentionProblem) -> tuple[MemoryStep, ...]:
    """The operations of `attnlab/paths/standard.py` that touch memory, in order; for a backward pass autograd's as well.

    A batched product wants (batch · heads, seq, dim), which (batch, seq, heads, dim) is as it lies only where batch, heads
    or seq is 1; else PyTorch copies the operand first. Grouped KV heads are copied out to one for each query head.
    Filling the mask in copies the scores before.
    """
    q, s = query_bytes(problem), score_bytes(problem)
    one_k, group = key_bytes(problem), problem.heads // problem.kv_heads
    k = one_k * group
    blind = q * problem.blind_rows // problem.seq_q

    def copied(name: str, size: int, seq: int) -> list[tuple[str, int, int]]:
        lies_well = problem.batch == 1 or problem.heads == 1 or seq == 1
        return [] if lies_well else [(f"copy of {name}", size, size)]

    copy_q = copied("Q", q, problem.seq_q)
    copy_k, copy_v = (copied(name, k, problem.seq_kv) if group == 1 else [] for name in "KV")
    fill = [("copy of scores", s, s), ("mask", s + mask_bytes(problem), s)] if problem.masked else []
    steps = [("K for each query head", one_k, k), ("V for each query head", one_k, k)] if group > 1 else []
    steps += [*copy_q, *copy_k, ("QKᵀ", q + k, s), ("scale", s, s), *fill, ("softmax", s, s), *copy_v, ("AV", s + k, q)]
    if blind:
        steps += [("zeros", 0, blind), ("zeros over O", q, q)]
    if problem.backward:
        cut = [("zeros", 0, q), ("dO into zeros", q - blind, q - blind)]  # the gradient of setting blind rows to 0
        steps += cut if blind else copied("dO", q, problem.seq_q)
        steps += [("dV", s + q, k), ("dP", q + k, s), ("softmax backward", 2 * s, s)]
        steps += [*fill, ("scale backward", s, s), ("dQ", s + k, q), ("dK", s + q, k)]
        if group > 1:
            steps += [("dK for each KV head", k, one_k), ("dV for each KV head", k, one_k)]
    return tuple(MemoryStep(*step) for step in steps)


def mask_bytes(problem: AttentionProblem) -> int:
    """The mask that operations written out need, one bool a pair; 0 where nothing is hidden."""
    return problem.seq_q * problem.seq_kv if problem.masked else 0


def input_bytes(problem: AttentionProblem) -> int:
    """What stands in memory before a call: Q, K, V, dO for a backward pass, and the mask of the standard path (bool)."""
    return query_bytes(problem) * (2 if problem.backward else 1) + 2 * key_bytes(problem) + mask_bytes(problem)


def added_mask_bytes(problem: AttentionProblem, path: str, device_kind: str = "cuda") -> int:
    """The mask in the dtype of the scores that PyTorch's CPU and math kernels are given, beside the bools it is made of; 0
    where a path needs no more than these."""
    by_itself = not problem.masked or (problem.window is None and problem.seq_q == problem.seq_kv)
    lower_right = device_kind == "cuda" and (path != "sdpa-math" or problem.window is None)
    if by_itself or lower_right or path in ("standard", "compiled"):
        return 0
    return problem.seq_q * problem.seq_kv * problem.dtype_bytes


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
