"""One attention problem: what every path is asked to compute.

Shapes, in the order flash-attn uses and AttnLab hands to every path:

    Q, O : (batch, seq_q,  heads,    head_dim)
    K, V : (batch, seq_kv, kv_heads, head_dim)

Query head h reads key/value head h // (heads / kv_heads) (grouped-query attention; kv_heads = heads is plain
multi-head attention). With a causal mask the last query sees the last key ("bottom-right"): query i sees key j
when j - i <= seq_kv - seq_q. A query row that sees no key gives 0.

A sliding window narrows that. Query i's own key is i + seq_kv - seq_q, by the same alignment. With a causal mask the query
sees its own key and the window - 1 keys before it; without one, every key nearer than `window` on both sides, so up to
2 window - 1 keys (Beltagy, Peters, Cohan, "Longformer", 2020, arXiv:2004.05150).

A padded batch holds sequences of different `lengths` in tensors of one length (self-attention: seq_q = seq_kv). What stands
at or behind a sequence's length is padding: as a key nobody sees it, and as a query it is no row of the problem. Its output
and its gradients read 0, it costs nothing and is compared with nothing. A length may be 0. Mask and window hold within each
sequence, so with a causal mask query i sees the keys j <= i.

Three directions: "forward" computes O; "forward+backward" O, dQ, dK, dV from dO; "backward" dQ, dK, dV alone, of a forward
pass that ran before.

    >>> AttentionProblem(batch=4, seq_q=512, heads=32, head_dim=128)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from attnlab.checked import shown

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
DIRECTIONS = ("forward", "forward+backward", "backward")
FORWARD, FORWARD_BACKWARD, BACKWARD = DIRECTIONS

# Bounds far above what any device holds today; they keep typing errors from becoming arithmetic with 40 digits.
LIMITS = {
    "batch": 1 << 20,
    "seq_q": 1 << 24,
    "seq_kv": 1 << 24,
    "heads": 1 << 14,
    "head_dim": 1 << 10,
}
MAX_LENGTHS = 4_096  # of a padded batch: each is a number in every message and file of every point
OPTIONAL = ("window", "lengths")  # fields that JSON leaves out where they are not set
MAX_ELEMENTS = 2**63 - 1  # what a signed 64-bit index, the widest that torch has, can address

ALIGNMENT = "bottom-right: the last query sees the last key"


class ProblemError(ValueError):
    """A problem that cannot be. The message is one line and names the legal values."""


@dataclass(frozen=True, kw_only=True)
class AttentionProblem:
    """A validated attention problem. Raises ProblemError when it cannot be; seq_kv and kv_heads default to self-attention."""

    batch: int
    seq_q: int
    heads: int
    head_dim: int
    seq_kv: int = None  # type: ignore[assignment]  # left out: the same as seq_q
    kv_heads: int = None  # type: ignore[assignment]  # left out: the same as heads
    dtype: str = "bfloat16"
    causal: bool = False
    direction: str = FORWARD
    window: int | None = None  # keys at a distance less than this are seen; None: at any distance
    lengths: tuple[int, ...] | None = None  # valid tokens of each sequence of the batch; None: no padding

    def __post_init__(self) -> None:
        # A frozen dataclass fills its own defaults this way; no field changes after construction.
        if self.seq_kv is None:
            object.__setattr__(self, "seq_kv", self.seq_q)
        if self.kv_heads is None:
            object.__setattr__(self, "kv_heads", self.heads)
        for name, limit in LIMITS.items():
            check_whole_number(name, getattr(self, name), limit)
        check_kv_heads(self.heads, self.kv_heads)
        if self.dtype not in tuple(DTYPE_BYTES):
            raise ProblemError(f"dtype is {shown(self.dtype)}; legal: {', '.join(DTYPE_BYTES)}")
        if type(self.causal) is not bool:
            raise ProblemError(f"causal is {shown(self.causal)}; legal: true, false")
        if self.window is not None:
            check_whole_number("window", self.window, LIMITS["seq_kv"], ", or none")
        if self.direction not in DIRECTIONS:
            raise ProblemError(f"direction is {shown(self.direction)}; legal: {', '.join(DIRECTIONS)}")
        if self.lengths is not None:
            check_lengths(self.lengths, self.batch, self.seq_q, self.seq_kv)
        if self.score_elements > MAX_ELEMENTS:
            raise ProblemError(
                f"the scores would have {self.score_elements:,} elements (batch × heads × seq_q × seq_kv), more than a 64-bit"
                f" index can address; legal: at most {MAX_ELEMENTS:,}, so lower batch, heads or sequence"
            )

    @property
    def score_elements(self) -> int:
        """batch × heads × seq_q × seq_kv."""
        return self.batch * self.heads * self.seq_q * self.seq_kv

    @property
    def masked(self) -> bool:
        """Whether anything hides keys, so that operations written out need a mask."""
        return self.causal or self.window is not None or self.lengths is not None

    @property
    def tokens(self) -> int:
        """Query rows of one head over the whole batch, without padding."""
        return self.batch * self.seq_q if self.lengths is None else sum(self.lengths)

    def visible(self, query: int, item: int = 0) -> range:
        """The keys that a query (0 to seq_q - 1) of a batch item sees; empty for a blind row and for padding."""
        keys = self.seq_kv if self.lengths is None else self.lengths[item]
        if self.lengths is not None and query >= keys:
            return range(0)
        own = query + self.seq_kv - self.seq_q
        reach = self.seq_q + self.seq_kv if self.window is None else self.window  # without a window: past either end
        first, stop = own - reach + 1, own + 1 if self.causal else own + reach
        return range(max(0, first), max(0, min(stop, keys)))

    @property
    def blind_rows(self) -> int:
        """How many query rows, from the top, see no key at all. Lower rows always see one: their window reaches a key.
        A padded batch has none: each row of a sequence sees its own key."""
        first_key_seen_by = self.seq_q - self.seq_kv + (0 if self.causal else 1 - (self.window or 0))
        return max(0, first_key_seen_by) if self.causal or self.window is not None else 0

    @property
    def dtype_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def forward(self) -> bool:
        """Whether a forward pass is part of the work."""
        return self.direction != BACKWARD

    @property
    def backward(self) -> bool:
        """Whether a backward pass is part of the work."""
        return self.direction != FORWARD

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what is computed, in order."""
        return ("O",) * self.forward + ("dQ", "dK", "dV") * self.backward

    def at_seq(self, seq: int) -> AttentionProblem:
        """The same problem as self-attention over `seq` tokens, lengths in proportion. Raises ProblemError."""
        return replace(self, seq_q=seq, seq_kv=seq, lengths=self.lengths_at(seq))

    def lengths_at(self, seq: int) -> tuple[int, ...] | None:
        """The lengths in proportion to `seq` keys, rounded up: only an empty sequence stays empty."""
        return None if self.lengths is None else tuple(-(-length * seq // self.seq_kv) for length in self.lengths)

    def to_json(self) -> dict[str, Any]:
        """A window and lengths stand in it only where there are some."""
        data = {name: value for name, value in asdict(self).items() if name not in OPTIONAL or value is not None}
        return data if self.lengths is None else {**data, "lengths": list(self.lengths)}

    @classmethod
    def from_json(cls, data: Any) -> AttentionProblem:
        """Reads what to_json wrote. Raises ProblemError for anything else, unknown fields included."""
        if not isinstance(data, dict):
            raise ProblemError("a problem is a JSON object with batch, seq_q, heads, head_dim, …")
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(map(str, data)) - known)
        if unknown:
            raise ProblemError(f"unknown problem field {shown(unknown[0])}; legal: {', '.join(sorted(known))}")
        missing = [name for name in ("batch", "seq_q", "heads", "head_dim") if name not in data]
        if missing:
            raise ProblemError(f"the problem lacks {', '.join(missing)}")
        lengths = data.get("lengths")
        return cls(**data | ({"lengths": tuple(lengths)} if isinstance(lengths, list) else {}))


def check_whole_number(name: str, value: Any, limit: int, else_legal: str = "") -> None:
    """Raises ProblemError unless value is an int (not a bool) from 1 to limit. `else_legal` ends the words of a refusal."""
    if type(value) is not int or not 1 <= value <= limit:
        raise ProblemError(f"{name} is {shown(value)}; legal: whole numbers from 1 to {limit:,}{else_legal}")


def legal_kv_heads(heads: int) -> list[int]:
    """The divisors of heads: every KV head must serve the same number of query heads."""
    return [n for n in range(1, heads + 1) if heads % n == 0]


def check_kv_heads(heads: int, kv_heads: int) -> None:
    """Raises ProblemError unless kv_heads is an int that divides heads."""
    if type(kv_heads) is not int or kv_heads < 1 or heads % kv_heads:
        legal = ", ".join(map(str, legal_kv_heads(heads)))
        raise ProblemError(
            f"kv_heads is {shown(kv_heads)}, which does not divide heads = {heads}; legal for {heads} heads: {legal}"
        )


def check_lengths(lengths: Any, batch: int, seq_q: int, seq_kv: int) -> None:
    """Raises ProblemError unless lengths is a tuple of one int from 0 to seq_kv for each batch item, not all 0."""
    legal = (
        f"legal: one whole number from 0 to {seq_kv:,} for each sequence of the batch ({batch:,}), not all 0, or none"
    )
    if seq_q != seq_kv:
        raise ProblemError(
            f"lengths need self-attention, and seq_q is {seq_q:,} where seq_kv is {seq_kv:,};"
            " legal: as many queries as keys, or no lengths"
        )
    if type(lengths) is not tuple:
        raise ProblemError(f"lengths is {shown(lengths)}; {legal}")
    if len(lengths) > MAX_LENGTHS:
        raise ProblemError(f"lengths has {len(lengths):,}; legal: a padded batch of at most {MAX_LENGTHS:,} sequences")
    if len(lengths) != batch:
        raise ProblemError(f"lengths has {len(lengths):,} for a batch of {batch:,}; {legal}")
    for length in lengths:
        if type(length) is not int or not 0 <= length <= seq_kv:
            raise ProblemError(f"lengths holds {shown(length)}; {legal}")
    if not any(lengths):
        raise ProblemError(f"lengths are all 0; {legal}")
