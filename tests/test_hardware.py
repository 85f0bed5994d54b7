import pytest

from attnlab import hardware


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("NVIDIA H200", "bfloat16", 989.5),  # F19 and its kind: names that contain one another
        ("NVIDIA H200", "float16", 989.5),
        ("NVIDIA H200", "float32", 67),
        ("NVIDIA H200 NVL", "bfloat16", 835.5),
        ("NVIDIA H20", "bfloat16", 148),
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.5),
        ("NVIDIA H100 PCIe", "bfloat16", 756),
        ("NVIDIA H100 NVL", "bfloat16", 835.5),
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312),
        ("A100-SXM4-80GB", "bfloat16", 312),
        ("NVIDIA A100-PCIE-40GB", "bfloat16", 312),
        ("NVIDIA A100 80GB PCIe", "bfloat16", 312),
        ("NVIDIA B200", "bfloat16", 2250),
        ("NVIDIA GB200", "bfloat16", 2500),
        ("NVIDIA GeForce RTX 3090", "bfloat16", 71),
        ("NVIDIA GeForce RTX 4090", "bfloat16", 165.2),
        ("NVIDIA GeForce RTX 5090", "bfloat16", 209.5),
        ("NVIDIA A10", "bfloat16", 125),
        ("NVIDIA A10G", "bfloat16", 70),
        ("NVIDIA L4", "bfloat16", 121),
        ("NVIDIA L40", "bfloat16", 181.05),
        ("NVIDIA L40S", "bfloat16", 362.05),
        ("NVIDIA RTX A6000", "bfloat16", 154.8),
        ("Tesla T4", "float16", 65),
        ("Tesla T4", "bfloat16", None),
        ("Tesla V100-SXM2-32GB", "float16", 125),
        ("Tesla V100-PCIE-16GB", "float16", 112),
        ("Tesla V100-SXM2-16GB", "bfloat16", None),
    ],
)
def test_dense_peak_of_the_exact_card(name, dtype, tflops):
    assert hardware.dense_peak_tflops(name, dtype) == tflops


@pytest.mark.parametrize(
    "name",
    [
        "Some Future GPU",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",  # a slice has a fraction of the card
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA RTX A6000 Laptop GPU",
        "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
        "NVIDIA A100",
        "NVIDIA H100",
        "NVIDIA H20-3e",
        "NVIDIA GH200 480GB",
        "NVIDIA B300",
        "NVIDIA L40S-48Q",
        "NVIDIA",
        "",
    ],
)
def test_unknown_card_has_no_peak(name):
    assert hardware.lookup(name) is None
    assert hardware.dense_peak_tflops(name, "bfloat16") is None
    assert hardware.bandwidth_tbs(name) is None


@pytest.mark.parametrize(
    ("shorter", "longer"),
    [
        ("NVIDIA L4", "NVIDIA L40S"),
        ("NVIDIA L40", "NVIDIA L40S"),
        ("NVIDIA H20", "NVIDIA H200"),
        ("NVIDIA H200", "NVIDIA H200 NVL"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 NVL"),
        ("NVIDIA A10", "NVIDIA A10G"),
        ("NVIDIA A10", "NVIDIA A100 80GB PCIe"),
        ("NVIDIA B200", "NVIDIA GB200"),
        ("NVIDIA A40", "NVIDIA RTX A6000"),
    ],
)
def test_a_name_within_another_is_another_card(shorter, longer):
    one, other = hardware.lookup(shorter), hardware.lookup(longer)
    assert one is not other
    assert (one.tensor_tflops, one.bandwidth_tbs) != (other.tensor_tflops, other.bandwidth_tbs)


def test_memory_of_one_chip_comes_at_several_speeds():
    names = ("A100-PCIE-40GB", "A100 80GB PCIe", "A100-SXM4-80GB", "H100 PCIe", "H100 80GB HBM3", "H200")
    assert [hardware.bandwidth_tbs(f"NVIDIA {name}") for name in names] == [1.555, 1.935, 2.039, 2.0, 3.35, 4.8]


def test_h200_ridge():
    flop_per_byte = hardware.dense_peak_tflops("NVIDIA H200", "bfloat16") / hardware.bandwidth_tbs("NVIDIA H200")
    assert round(flop_per_byte) == 206  # F19


def test_memory_of_the_exact_card():
    names = (
        "A100-SXM4-40GB",
        "A100-SXM4-80GB",
        "H100 NVL",
        "H200",
        "Tesla V100-SXM2-16GB",
        "Tesla V100-SXM2-32GB",
        "T4",
    )
    assert [hardware.memory_bytes(name) >> 30 for name in names] == [40, 80, 94, 141, 16, 32, 16]
    assert hardware.memory_bytes("NVIDIA A100") is None
    assert hardware.same_card("NVIDIA H200", "H200") and not hardware.same_card("H200", "H200 NVL")
    assert "A100-PCIE-40GB" in hardware.names() and all(hardware.lookup(name) for name in hardware.names())


def test_unknown_dtype_has_no_peak():
    assert hardware.dense_peak_tflops("NVIDIA H200", "int8") is None


def test_table_is_consistent():
    names = [hardware._plain(name) for peak in hardware.PEAKS for name in peak.names]
    assert len(names) == len(set(names))
    for peak in hardware.PEAKS:
        assert peak.source and peak.memory_gb >= 16
        assert peak.tensor_tflops > peak.float32_tflops > peak.bandwidth_tbs > 0
