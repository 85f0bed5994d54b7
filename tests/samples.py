"""What several tests measure on, on paper, and one run in which everything happens."""

from attnlab.device import Device
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.sweep import Sweep

H200 = Device(kind="cuda", name="NVIDIA H200", uuid="GPU-1", total_bytes=140 << 30, free_bytes=139 << 30)
CPU = Device(kind="cpu", name="A CPU", uuid="host", total_bytes=8 << 30, free_bytes=6 << 30)

F25_SWEEP = Sweep(
    problem=AttentionProblem(batch=1, seq_q=131_072, heads=8, head_dim=64, kv_heads=2, causal=True),
    seqs=(1024, 65_536, 131_072),
)
F25_DEVICE = Device(
    kind="cuda",
    name="NVIDIA H200",
    uuid="GPU-1",
    total_bytes=150_754_820_096,
    free_bytes=150_000_000_000,
    torch="2.11.0+cu130",
    packages=(("flash-attn-4", "4.0.0b36"),),
)


def f25_point(path, seq, status, **more):
    return Measurement(problem=F25_SWEEP.problem.at_seq(seq), path=path, status=status, **more)


F25 = Run(
    id="r1",
    sweep=F25_SWEEP,
    state="done",
    created="2026-11-30T10:00:00Z",
    device=F25_DEVICE,
    recorded=True,
    measurements=(
        f25_point("standard", 1024, "ok", device_ms=0.12, samples=3, samples_ms=(0.11, 0.12, 0.13), peak_bytes=10,
                  notes=("a", "b")),
        f25_point("standard", 65_536, "oom", reason="out of memory, asked for 64 GiB", predicted_bytes=1 << 36),
        f25_point("standard", 131_072, "skipped", reason="predicted 90 s, budget 30 s", predicted_ms=90_000.0),
        f25_point("flash", 1024, "ok", device_ms=0.05, launch_bound=True),
        f25_point("flash", 65_536, "ok", device_ms=5.0),
        f25_point("flash", 131_072, "ok", device_ms=20.0),
    ),
)  # fmt: skip
