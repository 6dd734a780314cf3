"""What must outlive the process."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.roles import RoleSettings


@dataclass(frozen=True, slots=True)
class MasterRecord:
    """The cluster's name, and how many masters have led it."""

    cluster: str
    epoch: int

    @property
    def master_id(self) -> str:
        """Names this run of a master; the prefix of the ids that it gives."""
        return f"{self.cluster}-{self.epoch}"


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """An agent that was admitted."""

    agent_id: AgentId
    hostname: str


@dataclass(frozen=True, slots=True)
class FrameworkRecord:
    """A framework that subscribed, and whether it was removed since."""

    framework_id: FrameworkId
    name: str
    roles: tuple[Role, ...]
    failover_timeout_s: float
    removed: bool = False


@dataclass(frozen=True, slots=True)
class RoleRecord:
    """What an operator has set of a role: all of its settings, whatever the flags say."""

    role: Role
    settings: RoleSettings


@dataclass(frozen=True, slots=True)
class ForgetAgent:
    """The agent left for good."""

    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class ForgetFramework:
    """So many frameworks were removed since that this one's id need not be remembered."""

    framework_id: FrameworkId


@dataclass(frozen=True, slots=True)
class ForgetRole:
    """The role's settings are again those that the flags give."""

    role: Role


Record = (
    MasterRecord
    | AgentRecord
    | FrameworkRecord
    | RoleRecord
    | ForgetAgent
    | ForgetFramework
    | ForgetRole
)


@dataclass(slots=True)
class Registry:
    """All records, as a store gives them back."""

    master: MasterRecord | None = None
    agents: dict[AgentId, AgentRecord] = field(default_factory=dict)
    frameworks: dict[FrameworkId, FrameworkRecord] = field(default_factory=dict)
    roles: dict[Role, RoleRecord] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Take one record in; the newest of a kind and id wins."""
        match record:
            case MasterRecord():
                self.master = record
            case AgentRecord():
                self.agents[record.agent_id] = record
            case FrameworkRecord():
                self.frameworks[record.framework_id] = record
            case RoleRecord():
                self.roles[record.role] = record
            case ForgetAgent():
                self.agents.pop(record.agent_id, None)
            case ForgetFramework():
                self.frameworks.pop(record.framework_id, None)
            case ForgetRole():
                self.roles.pop(record.role, None)
