"""`croupier service` on a real local cluster: updates, rollback, health checks, kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from croupier.apps.service.commands import view_of
from croupier.apps.service.state_dir import StateDir
from croupier.cli.connection import run as ask
from croupier.cli.flags import Target
from croupier.ctl.lists import all_of
from croupier.model.errors import Unavailable
from tests.harness.cluster import processes_with, real_cluster
from tests.harness.eventually import eventually
from tests.harness.processes import is_running
from tests.harness.real_local import Local, running_local

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SERVER = """\
import http.server, os, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        while os.path.exists("hang"):
            time.sleep(0.05)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["MARK"].encode())

    def log_message(self, *_):
        pass

address = (os.environ["HOST"], int(os.environ["PORT0"]))
http.server.ThreadingHTTPServer(address, Handler).serve_forever()
"""
FILE = """\
name = "{name}"
instances = {instances}
ports = 1
{more}

[task]
shell = "{before}exec {python} {server}"
resources = {{ cpus = 0.1, mem = "48MB" }}
grace = "2s"
env = {{ MARK = "{mark}" }}

[health]
{health}
# On a busy machine instances take over 1 s to start or to answer.
grace = "15s"
interval = "200ms"
timeout = "4s"
failures = 2

[restart]
initial = "200ms"

[update]
settle = "200ms"
healthy_within = "{within}"
"""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    with running_local(tmp_path_factory.mktemp("service"), "--agents", "3") as local:
        yield local


class Web:
    """One service, its file and its controllers."""

    def __init__(self, local: Local, directory: Path, name: str) -> None:
        self.local, self.directory, self.name = local, directory, name
        self.state = directory / "state"
        self.server = directory / "server.py"
        self.server.write_text(SERVER)
        self.file = directory / f"{name}.toml"
        self.write()

    def write(self, **changes: object) -> None:
        """Write the file, with some values changed."""
        values = {
            "name": self.name, "instances": 3, "more": "", "before": "", "mark": "one",
            "health": 'http = "/"', "within": "60s", "python": sys.executable,
            "server": self.server,
        }  # fmt: skip
        self.file.write_text(FILE.format(**{**values, **changes}))

    def run(self, *words: str, timeout_s: float = 200) -> subprocess.CompletedProcess[str]:
        return self.local.croupier(
            "service", *words, "--state", str(self.state), timeout_s=timeout_s
        )

    def apply(self, *flags: str) -> subprocess.CompletedProcess[str]:
        return self.run("apply", str(self.file), *flags)

    def start(self, *flags: str) -> None:
        done = self.apply("--detach", "--timeout", "60s", *flags)
        assert done.returncode == 0, done

    def view(self, state: Path | None = None) -> dict[str, Any]:
        return view_of(StateDir(state or self.state, self.name))

    def tasks(self) -> set[str]:
        """Return the tasks that run, as the master knows."""
        try:
            listed = ask(Target.parse(self.local.master), lambda master: all_of(master, "tasks"))
        except Unavailable:  # while it starts again
            return set()
        return {
            each["task_id"]
            for each in listed
            if each["state"] == "RUNNING" and each["task_id"].startswith(f"{self.name}-")
        }

    def is_full(self, instances: int = 3) -> bool:
        view = self.view()
        return (
            view["available"] == instances == len(view["instances"])
            and len(self.tasks()) == instances
        )

    def sandbox(self, task_id: str) -> Path:
        found = list((self.local.work_dir / "cluster").glob(f"agent-*/sandboxes/*/{task_id}"))
        assert len(found) == 1, found
        return found[0]

    def log(self) -> str:
        return (self.state / self.name / "controller.log").read_text()


@pytest.fixture
def web(local: Local, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Web]:
    name = request.node.name.removeprefix("test_").replace("_", "-")[:30].strip("-")
    web = Web(local, tmp_path, name)
    yield web
    web.run("stop", web.name, "--timeout", "20s")
    pid = web.view()["controller_pid"] if (web.state / web.name / "service.json").exists() else 0
    if pid:
        os.kill(pid, signal.SIGKILL)


def wait(predicate: Callable[[], object], timeout_s: float = 60.0, what: str = "") -> None:
    deadline = time.monotonic() + timeout_s
    while not predicate():
        assert time.monotonic() < deadline, what or predicate
        time.sleep(0.1)


def daemon(local: Local, module: str, marker: str = "") -> int:
    """Return the pid of a daemon of the cluster."""
    for pid in local.leftovers():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        except OSError:  # It has ended meanwhile.
            continue
        if module in words and (not marker or marker in words):
            return pid
    raise AssertionError(f"no {module} {marker}")


def test_rolling_update_and_rollback(web: Web) -> None:
    web.start()
    first = web.tasks()
    assert len(first) == 3
    assert len({each["agent_id"] for each in web.view()["instances"]}) > 1, "not spread"
    assert web.apply().returncode == 0
    assert web.tasks() == first, "the same file replaces nothing"

    web.write(mark="two")
    done = web.apply()
    assert done.returncode == 0, done
    second = web.tasks()
    assert len(second) == 3
    assert not first & second

    web.write(mark="three", before="exit 3; ")
    done = web.apply()
    assert done.returncode == 1
    assert "failed 3 times" in done.stdout
    assert "rolled back to version 2" in done.stdout
    wait(web.is_full)
    # One at a time was replaced: the others never ended.
    third = web.tasks()
    assert len(third & second) == 2
    assert {each["version"] for each in web.view()["instances"]} == {2}

    # So it is with one whose check hangs.
    web.write(mark="four", before="touch hang; ", within="6s")
    done = web.apply()
    assert done.returncode == 1, done
    assert "rolled back" in done.stdout
    wait(web.is_full)
    assert len(web.tasks() & third) == 2


def test_a_check_by_command_ends_a_sick_instance(web: Web) -> None:
    web.write(health='command = "test ! -e sick"', within="60s")
    text = web.file.read_text()
    # Checks by command have whole seconds.
    for name, value in (("grace", "15s"), ("interval", "200ms"), ("timeout", "4s")):
        text = text.replace(f'{name} = "{value}"', f'{name} = "1s"')
    web.file.write_text(text)
    web.start()
    first = sorted(web.tasks())
    (web.sandbox(first[0]) / "sick").touch()
    wait(lambda: first[0] not in web.tasks() and web.is_full())
    assert "113" in web.log()


def test_tasks_beside_an_instance_are_replaced_with_it(web: Web) -> None:
    beside = '[task.beside.proxy]\nshell = "exec sleep 3600"\npart = "member"\n'
    small = 'resources = {cpus = 0.1, mem = "32MB"}\n'
    web.write(instances=2)
    web.file.write_text(f"{web.file.read_text()}\n{beside}{small}")
    web.start()
    first = web.tasks()
    instances = {each["task_id"] for each in web.view()["instances"]}
    assert first == instances | {f"{each}+proxy" for each in instances}
    victim = min(instances)
    web.local.croupier("kill", f"{victim}+proxy")
    wait(lambda: not {victim, f"{victim}+proxy"} & web.tasks() and len(web.tasks()) == 4)
    wait(lambda: web.view()["available"] == 2)
    assert first & web.tasks() == first - {victim, f"{victim}+proxy"}


def test_kill_9_of_the_controller_leaves_the_instances(web: Web) -> None:
    web.start()
    first = web.tasks()
    pid = web.view()["controller_pid"]
    os.kill(pid, signal.SIGKILL)
    # Its last thread holds the lock for a moment longer than the process seems to run.
    wait(lambda: not is_running(pid) and web.view()["controller_pid"] == 0)
    assert web.tasks() == first
    # One ends while nothing watches.
    victim = min(first)
    web.local.croupier("kill", victim)
    wait(lambda: victim not in web.tasks())
    web.start()
    wait(web.is_full)
    assert len(web.tasks() & first) == 2

    # In an update, the next controller continues it.
    first = web.tasks()
    web.write(mark="two")
    assert web.apply("--no-wait").returncode == 0
    wait(lambda: len(web.tasks() & first) < 3)
    os.kill(web.view()["controller_pid"], signal.SIGKILL)
    web.start()
    wait(lambda: web.view()["rollout"]["state"] == "done")
    wait(web.is_full)
    assert not web.tasks() & first
    assert {each["version"] for each in web.view()["instances"]} == {2}


def test_kill_9_of_master_and_agent_leaves_the_number(web: Web) -> None:
    web.start()
    first = web.tasks()
    os.kill(daemon(web.local, "croupier.master"), signal.SIGKILL)
    wait(lambda: web.local.croupier("tasks").returncode == 0)
    os.kill(daemon(web.local, "croupier.agent", "agent-2"), signal.SIGKILL)
    wait(web.is_full)
    assert web.tasks() == first, "the tasks survived their agent, and no other was started"
    # And the service still works.
    web.write(mark="two")
    assert web.apply().returncode == 0
    wait(web.is_full)
    assert not web.tasks() & first


def test_a_second_copy_is_refused_and_takes_over_if_asked(web: Web) -> None:
    web.start()
    first, other = web.tasks(), web.directory / "other"
    again = web.local.croupier("service", "apply", str(web.file), "--state", str(other))
    assert again.returncode == 1
    assert "already has a controller" in again.stderr
    assert len(again.stderr.splitlines()) == 1
    taken = web.local.croupier(
        "service", "apply", str(web.file), "--state", str(other), "--takeover", "--detach",
    )  # fmt: skip
    assert taken.returncode == 0, taken
    wait(lambda: web.view()["controller_pid"] == 0)
    assert web.view()["state"] == "taken over"
    # The new controller has no state, so it replaces the instances, a few at a time.
    wait(lambda: web.view(other)["available"] == 3 and not web.tasks() & first)
    refused = web.apply()
    assert refused.returncode == 1
    assert "--takeover" in refused.stderr
    # On this machine, a controller is also replaced gracefully.
    web.state = other
    pid, running = web.view()["controller_pid"], web.tasks()
    web.start("--takeover")
    assert not is_running(pid)
    assert web.tasks() == running


def test_what_hangs_is_replaced(web: Web) -> None:
    """An instance whose check hangs; and the controller, by a takeover."""
    web.start()
    before = sorted(web.tasks())
    (web.sandbox(before[1]) / "hang").touch()
    wait(lambda: before[1] not in web.tasks() and web.is_full())
    assert "unhealthy: no answer within 4 s" in web.log()
    assert before[0] in web.tasks()

    first, pid = web.tasks(), web.view()["controller_pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        web.start("--takeover")
        assert not is_running(pid)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert web.view()["controller_pid"] not in (0, pid)
    assert web.tasks() == first


async def test_instances_of_a_lost_agent_are_replaced(tmp_path: Path) -> None:
    amounts = "cpus:1;mem:1GB;ports:[{}-{}]"
    agents = [amounts.format(31000 + 50 * n, 31049 + 50 * n) for n in range(2)]
    flags = ("--heartbeat", "1s", "--agent-timeout", "6s")
    async with real_cluster(tmp_path, *agents, flags=flags) as cluster:
        local = Local(cast("Any", None), cluster.master, tmp_path, Path(sys.executable).parent)
        web = Web(local, tmp_path, "lost")
        web.write(more='unreachable = "1s"')
        await asyncio.to_thread(web.start)
        first = await asyncio.to_thread(web.tasks)
        on_first = [e for e in web_rows(web) if 31000 <= e["ports"][0] < 31050]
        assert 0 < len(on_first) < 3
        cluster.kill("host0")
        for row in on_first:
            for pid in processes_with(row["task_id"]):
                os.kill(pid, signal.SIGKILL)

        def is_replaced() -> bool:
            rows = [e for e in web_rows(web) if e["state"] == "available"]
            return len(rows) == 3 and all(e["ports"][0] >= 31050 for e in rows)

        await eventually(is_replaced, 60)
        assert len(first & await asyncio.to_thread(web.tasks)) == 3 - len(on_first)
        done = await asyncio.to_thread(web.run, "stop", "lost")
        assert done.returncode == 0, done


def web_rows(web: Web) -> list[dict[str, Any]]:
    """Return the instances, from a thread without a loop."""
    with ThreadPoolExecutor(1) as pool:
        rows: list[dict[str, Any]] = pool.submit(web.view).result()["instances"]
        return rows


def test_scale_status_and_stop(web: Web) -> None:
    web.write(instances=1, more='spread = "hostname"')
    web.start()
    assert web.run("scale", web.name, "3").returncode == 0
    wait(web.is_full)
    assert len({each["place"] for each in web.view()["instances"]}) == 3
    assert web.run("scale", str(web.file), "2").returncode == 0
    wait(lambda: web.is_full(2))
    shown = web.run("status", web.name).stdout
    assert json.loads(web.run("status", web.name, "--json").stdout)["available"] == 2
    assert "available   2 of 2" in shown
    assert "HTTP 200" in shown
    assert web.run("rollout", web.name, "restart").returncode == 0
    assert web.run("rollout", web.name, "nonsense").returncode == 2
    os.kill(web.view()["controller_pid"], signal.SIGTERM)
    wait(lambda: web.view()["controller_pid"] == 0)
    assert len(web.tasks()) == 2
    assert web.run("scale", web.name, "1").returncode == 1
    # Without a controller, the command ends them.
    assert web.run("stop", web.name).returncode == 0
    assert not web.tasks()
    assert web.view()["state"] == "stopped"


def test_the_example_of_the_documentation(local: Local, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
    text = page.split("```toml\n")[1].split("```")[0]
    text, count = re.subn(
        r'^(interval|initial|settle) = "1s"', r'\1 = "200ms"', text, flags=re.MULTILINE
    )
    assert count == 3
    (tmp_path / "web.toml").write_text(text)
    said: list[str] = []
    for line in page.split("```sh\n")[1].split("```")[0].splitlines():
        done = subprocess.run(
            ["sh", "-c", line], capture_output=True, text=True, timeout=90, cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            env={
                **os.environ, "CROUPIER_MASTER": local.master, "XDG_STATE_HOME": str(tmp_path),
                "PATH": f"{local.bin_dir}:{os.environ['PATH']}",
            },
        )  # fmt: skip
        assert done.returncode == 0, (line, done)
        said.append(done.stdout)
    assert "available   3 of 3" in said[1]
    assert "version 2 runs: 4 of 4" in said[4] or "version 2 runs: 3 of 3" in said[4]
    assert said[6].endswith("rolled back\n")
    assert "version 1 runs" in said[7]
    assert said[8].endswith("stopped\n")
