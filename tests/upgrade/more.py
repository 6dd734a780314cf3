"""Add records of the kinds that `make`'s cluster does not have; runs on the old build.

python -m tests.upgrade.more MASTER_DB CHECKPOINT_DIRECTORY
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from croupier.agent.checkpoint import Checkpoint
from croupier.agent.core import records as agent
from croupier.master.core import access_records as access
from croupier.master.core import records as master
from croupier.master.store.sqlite import SqliteStore
from croupier.model.access import Action, Rule
from croupier.model.attributes import Constraint, Operator
from croupier.model.demand import Placement
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.isolation import Isolation, Limits
from croupier.model.principal import PrincipalName
from croupier.model.resources import Resources
from croupier.model.secrets import SealedValue
from croupier.model.store_position import StorePosition
from croupier.model.task import Command, Reason, TaskInfo

F = FrameworkId("F1")
COMMAND = Command(
    ("echo", "ü"),
    environment={"A": "b"},
    user="nobody",
    secrets={"KEY": SealedValue("k1", "c2VhbGVk")},
    secret_files=True,
)
TASK = TaskInfo(
    TaskId("queued"),
    COMMAND,
    Resources.parse("cpus:0.5;mem:64MB;ports:[1-2,9];disks:{a,b};tokens:2"),
    name="näme",
    grace_ms=0,
    labels=(("a", "b"), ("a", "")),
    limits=Limits(cpus=2000, pids=9),
    isolation=Isolation(namespaces=True, image="docker://x"),
    max_completion_ms=5,
)
PLACE = master.QueuePlace(
    Placement((Constraint("rack", Operator.MATCHES, "r.*"),), max_per_agent=2), 7, 1
)
TOKEN = access.TokenRecord(
    access.TokenId("0000000a"), access.TokenKind.JOIN, PrincipalName(""), "f" * 64, 5,
    created_by="client/alice", uses_left=0, attributes=("rack:r1",),
)  # fmt: skip
IN_STORE: list[master.Record] = [
    master.TaskRecord(F, TASK, AgentId(""), Role("ads"), "c", 3, queued=PLACE),
    master.TaskRecord(
        F, replace(TASK, task_id=TaskId("killed")), AgentId("A"), Role("ads"),
        kill=(None, Reason.KILLED_BY_OPERATOR),
    ),
    access.GroupRecord("ops", frozenset({"client/b", "oidc:a/b"})),
    access.RuleRecord(Rule("r", "group:ops", (Action.RUN_AS, Action.VIEW), "user:(agent)")),
    TOKEN,
]  # fmt: skip
IN_CHECKPOINT: list[agent.Record] = [
    agent.PositionRecord(StorePosition(1, 2, "term", 9, "ab" * 16)),
    agent.FrameworkRecord(F, 4),
    agent.ForgetFramework(F),
    agent.VoidRecord(F, TaskId("t-7")),
    agent.KillRecord(F, TaskId("t-8"), 500, Reason.KILLED_BY_FRAMEWORK),
    agent.ForgetTask(F, TaskId("t-9")),
]


async def main(database: Path, directory: Path) -> None:
    """Commit the records."""
    store = SqliteStore(database)
    await store.load()
    await store.commit(IN_STORE)
    await store.close()
    checkpoint, _ = Checkpoint.open(directory)
    await checkpoint.commit(IN_CHECKPOINT)
    await checkpoint.close()


if __name__ == "__main__":
    asyncio.run(main(*map(Path, sys.argv[1:3])))
