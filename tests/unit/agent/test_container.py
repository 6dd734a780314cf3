"""The configuration of containers, names of images, and how tools are called."""

from __future__ import annotations

import resource
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.agent.isolation.container_runtime import (
    Contents,
    command,
    configuration,
    merged_environment,
)
from croupier.agent.isolation.flags import format_size, parse_roots, parse_size
from croupier.agent.isolation.image_tools import ImageTools, architecture, parse_image
from croupier.model.errors import InvalidRequest, Unavailable

CONTENTS = Contents(
    Path("/w/containers/r1"),
    Path("/w/containers/container-1"),
    ("sh", "-c", "true"),
    sandbox="/w/sandboxes/f/t",
    mark="CROUPIER_TASK_RUN=/w/runs/r1",
    uid=7,
    gid=8,
    groups=(9,),
    options=("group=/g", "limit=7:10:20", "umask=27"),
)


def test_a_container_gets_no_rights() -> None:
    made = configuration(CONTENTS)
    process = made["process"]
    assert process["noNewPrivileges"] is True
    assert set(map(tuple, process["capabilities"].values())) == {()}
    assert process["user"] == {"uid": 7, "gid": 8, "additionalGids": [9], "umask": 0o27}
    assert process["rlimits"] == [{"type": "RLIMIT_NOFILE", "soft": 10, "hard": 20}]
    assert {each["type"] for each in made["linux"]["namespaces"]} == {"mount", "pid", "ipc", "uts"}
    assert "cgroupsPath" not in made["linux"]


def test_no_limit_is_above_the_present_one() -> None:
    present = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if present < 0:
        pytest.skip("this process has no limit of open files")
    contents = replace(CONTENTS, options=(f"limit=7:{present + 1}:{present + 2}",))
    expected = {"type": "RLIMIT_NOFILE", "soft": present, "hard": present}
    assert configuration(contents)["process"]["rlimits"] == [expected]


def test_only_the_sandbox_is_writable() -> None:
    mounts = configuration(CONTENTS)["mounts"]
    bound = {each["destination"]: each["options"] for each in mounts if each["type"] == "bind"}
    writable = [path for path, options in bound.items() if "rw" in options]
    assert writable == [CONTENTS.sandbox]
    assert all({"nosuid", "nodev"} <= set(options) for options in bound.values())
    assert mounts[-1]["destination"] == CONTENTS.sandbox, "over a tmpfs on /tmp"


def test_a_container_without_network_gets_no_names_of_hosts() -> None:
    made = configuration(Contents(Path("/c"), Path("/p"), ("x",), has_network=False))
    assert {"type": "network"} in made["linux"]["namespaces"]
    assert not [each for each in made["mounts"] if each["destination"].startswith("/etc/")]


def test_no_variable_of_the_task_is_in_the_configuration_or_the_command() -> None:
    assert configuration(CONTENTS)["process"]["env"] == ["CROUPIER_TASK_RUN=/w/runs/r1"]
    words = command(("/usr/bin/runc",), CONTENTS, Path("/image"), "r1")
    assert words[:5] == (
        "/w/containers/container-1",
        "run",
        "/w/containers/r1/mount",
        "/image",
        "--",
    )
    assert words[-1] == "r1"


def test_variables_of_the_image_are_below_those_of_the_task() -> None:
    image = [("PATH", "/image"), ("LANG", "x"), ("A", "image"), ("HOME", "/root")]
    given = {"PATH": "/agent", "LANG": "own", "TZ": "UTC", "HOME": "/sandbox", "A": "own"}
    merged = merged_environment(image, given, {"LANG": "own", "A": "own"}, ("PATH", "LANG", "TZ"))
    assert merged == {"PATH": "/image", "LANG": "own", "TZ": "UTC", "HOME": "/sandbox", "A": "own"}


@pytest.mark.parametrize(
    "name", ["oci:x", "oci:/a", "oci:/a:", "oci:rel:tag", "oci:/a:b/c", "dir:", "dir:a", "ftp://x"]
)
def test_malformed_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest):
        parse_image(name, (tmp_path, Path("/a")))


def test_paths_are_plain_and_below_the_roots(tmp_path: Path) -> None:
    (tmp_path / "allowed/box").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    roots = (tmp_path / "allowed",)
    (tmp_path / "allowed/out").symlink_to(tmp_path / "other")
    (tmp_path / "allowed/in").symlink_to(tmp_path / "allowed/box")
    assert parse_image(f"dir:{roots[0]}/box", roots).path == tmp_path / "allowed/box"
    assert parse_image(f"dir:{roots[0]}/in", roots).path == tmp_path / "allowed/box"
    for path in ("allowed/out", "other", "allowed/../other", "allowed/none", "allowedx"):
        with pytest.raises(InvalidRequest):
            parse_image(f"dir:{tmp_path}/{path}", roots)
    with pytest.raises(InvalidRequest):
        parse_image(f"dir:{roots[0]}/box", ())


def test_flags() -> None:
    assert parse_roots("/a,/b/c") == (Path("/a"), Path("/b/c"))
    for text in ("a", "/", "/a,/.."):
        with pytest.raises(InvalidRequest):
            parse_roots(text)
    assert parse_size(format_size(10 * 1024**3)) == 10 * 1024**3
    for text in ("0", "x", "1;mem:2"):
        with pytest.raises(InvalidRequest):
            parse_size(text)


class Tool:
    """A script in place of skopeo and umoci, which records its arguments."""

    def __init__(self, path: Path, line: str = "exit 0") -> None:
        self.script, self.words = path / "tool", path / "words"
        self.script.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" >{self.words}\nenv >{path}/env\n{line}\n'
        )
        self.script.chmod(0o755)

    def tools(self, deadline_s: float = 20) -> ImageTools:
        return ImageTools(str(self.script), str(self.script), deadline_s, threading.Event())


def test_skopeo_copies_this_machines_platform_without_credentials_of_croupier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROUPIER_TOKEN_FILE", "/secret")
    tool = Tool(tmp_path)
    tool.tools().copy(parse_image("docker://x/y:1", ()), tmp_path / "layout", lambda: None)
    words = tool.words.read_text().splitlines()
    assert f"--override-arch={architecture()}" in words
    assert words[-2:] == ["docker://x/y:1", f"oci:{tmp_path}/layout:image"]
    assert "CROUPIER" not in (tmp_path / "env").read_text()


def test_the_reason_of_a_tool_is_told(tmp_path: Path) -> None:
    line = """echo 'time="x" level=fatal msg="reading \\"x\\": no route"' >&2; exit 1"""
    with pytest.raises(Unavailable, match='reading "x": no route'):
        Tool(tmp_path, line).tools().unpack(tmp_path, tmp_path / "r", lambda: None)


def test_a_tool_that_hangs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"longer than 0\.1 s"):
        Tool(tmp_path, "sleep 1000").tools(0.1).unpack(tmp_path, tmp_path / "r", lambda: None)
