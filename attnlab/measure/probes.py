"""What is installed, tried: `python -m attnlab.measure.probes NAME`, one try in a process that may die of it.

It answers in JSON lines, each of which adds to what is known, so that what was said before a crash stays known:

    {"stage": "load"}  {"version": "2.8.3"}  …  {"error": "ImportError: …"}  {"done": true}

The error is the text of whatever was raised, all causes together; what it means is for attnlab.doctor to say. PyTorch is
imported before any extension that needs its libraries. It ends when its stdin ends, as the worker does.
"""

from __future__ import annotations

import glob
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from attnlab import browser as browser_here
from attnlab import protocol
from attnlab.problem import AttentionProblem

Say = Callable[..., None]

ERROR_CHARACTERS = 4000
TOOL_LIMIT_S = 30.0
NICE = 10  # a run that is being measured goes first
SEQ = 128
OURS = re.compile(
    "flash|torch|triton|nvidia-(ml-py|cudnn|cutlass|cuda-runtime)|cuda-bindings|quack|einops|plotly|streamlit"
)
EXTENSION = "flash_attn_2_cuda"  # of flash-attn 2


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no answer
    os.nice(NICE)
    threading.Thread(target=_end_with_stdin, daemon=True).start()

    def say(**facts: Any) -> None:
        protocol.send(out, facts)

    try:
        PROBES[sys.argv[1]](say)
    except (Exception, SystemExit) as error:  # what an installation raises when it is tried is the answer
        say(error=text_of(error))
    say(done=True)
    os._exit(0)  # a lost CUDA context can hang the ordinary way out


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def text_of(error: BaseException) -> str:
    """Type and message, and those of what caused it, a line or more each."""
    texts, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        texts.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(texts)[:ERROR_CHARACTERS]


# Without PyTorch


def system(say: Say) -> None:
    """What the machine shows of NVIDIA without CUDA and without PyTorch, and which packages are installed."""
    say(python=f"cp{sys.version_info[0]}{sys.version_info[1]}", packages=packages())
    say(
        proc_driver=_first_number(Path("/proc/driver/nvidia/version")),
        pci_cards=sum(_is_nvidia_display(Path(path)) for path in glob.glob("/sys/bus/pci/devices/*")),
        nvidia_smi=shutil.which("nvidia-smi") is not None,
        hidden=os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"),
        distribution=_distribution(),
    )
    try:
        import pynvml
    except ImportError as error:
        say(nvml_error=text_of(error))
        return
    try:
        pynvml.nvmlInit()
        say(driver=_text(pynvml.nvmlSystemGetDriverVersion()), driver_cuda=pynvml.nvmlSystemGetCudaDriverVersion())
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        say(nvml_cards=[_text(pynvml.nvmlDeviceGetName(handle)) for handle in handles])
    except pynvml.NVMLError as error:
        say(nvml_error=text_of(error))
        return
    clocks = (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)
    try:
        say(max_clocks_mhz=[[pynvml.nvmlDeviceGetMaxClockInfo(h, clock) for clock in clocks] for h in handles])
    except pynvml.NVMLError as error:  # a virtual card has no clock
        say(clock_error=text_of(error))


