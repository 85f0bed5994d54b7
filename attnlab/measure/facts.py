"""What there is to know of the device and the software that measures on it: attnlab.device.Device, filled in."""

from __future__ import annotations

import contextlib
import platform
import socket
import uuid

import torch

from attnlab.device import Device
from attnlab.measure import memory
from attnlab.paths.base import version
from attnlab.paths.flash_attn import PACKAGES


def device_facts(device: torch.device) -> Device:
    """What there is to know of a torch.device."""
    names = [*(name for package in PACKAGES.values() for name in package.distributions), "triton"]
    common = dict(
        total_bytes=memory.total_bytes(device),
        free_bytes=memory.free_bytes(device),
        threads=torch.get_num_threads(),
        host=socket.gethostname(),
        python=platform.python_version(),
        torch=torch.__version__,
        packages=tuple((name, v) for name in names if (v := version(name))),
    )
    if device.type == "cpu":
        return Device(kind="cpu", name=cpu_name(), uuid=f"cpu-{uuid.getnode():x}", **common)
    properties = torch.cuda.get_device_properties(device)
    return Device(
        kind="cuda",
        name=properties.name,
        uuid=str(properties.uuid),
        index=device.index or 0,
        l2_bytes=properties.L2_cache_size,
        multiprocessors=properties.multi_processor_count,
        compute_capability=f"{properties.major}.{properties.minor}",
        cuda=torch.version.cuda or "",
        driver=driver_version(),
        **common,
    )


def cpu_name() -> str:
    """The model, as the kernel names it, and how many threads torch uses is said elsewhere."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def driver_version() -> str:
    with contextlib.suppress(OSError), open("/proc/driver/nvidia/version") as file:
        words = file.readline().split()
        return next((word for word in words if word[:1].isdigit() and "." in word), "")
    return ""
