"""The agent's own groups, from what kernels and container engines have told."""

from __future__ import annotations

import pytest

from croupier.agent.isolation.cgroup.places import OwnGroup, OwnGroups, find_groups

ROOT = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard"

HYBRID_MOUNTS = f"""\
{ROOT}
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
HYBRID_GROUPS = """\
9:name=systemd:/
8:pids:/
4:memory:/process_api/2e05
2:cpuacct:/
1:cpu:/
0::/
"""

V1_MOUNTS = f"""\
{ROOT}
30 25 0:26 / /sys/fs/cgroup/systemd rw,nosuid shared:9 - cgroup cgroup rw,xattr,name=systemd
33 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:15 - cgroup cgroup rw,cpu,cpuacct
34 25 0:30 / /sys/fs/cgroup/memory rw,nosuid shared:16 - cgroup cgroup rw,memory
36 25 0:32 / /sys/fs/cgroup/pids rw,nosuid shared:18 - cgroup cgroup rw,pids
"""
V1_GROUPS = """\
10:cpu,cpuacct:/system.slice/croupier-agent.service
8:pids:/system.slice/croupier-agent.service
4:memory:/system.slice/croupier-agent.service
1:name=systemd:/system.slice/croupier-agent.service
"""

V2_MOUNTS = f"""\
{ROOT}
26 23 0:23 / /sys/fs/cgroup rw,nosuid,nodev shared:4 - cgroup2 cgroup2 rw,nsdelegate
"""


def test_a_hybrid_machine_has_controllers_of_version_1_and_one_group_of_version_2() -> None:
    found = find_groups(HYBRID_MOUNTS, HYBRID_GROUPS)
    assert found == OwnGroups(
        {
            "pids": OwnGroup("/sys/fs/cgroup/pids"),
            "memory": OwnGroup("/sys/fs/cgroup/memory/process_api/2e05"),
            "cpuacct": OwnGroup("/sys/fs/cgroup/cpuacct"),
            "cpu": OwnGroup("/sys/fs/cgroup/cpu"),
        },
        OwnGroup("/sys/fs/cgroup/unified"),
    )


def test_controllers_that_are_mounted_together_share_a_group() -> None:
    found = find_groups(V1_MOUNTS, V1_GROUPS)
    together = "/sys/fs/cgroup/cpu,cpuacct/system.slice/croupier-agent.service"
    assert found.v1["cpu"] == found.v1["cpuacct"] == OwnGroup(together)
    assert found.v1["memory"].directory.endswith("/memory/system.slice/croupier-agent.service")
    assert found.v2 is None
    assert "name=systemd" not in found.v1


@pytest.mark.parametrize(
    ("groups", "directory"),
    [
        ("0::/\n", "/sys/fs/cgroup"),
        (
            "0::/system.slice/croupier-agent.service/croupier-agent\n",
            "/sys/fs/cgroup/system.slice/croupier-agent.service/croupier-agent",
        ),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/a b.scope\n",
            "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/a b.scope",
        ),
    ],
)
def test_version_2_has_one_group(groups: str, directory: str) -> None:
    assert find_groups(V2_MOUNTS, groups) == OwnGroups({}, OwnGroup(directory))


def test_a_container_with_a_namespace_sees_its_group_as_the_root() -> None:
    mounts = "700 690 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate"
    found = find_groups(mounts, "0::/\n")
    problem = "/sys/fs/cgroup is mounted read-only"
    assert found.v2 == OwnGroup("/sys/fs/cgroup", problem)


def test_a_container_without_a_namespace_sees_its_part_of_version_1() -> None:
    mounts = """\
700 690 0:30 /docker/abc /sys/fs/cgroup/memory rw,nosuid master:16 - cgroup cgroup rw,memory
701 690 0:32 /docker/abc /sys/fs/cgroup/pids ro,nosuid master:18 - cgroup cgroup rw,pids
"""
    found = find_groups(mounts, "4:memory:/docker/abc\n8:pids:/docker/abc/inner\n")
    assert found.v1 == {
        "memory": OwnGroup("/sys/fs/cgroup/memory"),
        "pids": OwnGroup("/sys/fs/cgroup/pids/inner", "/sys/fs/cgroup/pids is mounted read-only"),
    }


@pytest.mark.parametrize(
    ("root", "group"),
    [
        ("/docker/abc", "/docker/abcdef"),
        ("/docker/abc", "/other"),
        ("/../../docker", "/"),
        ("/", "/../../other"),
        ("/", "/gone (deleted)"),
    ],
)
def test_a_group_that_no_mount_shows_is_a_problem(root: str, group: str) -> None:
    mounts = f"700 690 0:26 {root} /sys/fs/cgroup rw - cgroup2 cgroup rw"
    assert find_groups(mounts, f"0::{group}\n").v2 == OwnGroup(
        "", f"no mount shows the group {group}"
    )


def test_a_writable_mount_comes_before_a_read_only_one() -> None:
    mounts = """\
700 690 0:26 / /mnt/writable rw - cgroup2 cgroup rw
701 690 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw
702 690 0:26 / /sys/fs/ro rw - cgroup2 cgroup ro
"""
    assert find_groups(mounts, "0::/a\n").v2 == OwnGroup("/mnt/writable/a")


def test_blanks_in_mount_points_are_read() -> None:
    mounts = r"700 690 0:26 /a\040b /mnt/c\040d rw - cgroup2 cgroup rw"
    assert find_groups(mounts, "0::/a b/e\n").v2 == OwnGroup("/mnt/c d/e")


@pytest.mark.parametrize("mounts", ["", ROOT, "1 2 3", "x - cgroup2", "\n\n"])
def test_without_a_mount_there_are_no_groups(mounts: str) -> None:
    assert find_groups(mounts, "0::/\n4:memory:/\n") == OwnGroups({}, None)
