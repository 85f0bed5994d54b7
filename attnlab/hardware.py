"""What the hardware allows: a table of data sheets.

The table holds *dense* peaks. Data sheets since Ampere print the rate "with sparsity", twice what attention can reach,
so such a figure is halved here and the entry says so. A card that is not in the table has no peak: nothing is guessed
from a similar name, because names contain one another ("L4" and "L40S", "H100 PCIe" and "H100 NVL"), and a laptop card
or a MIG slice bears the name of the full card with a word more.

    >>> dense_peak_tflops("NVIDIA H200", "bfloat16")
    989.5
    >>> lookup("Some Future GPU") is None
    True
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Peak:
    """One card as its data sheet describes it. Rates in TFLOP/s, dense; None where the card has no such units."""

    names: tuple[str, ...]  # as the driver reports them, without the maker's name
    tensor_tflops: float  # float16 inputs, float32 accumulation, tensor cores
    float32_tflops: float  # CUDA cores: TF32 is off wherever AttnLab measures float32
    bandwidth_tbs: float  # TB/s (10^12), device memory
    memory_gb: int  # as printed; memory is built in powers of two, so these are GiB, of which a driver keeps about 1 %
    source: str  # which document, of when
    bfloat16: bool = True  # tensor cores before Ampere have no bfloat16

    def tflops(self, dtype: str) -> float | None:
        """Dense peak in TFLOP/s for inputs of `dtype` ("bfloat16", "float16", "float32")."""
        if dtype == "float32":
            return self.float32_tflops
        return self.tensor_tflops if dtype == "float16" or (dtype == "bfloat16" and self.bfloat16) else None


HALVED = "printed with sparsity, halved"
PEAKS = (
    # Blackwell
    Peak(names=("GB200",), tensor_tflops=2500, float32_tflops=80, bandwidth_tbs=8.0, memory_gb=186,
         source=f"NVIDIA Blackwell data sheet, 2025, one GPU of GB200 NVL72; {HALVED}"),
    Peak(names=("B200",), tensor_tflops=2250, float32_tflops=75, bandwidth_tbs=7.7, memory_gb=180,
         source=f"NVIDIA Blackwell data sheet, 2025, one GPU of HGX B200; {HALVED}"),
    Peak(names=("GeForce RTX 5090",), tensor_tflops=209.5, float32_tflops=104.8, bandwidth_tbs=1.792, memory_gb=32,
         source="NVIDIA RTX Blackwell GPU architecture paper, 2025"),
    # Hopper
    Peak(names=("H200",), tensor_tflops=989.5, float32_tflops=67, bandwidth_tbs=4.8, memory_gb=141,
         source=f"NVIDIA H200 data sheet, November 2024; {HALVED}"),
    Peak(names=("H200 NVL",), tensor_tflops=835.5, float32_tflops=60, bandwidth_tbs=4.8, memory_gb=141,
         source=f"NVIDIA H200 data sheet, November 2024; {HALVED}"),
    Peak(names=("H100 80GB HBM3",), tensor_tflops=989.5, float32_tflops=67, bandwidth_tbs=3.35, memory_gb=80,
         source=f"NVIDIA H100 data sheet, March 2024; {HALVED}"),
    Peak(names=("H100 NVL",), tensor_tflops=835.5, float32_tflops=60, bandwidth_tbs=3.9, memory_gb=94,
         source=f"NVIDIA H100 data sheet, March 2024; {HALVED}"),
    Peak(names=("H100 PCIe",), tensor_tflops=756, float32_tflops=51, bandwidth_tbs=2.0, memory_gb=80,
         source="NVIDIA H100 architecture paper, 2023, and H100 PCIe data sheet, 2022"),
    Peak(names=("H20",), tensor_tflops=148, float32_tflops=44, bandwidth_tbs=4.0, memory_gb=96,
         source="NVIDIA H20 data sheet, 2023"),
    # Ada
    Peak(names=("L40S",), tensor_tflops=362.05, float32_tflops=91.6, bandwidth_tbs=0.864, memory_gb=48,
         source="NVIDIA L40S data sheet, 2023"),
    Peak(names=("L40",), tensor_tflops=181.05, float32_tflops=90.5, bandwidth_tbs=0.864, memory_gb=48,
         source="NVIDIA L40 data sheet, 2022"),
    Peak(names=("L4",), tensor_tflops=121, float32_tflops=30.3, bandwidth_tbs=0.3, memory_gb=24,
         source=f"NVIDIA L4 data sheet, 2023; {HALVED}"),
    Peak(names=("RTX 6000 Ada Generation",), tensor_tflops=364.2, float32_tflops=91.1, bandwidth_tbs=0.96, memory_gb=48,
         source="NVIDIA RTX 6000 Ada data sheet, 2023: 1,457 FP8 TFLOPS with sparsity, a quarter"),
    Peak(names=("GeForce RTX 4090",), tensor_tflops=165.2, float32_tflops=82.6, bandwidth_tbs=1.008, memory_gb=24,
         source="NVIDIA Ada GPU architecture paper, 2022"),
    # Ampere
    Peak(names=("A100-SXM4-80GB",), tensor_tflops=312, float32_tflops=19.5, bandwidth_tbs=2.039, memory_gb=80,
         source="NVIDIA A100 data sheet, June 2021"),
    Peak(names=("A100 80GB PCIe",), tensor_tflops=312, float32_tflops=19.5, bandwidth_tbs=1.935, memory_gb=80,
         source="NVIDIA A100 data sheet, June 2021"),
    Peak(names=("A100-SXM4-40GB", "A100-PCIE-40GB"), tensor_tflops=312, float32_tflops=19.5, bandwidth_tbs=1.555, memory_gb=40,
         source="NVIDIA A100 data sheet, 2020"),
    Peak(names=("A30",), tensor_tflops=165, float32_tflops=10.3, bandwidth_tbs=0.933, memory_gb=24,
         source="NVIDIA A30 data sheet, 2021"),
    Peak(names=("A40",), tensor_tflops=149.7, float32_tflops=37.4, bandwidth_tbs=0.696, memory_gb=48,
         source="NVIDIA A40 data sheet, 2021"),
    Peak(names=("A10",), tensor_tflops=125, float32_tflops=31.2, bandwidth_tbs=0.6, memory_gb=24,
         source="NVIDIA A10 data sheet, March 2021"),
    Peak(names=("A10G",), tensor_tflops=70, float32_tflops=35, bandwidth_tbs=0.6, memory_gb=24,
         source="NVIDIA A10G data sheet, February 2022"),
    Peak(names=("RTX A6000",), tensor_tflops=154.8, float32_tflops=38.7, bandwidth_tbs=0.768, memory_gb=48,
         source=f"NVIDIA RTX A6000 data sheet, 2021; {HALVED}"),
    Peak(names=("GeForce RTX 3090",), tensor_tflops=71, float32_tflops=35.6, bandwidth_tbs=0.936, memory_gb=24,
         source="NVIDIA GA102 GPU architecture paper, 2021"),
    # Turing and Volta: no bfloat16, no sparsity
    Peak(names=("T4",), tensor_tflops=65, float32_tflops=8.1, bandwidth_tbs=0.32, memory_gb=16, bfloat16=False,
         source="NVIDIA T4 data sheet, 2019"),
    Peak(names=("V100-SXM2-16GB",), tensor_tflops=125, float32_tflops=15.7, bandwidth_tbs=0.9, memory_gb=16,
         bfloat16=False, source="NVIDIA V100 data sheet, January 2020"),
    Peak(names=("V100-SXM2-32GB",), tensor_tflops=125, float32_tflops=15.7, bandwidth_tbs=0.9, memory_gb=32,
         bfloat16=False, source="NVIDIA V100 data sheet, January 2020"),
    Peak(names=("V100-PCIE-16GB",), tensor_tflops=112, float32_tflops=14, bandwidth_tbs=0.9, memory_gb=16,
         bfloat16=False, source="NVIDIA V100 data sheet, January 2020"),
    Peak(names=("V100-PCIE-32GB",), tensor_tflops=112, float32_tflops=14, bandwidth_tbs=0.9, memory_gb=32,
         bfloat16=False, source="NVIDIA V100 data sheet, January 2020"),
)  # fmt: skip


def _plain(name: str) -> str:
    """The name as the table is searched: case, dashes and the maker's prefix do not count, every other word does."""
    words = name.lower().replace("-", " ").split()
    while words and words[0] in ("nvidia", "tesla"):
        words = words[1:]
    return " ".join(words)


_BY_NAME = {_plain(name): peak for peak in PEAKS for name in peak.names}


def lookup(name: str) -> Peak | None:
    """The data sheet of the card that calls itself `name`; None when it is not in the table."""
    return _BY_NAME.get(_plain(name))


def memory_bytes(name: str) -> int | None:
    """Device memory of the card `name` by its data sheet; None when unknown."""
    peak = lookup(name)
    return peak.memory_gb << 30 if peak else None


def same_card(name: str, other: str) -> bool:
    """Whether two names are of one card, with or without the maker's name."""
    return _plain(name) == _plain(other)


def names() -> list[str]:
    """Every card of the table, as the driver reports it, without the maker's name."""
    return [name for peak in PEAKS for name in peak.names]


def dense_peak_tflops(name: str, dtype: str) -> float | None:
    """Dense peak in TFLOP/s of the card `name` for inputs of `dtype`; None when unknown."""
    peak = lookup(name)
    return peak.tflops(dtype) if peak else None


def bandwidth_tbs(name: str) -> float | None:
    """Memory bandwidth in TB/s (10^12 bytes a second) of the card `name`; None when unknown."""
    peak = lookup(name)
    return peak.bandwidth_tbs if peak else None
