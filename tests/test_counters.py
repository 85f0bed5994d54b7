"""The bytes that the hardware counted: what ncu says is read, and what goes wrong is said; the program is a stand-in."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import pytest
import torch

from attnlab.finding import Finding
from attnlab.measure import counters
from attnlab.measure.anatomy import Anatomy
from attnlab.measure.counters import Counters
from attnlab.measure.timing import Cancelled, make_timer
from attnlab.measure.trial import Trials, silent
from attnlab.problem import AttentionProblem

PROBLEM = AttentionProblem(batch=1, seq_q=64, heads=2, head_dim=32, dtype="float32")
HEAD = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
SPIN = "at::cuda::<unnamed>::spin_kernel(long)"


def table(*kernels: tuple[str, str, str]) -> str:
    """Two lines a kernel, as `ncu --csv` prints them."""
    lines = [HEAD]
    for at, (name, read, written) in enumerate(kernels):
        lines.append(f'"{at}","{name}","dram__bytes_read.sum","byte","{read}"')
        lines.append(f'"{at}","{name}","dram__bytes_write.sum","byte","{written}"')
    return "\n".join(lines) + "\n"


SAID = (
    "==PROF== Connected to process 491\n==WARNING== Note: Running with unmodified GPU clocks.\n"
    '{"operations": ["QKᵀ", "scale"]}\n==PROF== Disconnected from process 491\n'
    + table(
        ("copy<a, b>(int)", "16,800,256", "139,008"),
        ("nvjet_sm90", "33,590,272", "37,886,976"),
        (SPIN, "512", "0"),
        ("mul", "67,118,592", "40,860,416"),
        (SPIN, "1,024", "256"),
    )
)


def test_the_kernels_of_an_operation_are_those_before_the_divider():
    found, why = counters.read(SAID, 0)
    assert why == ""
    assert found == {
        "QKᵀ": {"dram_read_bytes": 16_800_256 + 33_590_272, "dram_write_bytes": 139_008 + 37_886_976},
        "scale": {"dram_read_bytes": 67_118_592, "dram_write_bytes": 40_860_416},
    }


@pytest.mark.parametrize(
    ("said", "code", "why"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", 1, "ERR_NVGPUCTRPERM"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n", 9, "LibraryNotLoaded"),
        ("", 255, "exit code 255"),
        (SAID, -14, "not done after"),
        (SAID, 1, "exit code 1"),
        (SAID.replace('"scale"', '"scale", "softmax"'), 0, "saw 2 operations, and there are 3"),
        (SAID.partition('{"operations')[0] + table(("mul", "1", "1")), 0, "read nothing"),
    ],
)
def test_what_cannot_be_read_says_why(said, code, why):
    found, reason = counters.read(said, code)
    assert found == {} and why in reason and "\n" not in reason


@pytest.fixture
def on_a_gpu(monkeypatch):
    """on_a_gpu(program, check) → Counters as on a GPU, over findings that are there already."""
    monkeypatch.setattr(counters.memory, "release", lambda device: None)
    timed = [Finding(what=what, verdict="pass", values={"device_ms": 1.0}) for what in ("QKᵀ", "scale", "other")]

    def make(program, check=lambda: None):
        anatomy = SimpleNamespace(
            problem=PROBLEM, device=torch.device("cuda:0"), check=check, look=lambda name, verdict: iter(timed)
        )
        return Counters(anatomy, program)

    return make


VERDICT = SimpleNamespace(path=SimpleNamespace(name="standard"))


def script(tmp_path, body: str) -> str:
    path = tmp_path / "ncu"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_bytes_are_added_to_the_operations_that_were_counted(on_a_gpu, tmp_path):
    (tmp_path / "said").write_text(SAID)
    program = script(tmp_path, f'echo "$@" > {tmp_path}/asked\ncat {tmp_path}/said')
    found = {f.what: f.values for f in on_a_gpu(program).look("standard", VERDICT)}
    assert found["scale"] == {"device_ms": 1.0, "dram_read_bytes": 67_118_592, "dram_write_bytes": 40_860_416}
    assert found["other"] == {"device_ms": 1.0} and "counters" not in found
    asked = (tmp_path / "asked").read_text()
    assert "--clock-control none" in asked and "attnlab.measure.counted" in asked and '"path": "standard"' in asked


def test_a_stop_ends_the_program_and_all_that_it_started(on_a_gpu, tmp_path):
    program = script(tmp_path, f"sleep 60 & echo $! > {tmp_path}/pid\nwait")

    def check():
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise Cancelled

    with pytest.raises(Cancelled):
        list(on_a_gpu(program, check).look("standard", VERDICT))
    pid = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 5
    while time.monotonic() < until and alive(pid):
        time.sleep(0.02)
    assert not alive(pid)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_that_is_never_done_is_ended(on_a_gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(counters, "LIMIT_S", 0.2)
    found = list(on_a_gpu(script(tmp_path, "exec sleep 60")).look("standard", VERDICT))
    assert found[-1].what == "counters" and found[-1].verdict == "unsupported" and "not done" in found[-1].text


def test_without_the_program_the_times_are_there_and_the_reason(on_a_gpu):
    found = list(on_a_gpu(None).look("standard", VERDICT))
    assert len(found) == 4 and "not on the PATH" in found[-1].text


def test_a_cpu_has_no_such_counters():
    device = torch.device("cpu")
    verdict = Trials(device).verdict("flash", PROBLEM, silent)
    anatomy = Anatomy(PROBLEM, device, make_timer(device), lambda: None)
    found = list(Counters(anatomy, os.devnull).look("flash", verdict))
    assert [f.what for f in found] == ["kernel", "counters"] and "NVIDIA GPU" in found[-1].text


@pytest.mark.gpu
def test_the_scores_really_go_through_memory():
    if (program := counters.find_ncu()) is None:
        pytest.skip("needs ncu")
    device = torch.device("cuda:0")
    torch.cuda.set_device(device)
    problem = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128)
    anatomy, trials = Anatomy(problem, device, make_timer(device), lambda: None), Trials(device)
    found = {}
    for path in ("standard", "sdpa-flash"):
        look = Counters(anatomy, program).look(path, trials.verdict(path, problem, silent))
        found[path] = {f.what: f for f in look}
    if why := found["standard"].get("counters"):
        pytest.skip(why.text)
    for what in ("scale", "softmax"):
        values = found["standard"][what].values
        assert values["dram_read_bytes"] == pytest.approx(values["read_bytes"], rel=0.05)
        assert values["dram_write_bytes"] == pytest.approx(values["write_bytes"], rel=0.05)
    flash = found["sdpa-flash"]["kernel"].values
    least = flash["read_bytes"] + flash["write_bytes"]
    assert 0.5 * least < flash["dram_read_bytes"] + flash["dram_write_bytes"] < 4 * least
