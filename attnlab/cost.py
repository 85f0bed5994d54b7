"""What an attention problem costs: exact FLOPs and bytes, and how much memory a path will need. Integers, no torch.

Counts are over what must be computed: masked pairs and padding are no work. Dense counts are over whole tensors.

FLOPs count the matrix products only, 2 per multiply-add, over the query-key pairs that the mask leaves visible
(the convention of the FlashAttention papers, Dao 2023, arXiv:2307.08691, section 4, made exact for the mask):
forward 2 products (QKᵀ, PV), backward 5 (dV, dP, dQ, dK, and QKᵀ once more), so 2.5 times the forward. That last one
flash computes anew and standard reads back; `recompute_flops` is its share, and no part of what the hardware must do.
One count serves all paths of a problem, so that their rates can be compared. `flops` counts visible pairs only, each
sequence of a padded batch at its own length; `dense_flops` counts all pairs of the tensors, padding included.

Bytes come in two kinds: the fewest that any kernel must move (`min_bytes`), and what each operation of the standard path
moves (`standard_steps`), which is where its time goes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from attnlab.problem import FORWARD, AttentionProblem

FORWARD_PRODUCTS = 2
BACKWARD_PRODUCTS = 5
RECOMPUTED_PRODUCTS = 1  # QKᵀ, among the five
FLOAT32_BYTES = 4
PACKED = ("flash", "flash-attn-2", "flash-attn-3", "flash-attn-4")  # on a GPU, of a padded batch the tokens alone
SCORES_BACKWARD = {"cuda": 4, "cpu": 3}  # score-sized buffers at once; measured (H200, torch 2.11; CPU, torch 2.13)


def visible_pairs(problem: AttentionProblem, length: int | None = None) -> int:
    """Query-key pairs of one head of one batch item that mask and window leave, aligned bottom-right. O(1).

    Query i sees the keys from `first` up to `stop`, both i plus a constant, cut to 0 … seq_kv (AttentionProblem.visible).
    `length` is that of the item in a padded batch.
    """
    q, kv = (problem.seq_q, problem.seq_kv) if length is None else (length, length)
    window, own = problem.window, kv - q
    everything = not problem.causal and window is None
    stops = q * kv if everything else _cut_sum(q, kv, own + 1 if problem.causal else own + window)
    return stops - (0 if window is None else _cut_sum(q, kv, own - window + 1))


def batch_pairs(problem: AttentionProblem) -> int:
    """Visible pairs of one head over the whole batch. O(batch)."""
    if problem.lengths is None:
        return problem.batch * visible_pairs(problem)
    return sum(items * visible_pairs(problem, length) for length, items in Counter(problem.lengths).items())


def _cut_sum(rows: int, most: int, start: int) -> int:
    """Σ of start + i, cut to 0 … most, over i from 0 to rows - 1: cutting x is max(0, x) - max(0, x - most)."""

    def series(stop: int) -> int:  # Σ of max(0, x) over all x < stop
        return max(0, stop - 1) * max(0, stop) // 2

    return (series(start + rows) - series(start)) - (series(start + rows - most) - series(start - most))


def dense_flops(problem: AttentionProblem) -> int:
    """FLOPs as if no pair were masked and padding were tokens: over all pairs of the tensors."""
    return _products(problem) * _product_flops(problem, problem.batch * problem.seq_q * problem.seq_kv)


def flops(problem: AttentionProblem) -> int:
    """FLOPs of the problem in its direction, mask and lengths counted exactly."""
    return _products(problem) * _product_flops(problem, batch_pairs(problem))


def recompute_flops(problem: AttentionProblem) -> int:
    """The part of `flops` that a backward pass spends on QKᵀ once more; 0 for a forward pass."""
    return RECOMPUTED_PRODUCTS * _product_flops(problem, batch_pairs(problem)) if problem.backward else 0


def _products(problem: AttentionProblem) -> int:
    return FORWARD_PRODUCTS * problem.forward + BACKWARD_PRODUCTS * problem.backward


def _product_flops(problem: AttentionProblem, pairs: int) -> int:
    """FLOPs of one matrix product over `pairs` pairs of each head."""
    return 2 * problem.heads * pairs * problem.head_dim


def query_bytes(problem: AttentionProblem) -> int:
    """Bytes of Q, and as many of O, dO and dQ."""
    return problem.batch * problem.seq_q * problem.heads * problem.head_dim * problem.dtype_bytes


def valid_query_bytes(problem: AttentionProblem) -> int:
    """Bytes of Q without padding, and as many of O, dO and dQ."""
    return problem.tokens * problem.heads * problem.head_dim * problem.dtype_bytes


def seen_query_bytes(problem: AttentionProblem) -> int:
    """Bytes of the rows of Q that see a key, and as many of dO: nobody need read the others."""
    return valid_query_bytes(problem) * (problem.seq_q - problem.blind_rows) // problem.seq_q


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
    """The fewest bytes that must cross device memory: each input read once, each output written once, no padding."""
    return min_read_bytes(problem) + min_write_bytes(problem)


def valid_key_bytes(problem: AttentionProblem) -> int:
    """Bytes of K without padding, and as many of V, dK and dV."""
    return key_bytes(problem) if problem.lengths is None else key_bytes(problem) * problem.tokens // _places(problem)


def _places(problem: AttentionProblem) -> int:
    """Tokens of the tensors, padding included."""
    return problem.batch * problem.seq_q


def min_read_bytes(problem: AttentionProblem) -> int:
    """A forward pass reads Q, K and V once, K and V once for each KV head; a backward pass Q, K, V, O and dO.

    Rows that see nothing, keys that no window reaches, and padding need not be read. The log-sum-exp that flash keeps for a
    backward pass is not counted: standard attention has none.
    """
    q, k = seen_query_bytes(problem), valid_key_bytes(problem)
    if problem.lengths is None:  # else each key is seen by its own query at least
        first, last = problem.visible(problem.blind_rows), problem.visible(problem.seq_q - 1)
        k = k * (last.stop - first.start) // problem.seq_kv
    return (q + 2 * k) * problem.forward + (3 * q + 2 * k) * problem.backward


def min_write_bytes(problem: AttentionProblem) -> int:
    """A forward pass writes O once, a backward pass dQ, dK and dV."""
    q, k = valid_query_bytes(problem), valid_key_bytes(problem)
    return q * problem.forward + (q + 2 * k) * problem.backward


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
    """The operations of `attnlab/paths/standard.py` that touch memory, in order; for a backward pass autograd's (alone, where
    the forward pass is no part of the work). It computes padding as it does all else.

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
    if not problem.forward:
        steps = []
    if problem.backward:
        cut = [("zeros", 0, q), ("dO into zeros", q - blind, q - blind)]  # the gradient of setting blind rows to 0
        steps += cut if blind else copied("dO", q, problem.seq_q)
        steps += [("dV", s + q, k), ("dP", q + k, s), ("softmax backward", 2 * s, s)]
        steps += [*fill, ("scale backward", s, s), ("dQ", s + k, q), ("dK", s + q, k)]
        if group > 1:
            steps += [("dK for each KV head", k, one_k), ("dV for each KV head", k, one_k)]
    return tuple(MemoryStep(*step) for step in steps)


