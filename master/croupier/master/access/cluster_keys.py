"""Keys that are derived from the secret of the cluster. Only shells hold them.

Links to output are signed by a key of the agent. A launch order carries a proof: a MAC over
cluster, agent, task, role and resources. The agent stores it with the task and returns it in
REGISTER. The ledger may have lost a task; its proof cannot be forged. The core and the event log
learn only whether a proof is valid.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

from croupier.master.core.events import AgentTask
from croupier.model.agent_orders import LaunchTask
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import Resources
from croupier.net.output_links import VALID_S, derive_key, signed_link

PROOF_BYTES: Final = 16


class LinkKeys:
    """The keys of all agents for links to output."""

    def __init__(self, secret: str) -> None:
        self._derive = lru_cache(maxsize=1024)(partial(derive_key, secret))

    def key_of(self, agent_id: AgentId) -> bytes:
        """Return the key of an agent."""
        return self._derive(agent_id)

    def link_to(self, agent_id: AgentId, path: str, now_s: float) -> str:
        """Return a link to a path of an agent, valid from `now_s`, in Unix seconds."""
        return signed_link(self.key_of(agent_id), path, int(now_s) + VALID_S)


class LaunchProofs:
    """Makes and checks proofs with a key that is derived from the secret of the cluster."""

    def __init__(self, secret: str) -> None:
        key = hmac.digest(secret.encode(), b"launch-proof", "sha256")
        # A copy costs less than a new one, and does not let go of the interpreter.
        self._mac = hmac.new(key, digestmod="sha256")

    def proven(self, order: LaunchTask, agent_id: AgentId) -> LaunchTask:
        """Return the order to this agent with its proof."""
        info = order.task
        proof = self._of(agent_id, order.framework_id, info.task_id, order.role, info.resources)
        return replace(order, proof=proof)

    def judged(self, task: AgentTask, proof: str) -> AgentTask:
        """Return a task as an agent lists it, with a judgement of the proof that it returned."""
        own, status = task.task, task.latest
        role = task.role or Role("")
        true = self._of(
            status.agent_id, task.framework_id, TaskId(own.task_id), role, own.resources
        )
        is_proven = hmac.compare_digest(true.encode(), proof.encode())
        return task if is_proven else replace(task, is_unproven=True)

    def _of(
        self,
        agent_id: AgentId,
        framework_id: FrameworkId,
        task_id: str,
        role: Role,
        resources: Resources,
    ) -> str:
        # Neither ids nor roles nor resources contain a line end.
        statement = "\n".join((agent_id, framework_id, task_id, role, str(resources)))
        mac = self._mac.copy()
        mac.update(statement.encode())
        return mac.digest()[:PROOF_BYTES].hex()
