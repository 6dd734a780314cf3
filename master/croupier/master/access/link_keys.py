"""The keys with which a master signs links to output."""

from __future__ import annotations

from functools import lru_cache, partial

from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.net.output_links import VALID_S, derive_key, output_path, signed_link, usage_path


class LinkKeys:
    """The keys of all agents, derived from the secret of the cluster.

    Only shells hold it: neither the core nor the event log learns a key.
    """

    def __init__(self, secret: str) -> None:
        self._derive = lru_cache(maxsize=1024)(partial(derive_key, secret))

    def key_of(self, agent_id: AgentId) -> bytes:
        """Return the key of an agent."""
        return self._derive(agent_id)

    def links_of(
        self,
        agent_id: AgentId,
        framework_id: FrameworkId,
        task_id: TaskId,
        streams: tuple[str, ...],
        now_s: float,
    ) -> list[str]:
        """Return a link to each stream of a task, valid from `now_s`, in Unix seconds."""
        paths = (output_path(framework_id, task_id, stream) for stream in streams)
        return [self._signed(agent_id, path, now_s) for path in paths]

    def usage_link(
        self, agent_id: AgentId, framework_id: FrameworkId, task_id: TaskId, now_s: float
    ) -> str:
        """Return a link to the usage of a task, valid from `now_s`, in Unix seconds."""
        return self._signed(agent_id, usage_path(framework_id, task_id), now_s)

    def link_to(self, agent_id: AgentId, path: str, now_s: float) -> str:
        """Return a link to a path of an agent, valid from `now_s`, in Unix seconds."""
        return self._signed(agent_id, path, now_s)

    def _signed(self, agent_id: AgentId, path: str, now_s: float) -> str:
        return signed_link(self.key_of(agent_id), path, int(now_s) + VALID_S)