OPERATIONS = {  # the step → the line of attnlab/paths/standard.py that makes it
    "K for each query head": "K and V for each query head",
    "V for each query head": "K and V for each query head",
    "copy of Q": "QKᵀ",
    "copy of K": "QKᵀ",
    "copy of scores": "mask",
    "copy of V": "AV",
}


def standard_operations(problem: AttentionProblem) -> tuple[MemoryStep, ...]:
    """The forward steps of `standard_steps`, those that one line of code makes taken together, in the order of the lines."""
    moved: dict[str, MemoryStep] = {}
    for step in standard_steps(replace(problem, direction=FORWARD)):
        name = OPERATIONS.get(step.name, step.name)
        before = moved.get(name, MemoryStep(name, 0, 0))
        moved[name] = MemoryStep(name, before.read_bytes + step.read_bytes, before.write_bytes + step.write_bytes)
    return tuple(moved.values())


def mask_bytes(problem: AttentionProblem) -> int:
    """The mask that operations written out need, bools; 0 where nothing is hidden.

    One for each pair of a sequence. Lengths alone hide keys, so one for each key of each sequence does; a causal mask hides
    the padding behind a query by itself; a window on both sides and lengths take one for each pair of each sequence.
    """
    if not problem.masked:
        return 0
    if problem.lengths is None or problem.causal:
        return problem.seq_q * problem.seq_kv
    return problem.batch * problem.seq_kv * (1 if problem.window is None else problem.seq_q)


