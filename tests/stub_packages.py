"""Installations that are not there: folders for PYTHONPATH in which a package is what a test says, and loads or fails as told.

    site = Site(tmp_path)
    site.torch(cuda="13.0", cards=[H200])
    site.flash_attn_2("2.8.3", extension=raises("ImportError", "…: undefined symbol: _ZN3c105ErrorC2E"))
    monkeypatch.setenv("PYTHONPATH", str(site.path))

The torch in it computes nothing: its tensors are one number, which is enough for a probe to launch something and to look at
the answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

H200 = {"name": "NVIDIA H200", "major": 9, "minor": 0, "total_memory": 140 << 30, "L2_cache_size": 60 << 20,
        "multi_processor_count": 132}  # fmt: skip
V100 = H200 | {"name": "Tesla V100-SXM2-16GB", "major": 7, "minor": 0, "total_memory": 16 << 30}

TORCH = """
import json, sys, types, warnings
from pathlib import Path

C = json.loads((Path(__file__).parent / "stub.json").read_text())
if C["import_error"]:
    raise ImportError(C["import_error"])
__version__ = C["version"]
version = types.SimpleNamespace(cuda=C["cuda"], hip=None)
bfloat16 = float16 = float32 = None


class device:
    def __init__(self, name):
        self.type = name.partition(":")[0]


class Tensor:
    def __init__(self, value):
        self.value = value

    def __getattr__(self, name):
        return lambda *a, **k: self

    def __getitem__(self, key):
        return self

    def __sub__(self, other):
        return self

    def __matmul__(self, other):
        if C["launch_error"]:
            raise RuntimeError(C["launch_error"])
        return Tensor(64**3)

    def item(self):
        return self.value


def ones(*a, **k):
    return Tensor(1.0)


def zeros(*a, **k):
    return Tensor(0.0)


def arange(n, **k):
    return Tensor((n - 1) / 2)


def compiled_with_cxx11_abi():
    return True


def _available():
    if C["warning"]:
        warnings.warn(C["warning"])
    return bool(C["cards"]) and not C["init_error"]


def _init():
    raise RuntimeError(C["init_error"] or "Found no NVIDIA driver on your system.")


def _properties(index):
    return types.SimpleNamespace(**C["cards"][index])


cuda = types.SimpleNamespace(
    is_available=_available,
    init=_init,
    device_count=lambda: len(C["cards"]),
    get_device_properties=_properties,
    get_device_capability=lambda device=0: (C["cards"][0]["major"], C["cards"][0]["minor"]),
    get_arch_list=lambda: C["arch_list"],
    synchronize=lambda device=0: None,
)
"""

NVML = """
class NVMLError(Exception):
    pass

NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
CARDS, ERROR, CUDA = {cards!r}, {error!r}, {cuda!r}

def nvmlInit():
    if ERROR:
        raise NVMLError(ERROR)

def nvmlSystemGetDriverVersion():
    return {driver!r}

def nvmlSystemGetCudaDriverVersion():
    return CUDA

def nvmlDeviceGetCount():
    return len(CARDS)

def nvmlDeviceGetHandleByIndex(index):
    return index

def nvmlDeviceGetName(handle):
    return CARDS[handle]

def nvmlDeviceGetMaxClockInfo(handle, kind):
    return 1980 if kind == NVML_CLOCK_SM else 3201
"""

WORKS = "def flash_attn_func(q, k, v, **options):\n    return v\n"


def raises(error: str, message: str) -> str:
    return f"raise {error}({message!r})\n"


def launch_raises(message: str) -> str:
    return f"def flash_attn_func(q, k, v, **options):\n    raise RuntimeError({message!r})\n"


# What Python runs first: the tests may run where a real flash-attn is installed, which is no part of a stub machine.
ALONE = """
from importlib.metadata import MetadataPathFinder
from pathlib import Path

find = MetadataPathFinder.find_distributions

def found(*context, **more):
    for there in find(*context, **more):
        mine = Path(there.locate_file("")).resolve() == Path(__file__).resolve().parent
        if mine or not there.metadata["Name"].lower().replace("_", "-").startswith("flash-attn"):
            yield there

MetadataPathFinder.find_distributions = found
"""


class Site:
    def __init__(self, path: Path):
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.write("sitecustomize.py", ALONE)

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text))

    def distribution(self, name: str, version: str) -> None:
        folder = f"{name.replace('-', '_')}-{version}.dist-info"
        self.write(f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def torch(self, version="2.13.0+cu130", cuda="13.0", cards=(), **more) -> None:
        stub = {
            "version": version,
            "cuda": cuda,
            "cards": list(cards),
            "arch_list": ["sm_75", "sm_80", "sm_90", "sm_100"],
        }
        stub |= {"import_error": "", "launch_error": "", "init_error": "", "warning": ""} | more
        self.write("torch/__init__.py", TORCH)
        self.write("torch/stub.json", json.dumps(stub))
        self.distribution("torch", version)

    def nvml(self, cards=("NVIDIA H200",), driver="580.95.05", cuda=13000, error="") -> None:
        self.write("pynvml.py", NVML.format(cards=list(cards), driver=driver, cuda=cuda, error=error))
        self.distribution("nvidia-ml-py", "13.580.65")

    def flash_attn_2(self, version="2.8.3", extension=WORKS, cute="raise ImportError('no cutlass')\n") -> None:
        """As its wheel is: a package, an extension beside it, and a folder that looks like 4."""
        self.distribution("flash-attn", version)
        self.write(
            "flash_attn/__init__.py", f"__version__ = {version!r}\nfrom flash_attn_2_cuda import flash_attn_func\n"
        )
        self.write("flash_attn_2_cuda.py", extension)
        self.write("flash_attn/cute/__init__.py", cute)

    def flash_attn_4(self, version="4.0.0b36", module=WORKS) -> None:
        """As its wheel is: a folder in a package without __init__.py, so without a version."""
        self.distribution("flash-attn-4", version)
        self.write("flash_attn/cute/__init__.py", module)
