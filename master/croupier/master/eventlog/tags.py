"""The tags of the event log: every kind of line, event and decision, and all of their fields.

Rule: this table is the format. Decisions are not written, but the digest in the log is computed
over them by the tags and in the order given here.
"""

from __future__ import annotations

from typing import Final, get_args

from croupier.master.allocator import Rules
from croupier.master.allocator.agent_pool import Useful
from croupier.master.allocator.starvation import PreemptionRules
from croupier.master.core import (
    access_records,
    agent_commands,
    calls,
    effects,
    events,
    facts,
    messages,
    policy_changes,
    policy_commands,
    records,
    roles,
    settings,
)
from croupier.master.core.agent_status import AgentStatus
from croupier.master.core.step import Command
from croupier.master.core.tasks import TaskSnapshot
from croupier.master.eventlog import lines
from croupier.model import agent_orders, verdict
from croupier.model.attributes import Constraint, Operator
from croupier.model.demand import Demand
from croupier.model.errors import CroupierError
from croupier.model.health import Problem
from croupier.model.tags import Kind, Table, declared, error_tag

_KINDS: Final = (
    Kind(
        "head",
        lines.Head,
        "format version master_id part at wall_ms events digest=decided settings policy seed rules "
        "roles registry",
    ),
    Kind("role", lines.KnownRole, "role settings"),
    Kind("agent", lines.KnownAgent, "agent_id hostname total attributes features"),
    Kind("framework", lines.KnownFramework, "framework_id name roles session demands suppressed"),
    Kind("offer", lines.KnownOffer, "offer_id framework_id role agent_id"),
    Kind("task", lines.KnownTask, "framework_id task_id role agent_id resources since"),
    Kind(
        "Settings",
        settings.Settings,
        "heartbeat_s agent_timeout_s suspect_beats removals removal_window_s return_timeout_s "
        "offer_lease_s max_offer_lease_s refuse_s completed_tasks "
        "used_task_ids=spent_ids removed_frameworks=spent_frameworks "
        "gone_agents unreachable_agents unacknowledged queued_tasks verdict_bytes "
        "all_verdict_bytes description_bytes all_description_bytes frameworks role_levels "
        "resend_s preemption auth groups group_members rules tokens agent_tokens "
        "owner_frameworks owner_tasks adopt_unproven_s max_agent",
    ),
    Kind(
        "PreemptionRules",
        PreemptionRules,
        "is_on tolerance fair_timeout_s guarantee_timeout_s grace_s min_age_s earmark_s "
        "cooldown_s at_once",
    ),
    Kind("Rules", Rules, "useful hold_s order seed scarce skips remembers_misfits"),
    Kind("Useful", Useful, "cpus mem"),
    Kind(
        "Registry",
        records.Registry,
        "master agents frameworks roles tasks groups rules tokens revoked",
    ),
    Kind("MasterRecord", records.MasterRecord),
    Kind("AgentRecord", records.AgentRecord),
    Kind("FrameworkRecord", records.FrameworkRecord),
    Kind("RoleRecord", records.RoleRecord),
    Kind("TaskRecord", records.TaskRecord),
    Kind("GroupRecord", access_records.GroupRecord),
    Kind("RuleRecord", access_records.RuleRecord),
    Kind("TokenRecord", access_records.TokenRecord),
    Kind("RevokedKeyRecord", access_records.RevokedKeyRecord),
    Kind("ForgetAgent", records.ForgetAgent, "agent_id"),
    Kind("ForgetFramework", records.ForgetFramework, "framework_id"),
    Kind("ForgetTask", records.ForgetTask, "framework_id task_id"),
    Kind("ForgetRole", records.ForgetRole, "role"),
    Kind("ForgetGroup", access_records.ForgetGroup, "name"),
    Kind("ForgetRule", access_records.ForgetRule, "name"),
    Kind("ForgetToken", access_records.ForgetToken, "token_id"),
    Kind("ForgetRevokedKey", access_records.ForgetRevokedKey, "key_id"),
    Kind("Demand", Demand, "unit count constraints min_per_offer max_per_offer role"),
    Kind("Constraint", Constraint),
    Kind("Operator", Operator),
    Kind(
        "Subscribe",
        events.Subscribe,
        "session framework_id name roles client_id failover_timeout_s offer_lease_s demands "
        "suppressed hostname webui_url suppressed_roles takes_reconciled principal",
    ),
    Kind("FrameworkCalled", events.FrameworkCalled, "session seq call"),
    Kind("Heard", events.Received, "session verdicts_seen"),
    Kind(
        "Register",
        events.Register,
        "session agent_id hostname total attributes http_address tasks master_epoch "
        "incomplete cluster problems claim objection principal takes_secrets features "
        "default_user takes_exec",
    ),
    Kind("AgentTask", events.AgentTask, "framework_id task latest unacknowledged role is_unproven"),
    Kind("Claim", events.Claim, "KNOWN SILENT GIVEN_UP NEWER UNPROVEN FOREIGN"),
    Kind("AgentReported", events.AgentReported, "session statuses"),
    Kind("AgentHealth", events.AgentHealth, "session problems refused"),
    Kind("RefusedLaunch", events.RefusedLaunch, "framework_id task_id message"),
    Kind("LaunchUnsent", events.LaunchUnsent, "session framework_id task_id message"),
    Kind("AgentStopped", events.AgentStopped, "session message"),
    Kind("SessionEnded", events.SessionEnded, "session message"),
    # Operator commands declare their tags beside the class.
    *declared(get_args(Command)),
    Kind("TimePassed", events.TimePassed, ""),
    Kind("AllocationDue", events.AllocationDue, "budget"),
    Kind("Accept", calls.Accept, "offer_ids tasks refuse_s malformed"),
    Kind("MalformedTask", calls.MalformedTask, "place task_id message"),
    Kind("Decline", calls.Decline, "offer_ids refuse_s reason"),
    Kind("UpdateDemand", calls.UpdateDemand, "demands"),
    Kind("Suppress", calls.Suppress, "roles"),
    Kind("Revive", calls.Revive, "roles"),
    Kind("Kill", calls.Kill, "task_id grace_ms"),
    Kind("Acknowledge", calls.Acknowledge, "updates more"),
    Kind("Reconcile", calls.Reconcile, "task_ids more"),
    Kind("Teardown", calls.Teardown, ""),
    Kind("Submit", calls.Submit, "tasks role placement malformed"),
    Kind("Withdraw", calls.Withdraw, "task_ids"),
    Kind("Malformed", calls.Malformed, "call error task_ids"),
    Kind("Problem", Problem, "part message"),
    *declared(get_args(agent_commands.AgentAction)),
    *declared(get_args(policy_changes.PolicyChange)),
    Kind("RoleChange", roles.RoleChange, "role settings parts"),
    Kind("Part", roles.Part, "WEIGHT RESOURCE_WEIGHTS GUARANTEE LIMIT PREEMPTION"),
    Kind("Send", effects.Send, "session message"),
    Kind("Close", effects.Close, "session error"),
    Kind("Save", effects.Save, "record"),
    Kind("Happened", effects.Happened, "fact"),
    Kind("AccessChanged", effects.AccessChanged, "revoked"),
    Kind("Subscribed", messages.Subscribed, "framework_id heartbeat_s master_id"),
    Kind("Offered", messages.Offered, "offer_id agent role resources lease_s"),
    Kind(
        "AgentDescription",
        messages.AgentDescription,
        "agent_id hostname attributes http_address features",
    ),
    Kind("Rescinded", messages.Rescinded, "offer_id reason"),
    Kind("Verdict", verdict.Verdict, "seq error tasks"),
    Kind("TaskVerdict", verdict.TaskVerdict, "task_id error"),
    Kind("Updated", messages.Updated, "statuses"),
    Kind("Placed", messages.Placed, "agent statuses"),
    Kind("AgentFailed", messages.AgentFailed, "agent_id hostname message"),
    Kind("PreemptRequested", messages.PreemptRequested, "task_ids agent_id grace_s role reason"),
    Kind("Heartbeat", messages.Heartbeat, ""),
    Kind("Registered", messages.Registered, "agent_id heartbeat_s master_id"),
    Kind("LaunchTask", agent_orders.LaunchTask, "framework_id task role framework_epoch proof"),
    Kind("KillTask", agent_orders.KillTask, "framework_id task_id grace_ms reason framework_epoch"),
    Kind("AcknowledgeUpdate", agent_orders.AcknowledgeUpdate, "framework_id task_id sequence"),
    Kind("ResendUpdates", agent_orders.ResendUpdates, "framework_id"),
    Kind("AgentJoined", facts.AgentJoined, "agent_id hostname kind tasks"),
    Kind("AgentLeft", facts.AgentLeft, "agent_id hostname why message"),
    Kind("AgentOperated", facts.AgentOperated, "agent_id hostname action operator"),
    Kind("AgentDrained", facts.AgentDrained, "agent_id hostname"),
    Kind("AgentRefused", facts.AgentRefused, "agent_id hostname message"),
    Kind("TasksUnproven", facts.TasksUnproven, "agent_id hostname tasks first"),
    Kind("AgentUnhealthy", facts.AgentUnhealthy, "agent_id hostname problems"),
    Kind("AgentHealthy", facts.AgentHealthy, "agent_id hostname"),
    Kind("FrameworkJoined", facts.FrameworkJoined, "framework_id name roles kind"),
    Kind("FrameworkLeft", facts.FrameworkLeft, "framework_id why message"),
    Kind("FrameworkTornDown", facts.FrameworkTornDown, "framework_id name tasks operator"),
    Kind("OfferMade", facts.OfferMade, "offer_id framework_id agent_id"),
    Kind("OfferEnded", facts.OfferEnded, "offer_id framework_id outcome held_s message"),
    Kind("OffersUnanswered", facts.OffersUnanswered, "framework_id agent_id kept_s back_off_s"),
    Kind("TaskMoved", facts.TaskMoved, "framework_id task_id agent_id state source reason message"),
    Kind("CallAnswered", facts.CallAnswered, "framework_id call outcome message"),
    Kind("RoleChanged", facts.RoleChanged, "role before after operator forced"),
    Kind(
        "PreemptionBegun",
        facts.PreemptionBegun,
        "framework_id role agent_id room tasks offers message",
    ),
    Kind("PreemptionEnded", facts.PreemptionEnded, "framework_id task_id outcome"),
    Kind("UpdateHandled", facts.UpdateHandled, "outcome"),
    Kind("UpdateAcknowledged", facts.UpdateAcknowledged, "outcome"),
)
EVENT_LOG: Final = Table(_KINDS)

# Answers to operators that do not declare a tag. The digest holds only the kind of an answer.
_ANSWERS: Final[dict[type, str]] = {
    AgentStatus: "Agent",
    TaskSnapshot: "Task",
    policy_commands.PolicyAnswer: "Policy",
}


def answer_tag(result: object) -> str:
    """Return the kind of an operator's answer; with its text if it is an error.

    Raises:
        TypeError: if the answer has no tag.
    """
    if isinstance(result, CroupierError):
        return f"{error_tag(result)}: {result}"
    return _ANSWERS.get(type(result)) or EVENT_LOG.title(type(result))