def input_bytes(problem: AttentionProblem) -> int:
    """What stands in memory before a call: Q, K, V, dO for a backward pass, and the mask of the standard path (bool). Of a
    padded batch the tensors stand there twice: as they are, and as a path takes them, with padding set to 0 or left out."""
    tensors = query_bytes(problem) * (1 + problem.backward) + 2 * key_bytes(problem)
    return tensors * (1 if problem.lengths is None else 2) + mask_bytes(problem)


def added_mask_bytes(problem: AttentionProblem, path: str, device_kind: str = "cuda") -> int:
    """The mask in the dtype of the scores that PyTorch's CPU and math kernels are given, beside the bools it is made of; 0
    where a path needs no more than these."""
    plainly_causal = problem.causal and problem.window is None and problem.seq_q == problem.seq_kv
    lower_right = device_kind == "cuda" and problem.lengths is None and (path != "sdpa-math" or problem.window is None)
    packed = device_kind == "cuda" and path in PACKED
    if plainly_causal or lower_right or packed or path in ("standard", "compiled"):
        return 0
    return mask_bytes(problem) * problem.dtype_bytes


def saved_bytes(problem: AttentionProblem, path: str, device_kind: str = "cuda") -> int:
    """What the forward pass of `path` has left in memory when a backward pass is called alone; 0 in other directions.

    Measured on a CPU (torch 2.13): standard keeps the probabilities, O, and the copies of Q, K and V that its products were
    given; PyTorch's math kernel the same in float32; flash O and its log-sum-exp.
    """
    if problem.forward:
        return 0
    q, k, lse = _held(problem, path, device_kind)
    expanded_k = k * problem.heads // problem.kv_heads  # one for each query head
    if path in ("standard", "compiled"):
        grouped, copied = _standard_copies(problem)
        return score_bytes(problem) + q + q * copied + 2 * expanded_k * (copied or grouped)
    if path == "sdpa-math":
        return score_bytes(problem, FLOAT32_BYTES) + (q + 2 * expanded_k) * FLOAT32_BYTES // problem.dtype_bytes + q
    return q + lse


def _standard_copies(problem: AttentionProblem) -> tuple[bool, bool]:
    """Whether K and V are copied out to one for each query head, and whether products copy what they are given."""
    return problem.heads != problem.kv_heads, problem.batch > 1 and problem.heads > 1


def _held(problem: AttentionProblem, path: str, device_kind: str) -> tuple[int, int, int]:
    """Bytes of Q, of K and of the log-sum-exp as `path` holds them: without padding where it takes sequences packed."""
    if device_kind == "cuda" and path in PACKED:
        lse = problem.tokens * problem.heads * FLOAT32_BYTES
        return valid_query_bytes(problem), valid_key_bytes(problem), lse
    return query_bytes(problem), key_bytes(problem), lse_bytes(problem)


