"""Attention as real models run it: name → the shape of one layer, ready to be swept, and where it is written down.

A shape is what one layer computes in one call. The dtype is the one that the model is run in, on whatever device it is
measured. What the sources leave to the user (the batch, the lengths of a padded one) is chosen to be typical. The decode
steps are one new token over a cache, which sees all of it, so that they need no mask.

    PRESETS["llama-3-8b-prefill"].sweep()      # 128, 256, … up to the preset's own length
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab.problem import FORWARD_BACKWARD, AttentionProblem
from attnlab.sweep import DEFAULT_PATHS, Sweep, lengths_up_to

LLAMA_3 = "Grattafiori et al., The Llama 3 Herd of Models, 2024, arXiv:2407.21783, table 3"
GPT_2 = "Radford et al., Language Models are Unsupervised Multitask Learners, 2019; 124M: 12 heads of 64, 1,024 tokens"
VIT = "Dosovitskiy et al., An Image is Worth 16x16 Words, 2020, arXiv:2010.11929, table 1; 14 × 14 patches and a class token"
WHISPER = (
    "Radford et al., Robust Speech Recognition, 2022, arXiv:2212.04356, table 1; model card of openai/whisper-large-v3"
)
BERT = "Devlin et al., BERT, 2018, arXiv:1810.04805, section 3; sentences of mixed lengths"
COMPARISON = "the shape that `python -m attnlab compare` measures"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """`problem` is at the longest sequence; `seq_q` as in Sweep: queries of every point, None for as many as keys."""

    name: str  # on the command line
    title: str  # for people
    source: str
    problem: AttentionProblem
    seq_q: int | None = None

    def sweep(self, paths: Sequence[str] = DEFAULT_PATHS) -> Sweep:
        return Sweep(
            problem=self.problem, seqs=lengths_up_to(self.problem.seq_kv), seq_q=self.seq_q, paths=tuple(paths)
        )


def _llama(longest: int, heads: int = 32, **changes: object) -> AttentionProblem:
    """Llama 3: 8 KV heads of 128, bfloat16; 8B has 32 heads, 70B has 64."""
    shape = {"batch": 1, "head_dim": 128, "kv_heads": 8, "causal": True, "dtype": "bfloat16"}
    return AttentionProblem(seq_q=longest, heads=heads, **{**shape, **changes})


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(name="llama-3-8b-prefill", title="Llama-3 8B, prefill", source=LLAMA_3, problem=_llama(8_192)),
        Preset(
            name="llama-3-8b-decode",
            title="Llama-3 8B, decode",
            source=LLAMA_3 + "; the cache of Llama 3.1",
            problem=_llama(131_072, causal=False),
            seq_q=1,
        ),
        Preset(
            name="llama-3-8b-training",
            title="Llama-3 8B, training",
            source=LLAMA_3,
            problem=_llama(8_192, direction=FORWARD_BACKWARD),
        ),
        Preset(
            name="llama-3-70b-prefill", title="Llama-3 70B, prefill", source=LLAMA_3, problem=_llama(8_192, heads=64)
        ),
        Preset(
            name="llama-3-70b-decode",
            title="Llama-3 70B, decode",
            source=LLAMA_3 + "; the cache of Llama 3.1",
            problem=_llama(131_072, heads=64, causal=False),
            seq_q=1,
        ),
        Preset(
            name="llama-3.1-128k",
            title="Llama-3.1 8B, a prompt of 128K tokens",
            source=LLAMA_3 + "; section 3.4.2, a context of 128K",
            problem=_llama(131_072),
        ),
        Preset(
            name="gpt-2",
            title="GPT-2",
            source=GPT_2,
            problem=AttentionProblem(batch=8, seq_q=1_024, heads=12, head_dim=64, dtype="float16", causal=True),
        ),
        Preset(
            name="vit-l-16",
            title="ViT-L/16, 224 pixels",
            source=VIT,
            problem=AttentionProblem(batch=64, seq_q=197, heads=16, head_dim=64, dtype="float16"),
        ),
        Preset(
            name="whisper-large-cross",
            title="Whisper large, cross-attention",
            source=WHISPER + "; 448 tokens look at 1,500 frames",
            problem=AttentionProblem(batch=8, seq_q=1_500, heads=20, head_dim=64, dtype="float16"),
            seq_q=448,
        ),
        Preset(
            name="bert-large-padded",
            title="BERT large, a padded batch",
            source=BERT,
            problem=AttentionProblem(
                batch=8,
                seq_q=512,
                heads=16,
                head_dim=64,
                dtype="float16",
                lengths=(512, 421, 300, 256, 178, 128, 64, 31),
            ),
        ),
        *(
            Preset(
                name=f"comparison-{seq}",
                title=f"Comparison at {seq}",
                source=COMPARISON,
                problem=AttentionProblem(batch=4, seq_q=seq, heads=32, head_dim=128, dtype="bfloat16"),
            )
            for seq in (128, 512)
        ),
    )
}
