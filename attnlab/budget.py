"""Budgets of a long context: the KV cache, what paging saves of it, and what each of several devices holds.

KV cache: for every token, layer and KV head one key and one value of head_dim elements. Without paging each sequence gets
room for the longest; in pages it gets whole blocks for its own length (Kwon et al., "PagedAttention", 2023,
arXiv:2309.06180; vLLM's default block is 16 tokens).

Tensor parallelism splits the heads (Shoeybi et al., "Megatron-LM", 2019, arXiv:1909.08053): each of N devices computes
heads / N. Where there are fewer KV heads than devices, each is held by several.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnlab import cost, memory_plan
from attnlab.estimate import Roof, estimate
from attnlab.problem import DTYPE_BYTES, LIMITS, AttentionProblem, ProblemError
from attnlab.units import ms, sequence, size, times

BLOCK_TOKENS = 16
CONTEXT = 131_072  # "128K"
DEVICES = (1, 2, 4, 8)
LENGTHS_LEGAL = "whole numbers from 1 to {:,} with commas between them, one for each sequence, such as 131072, 9000"
MAX_SEQUENCES = 4096


@dataclass(frozen=True, kw_only=True)
class KVCache:
    """Keys and values of every layer for sequences of these lengths."""

    lengths: tuple[int, ...]
    layers: int
    kv_heads: int
    head_dim: int
    dtype: str
    block_tokens: int = BLOCK_TOKENS

    @property
    def token_bytes(self) -> int:
        """One token of one sequence, all layers, keys and values."""
        return 2 * self.layers * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]

    @property
    def exact_bytes(self) -> int:
        """Every token once."""
        return sum(self.lengths) * self.token_bytes

    @property
    def blocks(self) -> int:
        return sum(-(-length // self.block_tokens) for length in self.lengths)

    @property
    def paged_bytes(self) -> int:
        """Whole blocks for each sequence."""
        return self.blocks * self.block_tokens * self.token_bytes

    @property
    def padded_bytes(self) -> int:
        """Room for the longest, for each sequence: what is reserved without paging."""
        return len(self.lengths) * max(self.lengths) * self.token_bytes

    @property
    def saved_share(self) -> float:
        """What paging saves of the padded cache; below 0 where all are equal and end inside a block."""
        return 1 - self.paged_bytes / self.padded_bytes

    @property
    def sentence(self) -> str:
        """What it takes and what paging does, in words."""
        count = len(self.lengths)
        return (
            f"KV cache of {count:,} sequence{'s' if count > 1 else ''}, {self.layers} layers, {self.kv_heads} KV heads of"
            f" {self.head_dim}, {self.dtype}: {size(self.padded_bytes)} with room for the longest each,"
            f" {size(self.paged_bytes)} in {self.blocks:,} blocks of {self.block_tokens}, of which"
            f" {size(self.paged_bytes - self.exact_bytes)} are not filled."
        )


def read_lengths(text: str) -> tuple[int, ...]:
    """ "131072, 9000" → (131072, 9000). Raises ProblemError with what is legal."""
    legal = LENGTHS_LEGAL.format(LIMITS["seq_kv"])
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) < 10 and 1 <= int(word) <= LIMITS["seq_kv"]):
            raise ProblemError(f"lengths holds {word!r}; legal: {legal}")
    if len(words) > MAX_SEQUENCES:
        raise ProblemError(
            f"lengths has {len(words):,}; legal: at most {MAX_SEQUENCES:,} {legal.partition(' with')[0]}"
        )
    return tuple(map(int, words))


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one of `devices` holds. `problem` is the local one; `replicas` devices hold the same KV head."""

    devices: int
    problem: AttentionProblem
    replicas: int = 1

    @property
    def note(self) -> str:
        return f"each KV head is held by {self.replicas} devices" if self.replicas > 1 else ""

    @property
    def flops(self) -> int:
        return cost.flops(self.problem)


def split(problem: AttentionProblem, devices: int) -> Share:
    """The heads over `devices`. Raises ProblemError where they do not divide."""
    heads, kv_heads = problem.heads, problem.kv_heads
    if heads % devices:
        legal = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
        raise ProblemError(f"{heads} heads do not divide among {devices} devices; legal: {legal}")
    if kv_heads % devices and devices % kv_heads:
        legal = ", ".join(
            str(n) for n in range(1, heads + 1) if heads % n == 0 and (kv_heads % n == 0 or n % kv_heads == 0)
        )
        raise ProblemError(f"{kv_heads} KV heads neither divide among {devices} devices nor repeat; legal: {legal}")
    replicas = max(1, devices // kv_heads)
    local = replace(problem, heads=heads // devices, kv_heads=max(1, kv_heads // devices))
    return Share(devices=devices, problem=local, replicas=replicas)


def context_sentence(problem: AttentionProblem, capacity_bytes: int, device: str, seq: int = CONTEXT) -> str:
    """Why standard attention cannot at 128K."""
    there = problem.at_seq(seq)
    scores = cost.score_bytes(there)
    count = scores / capacity_bytes
    fits = "fits, once" if scores <= capacity_bytes else f"is {times(count)} the {size(capacity_bytes)} of {device}"
    flash = memory_plan.total_bytes(there, "flash")
    return (
        f"batch × heads × s² = {problem.batch:,} × {problem.heads:,} × {sequence(seq)}² scores of"
        f" {problem.dtype_bytes} bytes: one score matrix of {size(scores)}, which {fits}. Flash never holds it and needs"
        f" {size(flash)}."
    )


def product_sentence(problem: AttentionProblem, roof: Roof | None, devices: int = DEVICES[-1]) -> str:
    """Parallelism and flash, and that the two multiply, with this shape's numbers. Raises ProblemError (see `split`)."""
    share = split(problem, devices).problem
    memory = {
        path: (memory_plan.total_bytes(problem, path), memory_plan.total_bytes(share, path))
        for path in memory_plan.PATHS
    }
    said = (
        f'Parallelism solves "does not fit": over {devices} devices standard needs {size(memory["standard"][1])} on each'
        f" instead of {size(memory['standard'][0])}."
    )
    if roof is None:
        less = memory["standard"][0] / memory["flash"][1]
        return (
            f'{said} Flash solves "cannot compute fast enough": it never moves the scores. The two multiply: flash over'
            f" {devices} devices needs {size(memory['flash'][1])} on each, {times(less)} less."
        )
    floor = {path: (estimate(problem, path, roof).ms, estimate(share, path, roof).ms) for path in memory_plan.PATHS}
    split_gain, flash_gain = floor["standard"][0] / floor["standard"][1], floor["standard"][0] / floor["flash"][0]
    both = floor["standard"][0] / floor["flash"][1]
    if times(flash_gain) == times(1):
        return (
            f"{said} Flash moves less, but arithmetic is what limits both on one {roof.device}, {ms(floor['flash'][0])}: there"
            f" it saves memory, and time only where a kernel falls short of its floor."
        )
    return (
        f'{said} Flash solves "cannot compute fast enough": its floor on one {roof.device} is {ms(floor["flash"][0])} where'
        f" that of standard is {ms(floor['standard'][0])}. The two multiply: {times(split_gain)} by {devices} devices,"
        f" {times(flash_gain)} by flash, {times(both)} together ({ms(floor['flash'][1])})."
    )
