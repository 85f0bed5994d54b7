"""Tiles: how flash walks through the score matrix, one tile on chip at a time, and what that moves.

Each block of queries is loaded once; past it come the blocks of K and V, and each makes one tile of scores, which is used
up on chip and never written. At the end of the row one block of O is written (Dao 2023, arXiv:2307.08691, algorithm 1).
With a causal mask tiles that no query of the block sees are not visited. Rows go top to bottom here, tiles left to right;
a GPU works on as many rows at once as it has multiprocessors, and each of them holds one tile.

Bytes are for the whole problem, all heads of the batch in step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from attnlab import cost
from attnlab.device import Device
from attnlab.hardware import lookup
from attnlab.problem import AttentionProblem, ProblemError
from attnlab.trip import decimal_size

FLOAT32_BYTES = 4
BLOCKS = (16, 32, 64, 128, 256)
KIB = 1024

# KB (1,024 bytes) of shared memory of one multiprocessor, by compute capability: NVIDIA, CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability", maximum amount of shared memory per SM.
SHARED_KB = {"7.0": 96, "7.5": 64, "8.0": 164, "8.6": 100, "8.9": 100, "9.0": 228, "10.0": 228, "12.0": 100}
REGISTERS_KB = 256  # of one multiprocessor, of each of these: 64 K registers of 32 bits (the same table)
# The compute capability of a card, by the first name of its data sheet in attnlab.hardware (NVIDIA, "CUDA GPUs").
CAPABILITY = {
    "GB200": "10.0", "B200": "10.0", "GeForce RTX 5090": "12.0",
    "H200": "9.0", "H200 NVL": "9.0", "H100 80GB HBM3": "9.0", "H100 NVL": "9.0", "H100 PCIe": "9.0", "H20": "9.0",
    "L40S": "8.9", "L40": "8.9", "L4": "8.9", "RTX 6000 Ada Generation": "8.9", "GeForce RTX 4090": "8.9",
    "A100-SXM4-80GB": "8.0", "A100 80GB PCIe": "8.0", "A100-SXM4-40GB": "8.0", "A30": "8.0",
    "A40": "8.6", "A10": "8.6", "A10G": "8.6", "RTX A6000": "8.6", "GeForce RTX 3090": "8.6",
    "T4": "7.5", "V100-SXM2-16GB": "7.0", "V100-PCIE-16GB": "7.0",
    "V100-SXM2-32GB": "7.0", "V100-PCIE-32GB": "7.0",
}  # fmt: skip
# Compared with where the device has no shared memory, or none that is known.
EXAMPLE = Device(kind="cuda", name="NVIDIA H200", uuid="", total_bytes=0, free_bytes=0)


def shared_bytes(device: Device | None) -> int | None:
    """Shared memory of one multiprocessor, in bytes; None for a CPU and for a card that the tables lack."""
    if device is None or device.kind != "cuda":
        return None
    peak = lookup(device.name)
    capability = device.compute_capability or (CAPABILITY.get(peak.names[0]) if peak else None)
    kb = SHARED_KB.get(capability or "")
    return kb * KIB if kb else None


@dataclass(frozen=True)
class Tiling:
    """The tiles of one problem. Raises ProblemError for blocks that cannot be."""

    problem: AttentionProblem
    block_q: int = 128
    block_k: int = 128

    def __post_init__(self) -> None:
        for name in ("block_q", "block_k"):
            if getattr(self, name) not in BLOCKS:
                raise ProblemError(f"{name} is {getattr(self, name)!r}; legal: {', '.join(map(str, BLOCKS))}")

    @property
    def rows(self) -> int:
        return -(-self.problem.seq_q // self.block_q)

    @property
    def columns(self) -> int:
        return -(-self.problem.seq_kv // self.block_k)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Tiles visited in each row: up to the last key that the block's last query sees."""
        last = [min((row + 1) * self.block_q, self.problem.seq_q) - 1 for row in range(self.rows)]
        return tuple(-(-self.problem.visible(query).stop // self.block_k) for query in last)

    @property
    def steps(self) -> int:
        """Tiles visited, of one head."""
        return sum(self.widths)

    def at(self, step: int) -> tuple[int, int]:
        """(row, column) of the tile that step 0, 1, … has on chip."""
        for row, width in enumerate(self.widths):
            if step < width:
                return row, step
            step -= width
        raise IndexError(step)

    def sram_bytes(self) -> dict[str, int]:
        """What one head needs on chip, by tile, in bytes: inputs in their dtype, scores and accumulator in float32.

        Q: block_q · dim · e.  K, V: block_k · dim · e each.  S: block_q · block_k · 4.  O: block_q · dim · 4, with e bytes an
        element. The running max and sum, 8 bytes a query, are left out; so is a second K and V tile that kernels fetch
        ahead. Kernels hold S and O in registers where they can.
        """
        p, q, k = self.problem, self.block_q, self.block_k
        return {
            "Q": q * p.head_dim * p.dtype_bytes,
            "K": k * p.head_dim * p.dtype_bytes,
            "V": k * p.head_dim * p.dtype_bytes,
            "S": q * k * FLOAT32_BYTES,
            "O": q * p.head_dim * FLOAT32_BYTES,
        }

    @property
    def row_bytes(self) -> int:
        """Bytes of one token of Q, as of K, V and O, over all heads of the batch."""
        p = self.problem
        return p.batch * p.heads * p.head_dim * p.dtype_bytes

    @property
    def tile_bytes(self) -> int:
        """The scores of one tile, in float32: all of them that there are at any moment, of one head."""
        return min(self.block_q, self.problem.seq_q) * min(self.block_k, self.problem.seq_kv) * FLOAT32_BYTES

    def query_bytes_before(self, row: int) -> int:
        """Bytes of Q, as of O, in the blocks before `row`."""
        return min(row * self.block_q, self.problem.seq_q) * self.row_bytes

    def key_bytes_before(self, column: int) -> int:
        """Bytes of K and V together in the blocks before `column`."""
        return 2 * min(column * self.block_k, self.problem.seq_kv) * self.row_bytes

    def once_bytes(self, step: int) -> int:
        """HBM traffic once the tile of `step` is done, where a cache keeps K and V: each of their blocks is read from HBM
        when it comes for the first time. After the last tile it is cost.min_bytes."""
        row, column = self.at(step)
        widest = max(self.widths[:row], default=0)
        loaded = self.query_bytes_before(row + 1) + self.key_bytes_before(max(widest, column + 1))
        return loaded + self.query_bytes_before(row + (column + 1 == self.widths[row]))

    def asked_bytes(self, step: int) -> int:
        """Bytes that have come on chip or left it once the tile of `step` is done: K and V anew for each block of queries.
        It is also the HBM traffic if no cache kept anything."""
        row, column = self.at(step)
        before = sum(self.key_bytes_before(width) for width in self.widths[:row])
        loaded = self.query_bytes_before(row + 1) + before + self.key_bytes_before(column + 1)
        return loaded + self.query_bytes_before(row + (column + 1 == self.widths[row]))


def sentence(tiling: Tiling) -> str:
    """What the tiles save, to be read out. On chip a KB is 1,024 bytes, as in the table above."""
    scores = decimal_size(cost.score_bytes(tiling.problem))
    return f"One tile of {tiling.tile_bytes / KIB:,.3g} KB on chip at a time, instead of {scores} of scores in memory."
