"""SIGKILL while the store commits: acknowledged commits are durable, and all are atomic.

The killed process prints each commit once it is acknowledged; the next process must find it.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from pathlib import Path

from croupier.master.core.registry import Registry
from tests.harness.effort import portion
from tests.harness.sqlite_stores import read

ROUNDS = portion(40)
# Records of one commit; more than a page of the file, so a partial write is possible.
PART = 40

WRITER = f"""
import asyncio, sys
from pathlib import Path
from croupier.master.core.records import AgentRecord, ForgetAgent
from croupier.master.store import SqliteStore
from croupier.model.ids import AgentId

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    number = 1 + max((int(a.hostname.split()[0]) for a in (await store.load()).agents.values()),
                     default=0)
    print("begins", flush=True)
    while True:
        # Each commit replaces the parts of the one before, adds a record, and deletes one.
        records = [AgentRecord(AgentId(f"part-{{n}}"), f"{{number}} " + "x" * 200)
                   for n in range({PART})]
        records += [AgentRecord(AgentId(f"own-{{number}}"), str(number)),
                    ForgetAgent(AgentId(f"own-{{number - 2}}"))]
        await store.commit(records)
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


async def killed(path: Path, commits: int, after_s: float) -> int:
    """Run a writer, kill it a time after some commits, and return the last acknowledged one."""
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout is not None
    assert await asyncio.wait_for(writer.stdout.readline(), 30) == b"begins\n"
    said = b"".join([await asyncio.wait_for(writer.stdout.readline(), 30) for _ in range(commits)])
    await asyncio.sleep(after_s)
    writer.send_signal(signal.SIGKILL)
    said += await asyncio.wait_for(writer.stdout.read(), 30)
    await writer.wait()
    whole = said[: said.rfind(b"\n") + 1].split()
    return int(whole[-1]) if whole else 0


def last_commit(registry: Registry) -> int:
    """Return the number of the only commit whose records the registry holds."""
    if not registry.agents:
        return 0
    parts = {
        int(agent.hostname.split()[0])
        for agent_id, agent in registry.agents.items()
        if agent_id.startswith("part-")
    }
    assert len(parts) == 1, f"parts of several commits: {parts}"
    (number,) = parts
    own = {agent_id for agent_id in registry.agents if agent_id.startswith("own-")}
    assert own == {f"own-{n}" for n in (number - 1, number) if n > 0}
    assert len(registry.agents) == PART + len(own)
    return number


async def test_a_kill_loses_no_acknowledged_commit_and_leaves_no_partial_commit(
    tmp_path: Path,
) -> None:
    path = tmp_path / "master.db"
    rng = random.Random(11)
    before = 0
    for _ in range(ROUNDS):
        answered = await killed(path, rng.randrange(10), rng.uniform(0.0, 0.02))
        found = last_commit(await read(path))
        # The commit that was in progress may be durable or not.
        assert max(answered, before) <= found <= max(answered, before) + 1
        before = found