def packages() -> dict[str, str]:
    """Version by distribution, of those that matter here."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if OURS.match(name):
            found.setdefault(name, distribution.version)  # the first on the path is the one that is imported
    return dict(sorted(found.items()))


def _first_number(path: Path) -> str:
    try:
        return next(iter(re.findall(r"\b\d+\.\d+(?:\.\d+)?\b", path.read_text())), "")
    except OSError:
        return ""


def _is_nvidia_display(device: Path) -> bool:
    try:
        vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
    except OSError:
        return False
    return vendor == "0x10de" and kind.startswith("0x03")


def _distribution() -> str:
    try:
        found = re.search(r'^ID="?(\w+)', Path("/etc/os-release").read_text(), re.MULTILINE)
    except OSError:
        return ""
    return found[1] if found else ""


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def browser(say: Say) -> None:
    """A picture of a page of one word, by the browser that pictures are exported with."""
    found = browser_here.find()
    if found is None:
        say(missing=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "picture.png"
        said = browser_here.run(found, ["--version"], Path(folder), TOOL_LIMIT_S).out
        say(version=" ".join(re.findall(r"\d+(?:\.\d+)+", said)[:1]), name=Path(found).name, stage="picture")
        words = ["--window-size=64,64", f"--screenshot={picture}", "data:text/html,AttnLab"]
        ended = browser_here.run(found, words, Path(folder), TOOL_LIMIT_S)
        if not (picture.exists() and picture.read_bytes().startswith(browser_here.PNG)):
            raise RuntimeError(f"it made no picture (exit code {ended.code}): {ended.last_words}")


def ncu(say: Say) -> None:
    patterns = ("/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
    found = next(
        filter(None, [shutil.which("ncu"), *(path for pattern in patterns for path in glob.glob(pattern))]), None
    )
    if found is None:
        say(missing=True)
        return
    quiet = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=TOOL_LIMIT_S)
    said = subprocess.run([found, "--version"], **quiet).stdout
    say(version=" ".join(re.findall(r"Version ([\d.]+)", said)[:1]), stage="counters")
    said = subprocess.run([found, "--query-metrics"], **quiet).stdout
    if refused := re.search(r".*ERR_NVGPUCTRPERM.*", said):
        raise PermissionError(refused[0])
    params = Path("/proc/driver/nvidia/params")
    if os.geteuid() and params.exists() and re.search(r"RmProfilingAdminOnly: 1", params.read_text()):
        raise PermissionError("ERR_NVGPUCTRPERM: RmProfilingAdminOnly is 1")


# With PyTorch


def pytorch(say: Say) -> None:
    """The build, then what it makes of the GPUs, then one product on each."""
    say(stage="import torch")
    import torch

    say(
        torch=torch.__version__,
        cuda=torch.version.cuda or "",
        hip=getattr(torch.version, "hip", None) or "",
        cxx11_abi=bool(torch.compiled_with_cxx11_abi()),
        arch_list=list(torch.cuda.get_arch_list()),
        stage="cuda",
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        there = torch.cuda.is_available()
        if there:
            cards = [_card(torch.cuda.get_device_properties(index)) for index in range(torch.cuda.device_count())]
    say(available=there, warnings=[str(warning.message) for warning in caught][:8])
    if not there:
        if torch.version.cuda:
            torch.cuda.init()  # raises the reason
        return
    say(cards=cards, stage="launch")
    for index in range(len(cards)):
        x = torch.ones(64, 64, device=f"cuda:{index}")
        answer = (x @ x).sum().item()
        if answer != 64**3:
            raise ArithmeticError(f"cuda:{index} answers {answer:g} where {64**3} is right")


def _card(properties: Any) -> dict[str, Any]:
    return {
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "total_bytes": properties.total_memory,
        "l2_bytes": properties.L2_cache_size,
        "multiprocessors": properties.multi_processor_count,
    }


def path(name: str, say: Say) -> None:
    """One attention path of attnlab.paths: its distribution, its import, a tiny launch whose answer is known."""
    flash = name.startswith("flash-attn")
    if flash and not any(package.startswith("flash") for package in packages()):
        say(missing=True)
        return
    say(stage="import torch")
    import torch

    from attnlab.paths.base import load, version
    from attnlab.paths.flash_attn import PACKAGES

    on_gpu = torch.cuda.is_available()
    attention = load(name, torch.device("cuda" if on_gpu else "cpu"))
    if flash:
        # The distribution decides: the wheel of 2 ships a folder that looks like 4, and 4 alone leaves a package `flash_attn`
        # without a version.
        found = next((v for distribution in PACKAGES[name].distributions if (v := version(distribution))), "")
        if not found:
            say(missing=True)
            return
        say(version=found, stage="load")
        attention.load()
        say(loaded=True)
        if name == "flash-attn-2" and importlib.util.find_spec(EXTENSION) is not None:
            say(alone=alone(EXTENSION))
        if not on_gpu:
            return
    if name == "sdpa-cudnn":
        say(version=str(torch.backends.cudnn.version() or ""))
    say(stage="launch")
    problem = AttentionProblem(batch=1, seq_q=SEQ, heads=1, head_dim=64, dtype="bfloat16")
    if reason := attention.unsupported(problem):
        raise RuntimeError(reason)
    launch(attention.build(problem), torch, attention.device)


def launch(attention: Callable[..., Any], torch: Any, device: Any) -> None:
    """K = 0, so every key weighs the same and each row of O is the mean of V's rows, exact in bfloat16. Raises ArithmeticError
    for another answer."""
    shape = (1, SEQ, 1, 64)
    rows = torch.arange(SEQ, device=device, dtype=torch.bfloat16).view(1, SEQ, 1, 1).expand(shape).contiguous()
    ones, zeros = (make(shape, device=device, dtype=torch.bfloat16) for make in (torch.ones, torch.zeros))
    out = attention(ones, zeros, rows)
    if device.type == "cuda":
        torch.cuda.synchronize()
    right = (SEQ - 1) / 2
    answer = float(out.float().flatten()[(out.float().flatten() - right).abs().argmax()].item())
    if not abs(answer - right) < 0.5:
        raise ArithmeticError(f"answers {answer:g} where {right:g} is right")


def alone(module: str) -> str:
    """What an extension says when it is imported before PyTorch, in another process; "" when that works too."""
    quiet = dict(capture_output=True, text=True, errors="replace", timeout=TOOL_LIMIT_S)
    said = subprocess.run([sys.executable, "-c", f"import {module}"], **quiet)
    return "" if said.returncode == 0 else said.stderr.strip().rpartition("\n")[2][:ERROR_CHARACTERS]


def triton(say: Say) -> None:
    say(stage="import torch")
    import torch

    say(stage="load")
    from attnlab.measure.add_one import add_one

    say(stage="launch")
    x = torch.zeros(SEQ, device="cuda")
    add_one[(1,)](x, SEQ)
    torch.cuda.synchronize()
    if (answer := x.sum().item()) != SEQ:
        raise ArithmeticError(f"answers {answer:g} where {SEQ} is right")


def profiler(say: Say) -> None:
    say(stage="import torch")
    import torch

    from attnlab.measure.kernels import main_kernel

    say(stage="profile")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x = torch.ones(256, 256, device=device)
    kernel = main_kernel(lambda: x @ x, device)
    if not kernel:
        raise RuntimeError("the profiler saw no kernel")
    say(kernel=kernel)


PROBES: dict[str, Callable[[Say], None]] = {
    "system": system,
    "torch": pytorch,
    **{
        name: partial(path, name)
        for name in ("flash-attn-4", "flash-attn-3", "flash-attn-2", "sdpa-flash", "sdpa-cudnn")
    },
    "triton": triton,
    "profiler": profiler,
    "ncu": ncu,
    "browser": browser,
}


if __name__ == "__main__":
    main()
