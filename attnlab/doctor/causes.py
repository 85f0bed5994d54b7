"""The text of an error → what it means and what to do, from a table of what PyTorch, CUDA, the loader and FlashAttention say.

    >>> explain("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", About(package="flash-attn 2")).kind
    'capability'

The first row whose pattern is found decides. Texts are filled in from what else is known (About); the pattern's groups are
{1}, {2}, …
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

# What `requirements.txt` installs: pip takes a pre-release only by its exact version, or with --pre.
FLASH_ATTN_4 = "flash-attn-4[cu13]==4.0.0b36"
# The oldest driver of each CUDA major version (CUDA Toolkit release notes, table of minimum driver versions).
OLDEST_DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
# How a distribution installs NVIDIA's driver, by the ID of /etc/os-release.
DRIVER_COMMANDS = {
    "ubuntu": "sudo ubuntu-drivers install && sudo reboot",
    "debian": "sudo apt-get install nvidia-driver && sudo reboot",
    "fedora": "sudo dnf install akmod-nvidia && sudo reboot",
    "arch": "sudo pacman -S nvidia && sudo reboot",
}
OTHER_DRIVER_COMMAND = (
    "nvidia-smi   # what is there now; the distribution's own package of NVIDIA's driver brings a newer one"
)
COUNTERS = "options nvidia NVreg_RestrictProfilingToAdminUsers=0"


@dataclass(frozen=True, kw_only=True)
class About:
    """What is known around an error. Empty where it is not."""

    package: str = "it"  # with its version: "flash-attn 2.7.4.post1"
    repair: str = ""  # the command that builds or installs it anew
    built: str = "this PyTorch"  # "torch 2.13.0+cu130, CUDA 13.0, C++11 ABI true, cp311"
    cuda: str = ""  # that PyTorch is built for
    oldest_driver: str = ""
    card: str = "this GPU"
    capability: str = ""
    arch_list: str = ""
    torch_repair: str = ""
    driver_command: str = OTHER_DRIVER_COMMAND
    pip: str = "python -m pip"


@dataclass(frozen=True)
class Explained:
    kind: str
    cause: str
    remedy: str


@dataclass(frozen=True)
class Cause:
    kind: str
    pattern: str
    cause: str
    remedy: str


OTHER_BUILD = "{package} was built against another PyTorch or C++ ABI than the one here ({built})"
WHEEL_OR_BUILD = "A wheel that matches all of these mends it, or a build without isolation"
NO_DRIVER = "PyTorch finds no NVIDIA driver"
OLDER_BUILD = "a PyTorch built for an older CUDA (the page Get started of PyTorch gives the command)"
DRIVER_OLD = (
    "the NVIDIA driver is too old: this PyTorch is built for CUDA {cuda} and needs driver {oldest_driver} or newer"
)
STALE_DRIVER = "the driver's libraries and its kernel module are of two versions: it was updated since the last start"

CAUSES = (
    Cause("abi", r"undefined symbol: (\S+)", f"{OTHER_BUILD}: it asks for a symbol that is not in it. {WHEEL_OR_BUILD}",
          "{repair}"),
    Cause("abi", r"lib(?:c10|torch)\w*\.so[.\d]*: cannot open shared object",
          f"{OTHER_BUILD}: it asks for a library of PyTorch that is not there, though PyTorch was imported first. "
          f"{WHEEL_OR_BUILD}",
          "{repair}"),
    Cause("cuda-library", r"lib(cudart|cublas\w*|cudnn\w*|cufft|nvrtc|nccl|cusparse\w*|nvJitLink)\.so\.?([\d.]*): cannot open",
          "{package} was built for another CUDA: it asks for lib{1} {2}, and this PyTorch brings that of CUDA {cuda}",
          "{repair}"),
    Cause("system-library", r"(GLIBCXX|GLIBC|CXXABI)_([\d.]+)'? not found",
          "{package} was built for a newer system: it asks for {1} {2}", "{repair}"),
    Cause("driver-old", r"driver on your system is too old(?:[^()]*\(found version (\d+)\))?",
          f"{DRIVER_OLD}{{found}}; or take {OLDER_BUILD}", "{driver_command}"),
    Cause("driver-old", r"CUDA driver version is insufficient|PTX was compiled with an unsupported toolchain",
          f"{DRIVER_OLD}; or take {OLDER_BUILD}", "{driver_command}"),
    Cause("driver-stale", r"[Dd]river/library version mismatch|Error 80[34]\b|unsupported display driver|forward compat",
          STALE_DRIVER, "sudo reboot"),
    Cause("fabric", r"Error 802\b|system not yet initialized",
          "the GPUs of this machine wait for NVIDIA's fabric manager, which does not run",
          "sudo systemctl enable --now nvidia-fabricmanager"),
    Cause("cpu-wheel", r"not compiled with CUDA enabled", "this PyTorch is built for CPUs alone", "{torch_repair}"),
    Cause("no-driver", r"Found no NVIDIA driver", NO_DRIVER, "{driver_command}"),
    Cause("no-kernel-image", r"no kernel image is available|is not compatible with the current PyTorch installation",
          "{package} holds no kernel for {card} (compute capability {capability}){arches}", "{repair}"),
    Cause("capability", r"only supports? Ampere|only supports gpu arch|needs? Ampere",
          "{package} has no kernel for {card} (compute capability {capability}); FlashAttention begins at 8.0 (Ampere)",
          "python -m attnlab sweep --paths standard,sdpa-efficient   # runs without it"),
    Cause("capability", r"has no kernel for compute capability|only supports? Hopper",
          "{package} has no kernel for {card} (compute capability {capability})",
          "python -m attnlab sweep --paths standard,flash   # flash takes the best that runs here"),
    Cause("illegal-access", r"illegal memory access|misaligned address|illegal instruction|unspecified launch failure",
          "a kernel of {package} touched memory that is not its own, as a build for other versions does (here: {built})",
          "{repair}"),
    Cause("assert", r"device-side assert", "a kernel of {package} stopped on an assertion of its own", "{repair}"),
    Cause("out-of-memory", r"out of memory|OutOfMemory", "{card} has no memory left; other processes hold it", "nvidia-smi"),
    Cause("hidden", r"No CUDA GPUs are available|no CUDA-capable device",
          "the driver shows no GPU to this process; CUDA_VISIBLE_DEVICES or the container hides it",
          "env -u CUDA_VISIBLE_DEVICES python -m attnlab doctor"),
    Cause("counters", r"ERR_NVGPUCTRPERM|INSUFFICIENT_PRIVILEGES|does not have permission to access NVIDIA GPU Perf",
          "the driver shows performance counters to administrators alone",
          f"echo '{COUNTERS}' | sudo tee /etc/modprobe.d/nvidia-counters.conf && sudo update-initramfs -u && sudo reboot"),
    Cause("compiler", r"Failed to find C compiler|Python\.h: No such file",
          "triton compiles a small C file at its first launch, and there is no C compiler or no header of Python",
          "sudo apt-get install gcc python3-dev"),
    Cause("other-python", r"No module named '?(flash_attn_2_cuda|flash_attn_3\S*?|flashattn_hopper\w*)'?$",
          "{package} has no compiled part for this Python ({built})", "{repair}"),
    Cause("torch-missing", r"No module named '?torch'?$", "PyTorch is not installed",
          "{pip} install -r requirements.txt"),
    Cause("dependency", r"No module named '?([\w.]+)'?", "{package} needs the module {1}, which is not installed", "{repair}"),
    Cause("wrong-answer", r"answers (\S+) where (\S+) is right", "{package} runs and answers wrongly: {1} in place of {2}",
          "{repair}"),
    Cause("refused", r"[Nn]o available kernel|[Nn]o viable backend",
          "{package} refuses a small problem on {card}, and does not say why", "python -m attnlab check --task support"),
    Cause("hang", r"timed out after", "{package} gave no answer in time", "{repair}"),
    Cause("import", r"(?:ImportError|AttributeError|cannot import name)",
          "{package} is incomplete or does not fit what it imports", "{repair}"),
)  # fmt: skip
UNKNOWN = Explained("error", "an error that the doctor does not know", "")


def explain(text: str, about: About) -> Explained:
    """What `text`, the error with all its lines, means here; kind "error" when no row knows it."""
    for row in CAUSES:
        if found := re.search(row.pattern, text, re.MULTILINE):
            groups = [group or "" for group in found.groups()]
            words = asdict(about) | {
                "found": f"; it runs CUDA up to {cuda_version(groups[0])}"
                if row.kind == "driver-old" and any(groups)
                else "",
                "arches": f"; it has them for {about.arch_list}" if about.arch_list else "",
            }
            cause, remedy = (text.format("", *groups, **words) for text in (row.cause, row.remedy))
            return Explained(row.kind, cause.replace(" (compute capability )", ""), remedy)
    return Explained(UNKNOWN.kind, UNKNOWN.cause, about.repair)


def cuda_version(number: str | int) -> str:
    """NVIDIA's 12040 as "12.4"; a text that is no such number as it is."""
    text = str(number)
    return f"{int(text) // 1000}.{int(text) % 1000 // 10}" if text.isdigit() else text


def major(version: str) -> int:
    """13 of "13.0"; 0 where there is none."""
    head = version.partition(".")[0]
    return int(head) if head.isdigit() else 0
