"""What a container may still take, from the files that the kernel shows."""

import pytest

from attnlab import cgroup
from attnlab.cgroup import room_bytes

MIB = 1 << 20


@pytest.fixture
def system(tmp_path):
    """system(own, {group: {file: text}}) → what room_bytes says there."""

    def look(own, groups):
        (tmp_path / "own").write_text(own)
        for group, files in groups.items():
            (tmp_path / "cgroup" / group).mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (tmp_path / "cgroup" / group / name).write_text(f"{text}\n")
        return room_bytes(tmp_path / "cgroup", tmp_path / "own")

    return look


def v2(limit, used=0, cache=0):
    return {"memory.max": limit, "memory.current": used, "memory.stat": f"anon 7\ninactive_file {cache}"}


def test_a_limit_less_what_is_used_and_the_cache_comes_back(system):
    assert system("0::/\n", {"": v2(100 * MIB, 60 * MIB, 10 * MIB)}) == 50 * MIB


def test_every_group_above_holds_too(system):
    groups = {"": v2("max"), "slice": v2(64 * MIB, 60 * MIB), "slice/job": v2(100 * MIB, 10 * MIB)}
    assert system("0::/slice/job\n", groups) == 4 * MIB


def test_version_1_is_read_where_it_is(system):
    files = {"memory.limit_in_bytes": 100, "memory.usage_in_bytes": 30, "memory.stat": "total_inactive_file 5"}
    assert system("5:cpu:/x\n4:memory:/docker/a\n", {"memory/docker/a": files}) == 75


@pytest.mark.parametrize("groups", [{}, {"": v2("max", 5)}, {"": {"memory.max": 100}}, {"": v2("garbage")}])
def test_no_limit_is_none(system, groups):
    assert system("0::/\n", groups) is None


def test_used_up_is_nothing(system):
    assert system("0::/\n", {"": v2(10, 20)}) == 0


def test_a_system_without_groups(tmp_path):
    assert room_bytes(tmp_path, tmp_path / "nowhere") is None


def test_the_container_bounds_what_a_point_and_a_comparison_may_take(monkeypatch):
    """A comparison in a container of 3 GiB was killed: it looked at what the host had free."""
    import torch

    from attnlab.measure.compare import too_large
    from attnlab.measure.memory import free_bytes
    from attnlab.problem import AttentionProblem

    cpu, problem = torch.device("cpu"), AttentionProblem(batch=1, seq_q=512, heads=2, head_dim=64, dtype="float32")
    monkeypatch.setattr(cgroup, "room_bytes", lambda: None)
    assert free_bytes(cpu) > 64 * MIB and too_large(problem, "flash", cpu) == ""
    monkeypatch.setattr(cgroup, "room_bytes", lambda: MIB)
    assert free_bytes(cpu) == MIB
    assert too_large(problem, "flash", cpu).startswith("out of memory: predicted to need ")
