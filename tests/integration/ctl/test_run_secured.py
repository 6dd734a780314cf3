"""`croupier run` in a cluster with mutual TLS: output comes over HTTPS, by signed links."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.agent import served_files
from croupier.model.access import Action
from croupier.net.credentials import make_token
from tests.harness.agents import running_agent
from tests.harness.certificates import PemFiles, authority
from tests.harness.command import Ended, croupier, ended, line, started
from tests.harness.eventually import eventually
from tests.harness.masters import running_master
from tests.harness.secured import SecuredMaster
from tests.integration.agent.test_identity import tls_of


def flags(files: PemFiles) -> tuple[str, ...]:
    return (
        f"--tls-ca={files.ca}", f"--tls-cert={files.cert}", f"--tls-key={files.key}",
    )  # fmt: skip


async def test_output_is_for_the_owner_and_links_are_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The agent breaks each connection early, so that the reader needs several links.
    monkeypatch.setattr(served_files, "FOLLOW_S", 0.1)
    names = ("master/m1", "agent/a1", "client/alice")
    files = {name: authority().issue(tmp_path / name, name) for name in names}
    async with running_master(tls=tls_of(files["master/m1"])) as master:
        secured = SecuredMaster(master, make_token())
        secured.allow("client/alice", [Action.REGISTER], "role:**")
        secured.allow("client/alice", [Action.RUN_AS], "user:*")
        async with running_agent(
            tmp_path / "work", master.address, tls=tls_of(files["agent/a1"])
        ) as agent:
            await eventually(lambda: agent.link.is_registered)
            assert master.driver.state.agents[agent.state.agent_id].http_address.startswith(
                "https:"
            )
            argv = (
                "run",
                f"--master={master.address}",
                *flags(files["client/alice"]),
                "--mem=32MB",
            )
            done = await croupier(*argv, "--", "sh", "-c", "echo out; sleep 0.25; echo more")
            assert done == Ended(0, "out\nmore\n", "")
            # A command beside a task: the agent opens its stream with its own certificate.
            shell = "echo $CROUPIER_TASK_ID; exec sleep 600"
            async with started(*argv, "--", "sh", "-c", shell) as process:
                task_id = (await line(process)).strip()
                command = ("exec", *argv[1:-1], task_id, "--", "sh", "-c", "echo $CROUPIER_TASK_ID")
                assert await croupier(*command) == Ended(0, f"{task_id}\n", "")
                process.terminate()
                await ended(process)