@dataclass(frozen=True)
class MemoryPart:
    """One thing that stands in memory, by name."""

    name: str
    size_bytes: int


def predicted_peak_bytes(problem: AttentionProblem, path: str, device_kind: str = "cuda") -> int:
    """The most memory one call of `path` allocates above its inputs: the sum of `peak_parts`.

    For a backward pass alone, what the forward pass has saved stands there before the call, as the inputs do (saved_bytes).

    A plan, used to foresee that memory runs out; what a call really took is measured. On an H200 it was within 5 % for
    `standard` and within 10 % for the others (tests/gpu/memory.py: 12 shapes whose scores are larger than the inputs).
    """
    return sum(part.size_bytes for part in peak_parts(problem, path, device_kind))


def peak_parts(problem: AttentionProblem, path: str, device_kind: str = "cuda") -> tuple[MemoryPart, ...]:
    """The buffers that one call of `path` must hold at once where it holds the most, by name; none of 0 bytes."""
    return tuple(MemoryPart(*part) for part in _peak_parts(problem, path, device_kind) if part[1])


def _peak_parts(problem: AttentionProblem, path: str, device_kind: str) -> list[tuple[str, int]]:
    (q, k, lse), scores = _held(problem, path, device_kind), score_bytes(problem)
    forward, backward = problem.forward, problem.backward
    outputs = [("O", q * forward), ("dQ", q * backward), ("dK", k * backward), ("dV", k * backward)]
    if path in ("standard", "compiled"):
        # Forward: scores before and after scaling or softmax. Backward: probabilities, their gradient and the scores'
        # gradient (on a GPU one buffer more), while O and dV are there already.
        grouped, copied = _standard_copies(problem)
        expanded_k = k * problem.heads // problem.kv_heads
        if not backward:
            heads = ("K and V for each query head", 2 * expanded_k * grouped)
            return [("scaled scores", scores), ("probabilities", scores), heads]
        more = SCORES_BACKWARD[device_kind] - 3
        copies = q * copied + expanded_k * (copied or grouped)
        return [
            ("probabilities, saved for backward", scores * forward),
            ("gradient of the probabilities", scores),
            ("gradient of the scores", scores),
            ("gradient of the scores, scaled", more * scores),
            ("copies of Q and K, saved for backward", copies * forward),
            ("O", q * forward),
            ("dV", expanded_k),
        ]
    if path == "sdpa-math":
        # PyTorch computes it in float32 and keeps float32 copies of Q, K and V.
        single = score_bytes(problem, FLOAT32_BYTES)
        copies = (q + 2 * k) * FLOAT32_BYTES // problem.dtype_bytes if forward else 0
        names = ["scores in float32", "probabilities in float32"]
        if backward:
            names = ["probabilities in float32, saved for backward"] * forward + [
                "gradient of the probabilities in float32",
                "gradient of the scores in float32",
            ]
        return [*((name, single) for name in names), ("Q, K, V in float32", copies), *outputs]
    return [
        *outputs,
        ("log-sum-exp", lse * forward),
        ("row sums of dO · O in float32", lse * backward),
        # dQ is summed in float32
        ("dQ accumulator in float32", q * FLOAT32_BYTES // problem.dtype_bytes if backward else 0),
        *_grouped_gradients(problem, path, k),
    ]


def _grouped_gradients(problem: AttentionProblem, path: str, k: int) -> list[tuple[str, int]]:
    """Where dK and dV of grouped heads are added up (k: bytes of K): flash-attn 4 does it in float32, the others
    make them for each query head first. Measured on an H200."""
    if not problem.backward or problem.kv_heads == problem.heads:
        return []
    if path == "flash-attn-4":
        return [("dK and dV accumulators in float32", 2 * k * FLOAT32_BYTES // problem.dtype_bytes)]
    return [("dK and dV for each query head", 2 * k * problem.heads // problem.kv_heads)]
