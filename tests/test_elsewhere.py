"""A worker on another machine: a real ssh daemon on this one, with keys of its own, or a real Slurm of one node; and a
connection that is lost."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnlab.lab import Lab, default_worker_command
from attnlab.paths import FAULTS, PATHS, PathInfo
from attnlab.problem import AttentionProblem
from attnlab.store import Store
from attnlab.sweep import Sweep

ROOT = Path(__file__).resolve().parents[1]
PROBLEM = AttentionProblem(batch=1, seq_q=512, heads=2, head_dim=32, dtype="float32")
LIMIT_S = 60.0


@pytest.fixture
def daemon(tmp_path):
    """(the ssh daemon's process, the words that connect to it)."""
    sshd, ssh = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin"), shutil.which("ssh")
    if sshd is None or ssh is None:
        pytest.skip("needs an ssh daemon and client: Debian's openssh-server")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    shutil.copy(tmp_path / "user.pub", tmp_path / "authorized_keys")
    port = free_port()
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where a daemon of root separates its privileges
    options = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": tmp_path / "host",
        "AuthorizedKeysFile": tmp_path / "authorized_keys",
        "StrictModes": "no",
        "UsePAM": "no",
        "PidFile": "none",
        "PermitRootLogin": "yes",
    }
    config = tmp_path / "sshd_config"
    config.write_text("".join(f"{name} {value}\n" for name, value in options.items()))
    process = subprocess.Popen([sshd, "-D", "-e", "-f", config], stderr=(tmp_path / "sshd.log").open("w"))
    client = [ssh, "-T", "-p", str(port), "-i", str(tmp_path / "user"), "-o", "LogLevel=ERROR", "-o", "BatchMode=yes"]
    client += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", f"{getpass.getuser()}@127.0.0.1"]
    until = time.monotonic() + LIMIT_S
    while subprocess.run([*client, "true"], capture_output=True).returncode:
        assert process.poll() is None and time.monotonic() < until, (tmp_path / "sshd.log").read_text()
        time.sleep(0.1)
    yield process, client
    process.kill()
    process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A Slurm of one node and one partition; its commands find it by SLURM_CONF."""
    programs = {name: shutil.which(name, path="/usr/bin:/usr/sbin") for name in ("munged", "slurmctld", "slurmd", "srun")}
    if not all(programs.values()) or os.getuid():
        pytest.skip("needs Slurm and root: Debian's slurmctld, slurmd, slurm-client and munge")
    folder = tmp_path / "slurm"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    host = socket.gethostname().partition(".")[0]
    options = {
        "ClusterName": "one",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmUser": getpass.getuser(),
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder / 'munge.socket'}",
        "SlurmctldPort": free_port(),
        "SlurmdPort": free_port(),
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": folder / "slurmd.pid",
        "ProctrackType": "proctrack/pgid",
        "TaskPlugin": "task/none",
        "MpiDefault": "none",
        "ReturnToService": 2,
        "NodeName": f"{host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN",
        "PartitionName": f"main Nodes={host} Default=YES MaxTime=INFINITE State=UP",
    }
    config = folder / "slurm.conf"
    config.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    monkeypatch.setenv("SLURM_CONF", str(config))
    files = [f"--key-file={key}", f"--socket={folder / 'munge.socket'}", f"--pid-file={folder / 'munge.pid'}"]
    files += [f"--log-file={folder / 'munge.log'}", f"--seed-file={folder / 'munge.seed'}"]
    commands = [["munged", "--foreground", "--force", *files], ["slurmctld", "-D"], ["slurmd", "-D"]]
    daemons = []
    try:
        for name, *rest in commands:
            log = (folder / f"{name}.log").open("w")
            daemons.append(subprocess.Popen([programs[name], *rest], stdout=log, stderr=log))
        until = time.monotonic() + LIMIT_S
        while subprocess.run(["srun", "--immediate=5", "true"], capture_output=True).returncode:
            logs = "".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
            assert all(daemon.poll() is None for daemon in daemons) and time.monotonic() < until, logs
            time.sleep(0.2)
        yield
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()


@pytest.fixture(params=["daemon", "cluster"], ids=["ssh", "srun"])
def elsewhere(request, tmp_path):
    """(the words that start a command there, a call that cuts the connection)."""
    here = request.getfixturevalue(request.param)
    if request.param == "cluster":
        return ["srun", "--quiet"], lambda: subprocess.run(["scancel", f"--user={getpass.getuser()}"], check=True)
    process, client = here

    def cut() -> None:
        for session in children(process.pid):
            os.kill(session, signal.SIGKILL)

    return [*client, f"cd {shlex.quote(str(ROOT))} && exec"], cut


@pytest.fixture
def lab(elsewhere, tmp_path, monkeypatch):
    """A lab whose worker is at the other end, where paths may misbehave."""
    there = ["env", "ATTNLAB_FAULTY=1", "ATTNLAB_DEVICE=cpu", f"TMPDIR={tmp_path}", f"ATTNLAB_LOCKS={tmp_path}"]
    monkeypatch.setenv("ATTNLAB_WORKER", shlex.join([*elsewhere[0], *there]))
    monkeypatch.setenv("ATTNLAB_WORKER_PYTHON", sys.executable)
    for fault in FAULTS:
        monkeypatch.setitem(PATHS, f"faulty-{fault}", PathInfo(f"faulty-{fault}", "faulty", ""))
    lab = Lab(Store(tmp_path / "home"))
    yield lab
    lab.close()


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def test_the_other_interpreter_stands_behind_the_prefix(monkeypatch):
    monkeypatch.setenv("ATTNLAB_WORKER", "ssh gpu-box cd AttnLab '&&'")
    monkeypatch.setenv("ATTNLAB_WORKER_PYTHON", ".venv/bin/python")
    command = ["ssh", "gpu-box", "cd", "AttnLab", "&&", ".venv/bin/python", "-u", "-m", "attnlab.worker"]
    assert default_worker_command() == command


def test_a_sweep_elsewhere_and_a_connection_that_is_lost(lab, elsewhere):
    """The path that hangs holds the connection until it is cut; the other is measured by a worker that connects anew."""
    sweep = Sweep(problem=PROBLEM, seqs=(512,), paths=("flash", "faulty-hang", "standard"), refine=False)
    run_id = lab.submit(sweep)
    until = time.monotonic() + LIMIT_S
    while not (run := lab.snapshot(run_id).run).activity.startswith("faulty-hang"):
        assert run.active and time.monotonic() < until, run
        time.sleep(0.05)
    before = lab.snapshot().worker
    assert before.device.kind == "cpu"
    elsewhere[1]()
    done = lab.wait(run_id, LIMIT_S)
    assert done.state == "done", done.reason
    found = {m.path: m for m in done.measurements}
    assert found["flash"].ok and found["standard"].ok
    reason = found["faulty-hang"].reason
    assert found["faulty-hang"].status == "fault" and "the worker died" in reason and "restarted" in reason, reason
