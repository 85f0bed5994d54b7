"""The textbook's estimate of attention's time, and what is wrong with it.

It counts one score matrix, (seq, seq), where every head has its own, and four passes over it where code written out makes
six: QKᵀ writes it, scale reads and writes, softmax reads and writes, AV reads. So it finds standard attention bound by
arithmetic and as fast as flash at every length, which no clock confirms. `textbook` reproduces it; `counted` puts it right,
one step at a time: heads first, then passes.
"""

from __future__ import annotations

from attnlab.estimate import DATA_SHEET, Estimate, Roof, of

SEQS = (512, 1024, 2048, 4096, 8192)
D_MODEL, HEADS = 768, 12  # GPT-2, 124M
ELEMENT_BYTES = 2  # of float16 or bfloat16
TEXTBOOK_PASSES, PASSES = 4, 6  # over the scores: as the textbook has it, as code written out makes them
ROOF = Roof(peak_tflops=312, bandwidth_tbs=2.0, device="A100-SXM4-80GB", source=DATA_SHEET)  # 2.039 TB/s, rounded
COLUMNS = ("Seq Len", "Standard (ms)", "Flash (ms)", "Speedup", "Std Bound", "Flash Bound")


def textbook(seq: int, d_model: int = D_MODEL, roof: Roof = ROOF) -> tuple[Estimate, Estimate]:
    """(standard, flash) as the textbook has them: 4 s² d FLOPs for both; one score matrix four times, or four tensors."""
    flops = 4 * seq * seq * d_model
    standard_bytes = TEXTBOOK_PASSES * seq * seq * ELEMENT_BYTES
    flash_bytes = 4 * seq * d_model * ELEMENT_BYTES
    return of(flops, standard_bytes, roof), of(flops, flash_bytes, roof)


def counted(
    seq: int,
    *,
    passes: int = PASSES,
    heads: int = HEADS,
    d_model: int = D_MODEL,
    roof: Roof = ROOF,
) -> tuple[Estimate, Estimate]:
    """(standard, flash) with a score matrix for each head, `passes` over it, and Q, K, V read and O written once by both.

    With six passes it is `estimate.estimate` of one batch item without a mask, for whose heads PyTorch need not copy anything.
    """
    flops, tensors = 4 * seq * seq * d_model, 4 * seq * d_model * ELEMENT_BYTES
    standard_bytes = passes * heads * seq * seq * ELEMENT_BYTES + tensors
    return of(flops, standard_bytes, roof), of(flops, tensors, roof)


def row(seq: int, standard: Estimate, flash: Estimate) -> tuple[str, ...]:
    """A line of the table whose head is COLUMNS."""
    return (
        str(seq),
        f"{standard.ms:.3f}",
        f"{flash.ms:.3f}",
        f"{speedup(standard, flash):.1f}x",
        f"{standard.bound}-bound",
        f"{flash.bound}-bound",
    )


def speedup(standard: Estimate, flash: Estimate) -> float:
    return standard.ms / flash.ms


def what_is_wrong(seq: int = SEQS[-1], roof: Roof = ROOF) -> str:
    """The two mistakes, each with the speed-up at `seq` once it is put right."""
    wrong = speedup(*textbook(seq, roof=roof))
    heads, both = (speedup(*counted(seq, passes=passes, roof=roof)) for passes in (TEXTBOOK_PASSES, PASSES))
    return (
        f"The textbook's estimate says {wrong:.1f}× at {seq:,}, compute-bound in every row, which no measurement confirms. It"
        f" counts one score matrix where each of the {HEADS} heads has its own: that alone makes standard memory-bound and"
        f" {heads:.1f}× slower. And it counts {TEXTBOOK_PASSES} passes over the scores where code written out makes {PASSES}"
        f" (QKᵀ writes; scale and softmax read and write; AV reads): {both:.1f}×."
    )
