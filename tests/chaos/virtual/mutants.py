"""Mutants: deliberate bugs, one of each kind that the chaos suite must find.

A mutant replaces one function or one flag while a world runs.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from croupier.agent.core import on_executor, on_group, on_session, recovery, status_updates
from croupier.agent.core import on_line as agent_on_line
from croupier.agent.core import on_task as agent_on_task
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import PendingUpdates
from croupier.master.allocator.agent_allocation import AgentAllocation
from croupier.master.allocator.charges import Charges
from croupier.master.allocator.eligibility import Eligibility
from croupier.master.allocator.holds import Holds
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.tree import Tree
from croupier.master.core import (
    hold_charges,
    on_agent,
    on_call,
    on_hold,
    on_line,
    on_reservation,
    on_submit,
    on_sync,
    on_task,
    registration,
    state_recovery,
    step,
    task_moves,
    unit_launch,
    verdicts,
)
from croupier.master.core.registry import Registry
from croupier.master.core.state import State
from croupier.master.core.unit_checks import UnitVerdicts
from croupier.master.core.usage import UsageLedger
from croupier.model.devices import Inventory
from croupier.sdk.core.calls import CallLedger
from croupier.sdk.core.updates import UpdateBook
from tests.chaos.virtual import broken, master
from tests.chaos.virtual.agent import AgentProcess
from tests.chaos.virtual.agent_session import AgentSession
from tests.chaos.virtual.master import MasterProcess
from tests.chaos.virtual.registry import SharedRegistry
from tests.harness import invariants


@dataclass(frozen=True, slots=True)
class Mutant:
    """One deliberate bug.

    Attributes:
        what: a description.
        patches: the targets, names and replacements.
        kinds: kinds of faults that find it soon; empty if many kinds do.
    """

    what: str
    patches: tuple[tuple[Any, str, Any], ...]
    kinds: tuple[str, ...] = ()

    def applied(self) -> AbstractContextManager[object]:
        """Return a context in which the bug is present."""
        stack = ExitStack()
        for target, name, replacement in self.patches:
            stack.enter_context(patch.object(target, name, replacement))
        return stack


def _one(target: Any, name: str, replacement: Any) -> tuple[tuple[Any, str, Any], ...]:
    return ((target, name, replacement),)


MUTANTS = {
    "store: no fsync": Mutant(
        "a crash loses the last commit of the registry", _one(SharedRegistry, "forgets_last", True)
    ),
    "store: no fence": Mutant(
        "the registry accepts commits of deposed leaders",
        _one(SharedRegistry, "is_fencing", False),
        ("usurp", "cut_registry", "slow_registry", "master_pause"),
    ),
    "store: no commit number": Mutant(
        "all commits have one number, so that an older copy passes for the newest",
        _one(SharedRegistry, "is_numbering", False),
        ("old_store",),
    ),
    "store: forgets nothing": Mutant(
        "records of ended tasks stay for ever", _one(Registry, "apply", broken.forgets_nothing)
    ),
    "master: performs before durable": Mutant(
        "a batch is performed before its records are committed",
        _one(MasterProcess, "commits_first", False),
    ),
    "master: acks before durable": Mutant(
        "acknowledgements are sent before the ledger has forgotten the task",
        _one(MasterProcess, "acknowledges_first", True),
    ),
    "master: drops acks": Mutant(
        "acknowledgements are not forwarded to agents",
        _one(on_task, "acknowledge", broken.nothing),
    ),
    "master: filters submitted tasks": Mutant(
        "a framework's filters hold back the tasks that it submits",
        _one(Eligibility, "_check_shape", broken.filters_submitted),
    ),
    "master: an id twice": Mutant("ids are reused", _one(State, "next_id", broken.same_id)),
    "master: frees twice": Mutant(
        "the resources of an ended task are released twice",
        _one(task_moves, "release_task", broken.releases_twice),
    ),
    "master: undecided not charged": Mutant(
        "tasks whose agents have not returned are not charged",
        (
            (state_recovery, "charge_absent", broken.charges_none),
            (invariants, "check_absent", broken.charges_none),
            (task_moves, "charge_tasks", broken.charges_late),
            (task_moves, "release_task", broken.releases_late),
        ),
        ("limited",),
    ),
    "master: kill lost in failover": Mutant(
        "a successor does not know requested kills",
        _one(state_recovery, "recover_task", broken.recalls_no_kill),
        ("lost_kill",),
    ),
    "master: answers lost in failover": Mutant(
        "a successor does not know accepted ACCEPTs",
        _one(state_recovery, "recover_task", broken.recalls_no_answers),
        ("snap", "worst_moment", "master_crash"),
    ),
    "master: ends lost in failover": Mutant(
        "a successor does not know the terminal updates that it must send",
        _one(state_recovery, "recover_task", broken.recalls_no_ends),
        ("stop", "gone", "disk_full", "master_crash"),
    ),
    "master: forgets verdicts": Mutant(
        "verdicts that may not have arrived are forgotten",
        _one(verdicts, "mark_seen", broken.forgets_verdicts),
        ("snap",),
    ),
    "master: sends ends once": Mutant(
        "terminal updates of the master's own are not sent again",
        (
            (on_task, "resend_terminal_updates", broken.nothing),
            (step, "resend_terminal_updates", broken.nothing),
        ),
        ("gone", "stop", "snap", "framework_deaf"),
    ),
    "master: kill not repeated": Mutant(
        "requested kills are not sent to a returning agent",
        _one(on_sync, "order_kill", broken.nothing),
        ("lost_kill",),
    ),
    "master: silent is gone": Mutant(
        "tasks of a silent agent are reported as ended",
        _one(on_agent, "set_status", broken.gone_when_silent),
    ),
    "master: never launches again": Mutant(
        "tasks that a returning agent does not list are given up",
        _one(on_sync, "_on_missing", broken.ends_what_is_missing),
    ),
    "master: ignores what is listed": Mutant(
        "the tasks that a returning agent lists are ignored",
        _one(on_agent, "sync", broken.launches_all),
    ),
    "master: adopts without proof": Mutant(
        "tasks that a registering agent invents are adopted",
        _one(on_sync, "_is_unproven", broken.never),
        ("invent",),
    ),
    "master: gone lost in failover": Mutant(
        "a successor does not know agents that were declared gone",
        _one(master, "recover_state", broken.recovers_gone),
        ("gone", "agent_pause", "master_crash"),
    ),
    "master: drain lost in failover": Mutant(
        "a successor does not know withheld agents",
        _one(master, "recover_state", broken.recovers_withheld),
        ("drain", "deactivate", "master_crash"),
    ),
    "master: sends out of order": Mutant(
        "an update is forwarded before earlier ones",
        _one(on_task, "_is_early", broken.never),
        ("operator_kill", "reset", "snap"),
    ),
    "master: ends wait for others": Mutant(
        "a terminal update on behalf of a lost agent keeps the agent's sequence number",
        _one(on_task, "as_master_update", broken.as_it_is),
        ("stop", "gone"),
    ),
    "agent: has no name of its own": Mutant(
        "the master assigns the agent's id in a message that may be lost",
        _one(recovery, "choose_agent_id", broken.nothing),
        ("snap", "half_reset", "agent_crash"),
    ),
    "agent: a number twice": Mutant(
        "after lost records, sequence numbers of lost updates are reused",
        _one(recovery, "_skip_lost_numbers", broken.nothing),
        ("damage", "operator_kill"),
    ),
    "master: an old run comes back": Mutant(
        "an older run of a program takes over from a newer one",
        _one(verdicts, "MAX_EARLIER_CLIENTS", -1),
        ("twin", "snap"),
    ),
    "agent: does not see reboots": Mutant(
        "a reboot of the machine is not noticed",
        _one(AgentState, "was_rebooted", False),
        ("reboot",),
    ),
    "agent: no fsync": Mutant(
        "a crash loses the last records that were synced", _one(AgentProcess, "forgets_last", True)
    ),
    "agent: acts before durable": Mutant(
        "effects are performed before their records are synced",
        _one(AgentProcess, "syncs_first", False),
    ),
    "agent: ignores epochs": Mutant(
        "orders of deposed masters are performed",
        _one(AgentSession, "heeds_epochs", False),
        ("usurp",),
    ),
    "agent: forgets before ack": Mutant(
        "an ended task is forgotten before its terminal update is acknowledged",
        _one(agent_on_task, "on_exited", broken.forgets_unacknowledged),
    ),
    "agent: an id twice": Mutant(
        "a known task is launched again",
        (
            (agent_on_task, "on_launch", broken.launches_again),
            (AgentState, "wants_process", broken.wants_each_process),
        ),
    ),
    "agent: adopts nothing": Mutant(
        "processes of an earlier run of the agent are reported gone",
        _one(AgentProcess, "adopt", broken.adopts_nothing),
    ),
    "agent: strays ignored": Mutant(
        "processes without a record do not keep an agent from starting",
        _one(AgentProcess, "finds_orphans", False),
        ("lost_tail",),
    ),
    "agent: refuses silently": Mutant(
        "launches that an unhealthy agent refuses are not reported",
        (
            (AgentSession, "send_refusals", broken.sends_nothing),
            (AgentSession, "send_health", broken.sends_nothing),
        ),
        ("disk_full", "work_dir_gone", "no_spawn"),
    ),
    "agent: starts anew": Mutant(
        "tasks of an earlier run of the agent are started again",
        _one(AgentProcess, "adopt", broken.starts_anew),
    ),
    "agent: invents exits": Mutant(
        "an exit while no agent watched is reported as success",
        _one(AgentProcess, "adopt", broken.invents_exit),
    ),
    "agent: ack covers too much": Mutant(
        "an acknowledgement covers later updates too",
        _one(PendingUpdates, "acknowledge", broken.acknowledges_all),
    ),
    "agent: updates out of order": Mutant(
        "updates that are sent again are sent newest first",
        _one(AgentSession, "is_orderly", False),
        ("framework_deaf", "framework_crash"),
    ),
    "agent: recall ignored": Mutant(
        "a lined-up task stays in the line when it is recalled",
        _one(agent_on_line, "on_recall", broken.recalls_nothing),
    ),
    "agent: returns and starts": Mutant(
        "a lined-up task that was returned stays in the line",
        _one(agent_on_line, "on_recall", broken.returns_and_keeps),
    ),
    "master: charge passed twice": Mutant(
        "the charge of an ended task passes to its successor and is released as well",
        _one(task_moves, "succeed", broken.passes_and_releases),
    ),
    "master: line lost with its agent": Mutant(
        "tasks that are lined up at a lost agent are forgotten",
        _one(task_moves, "place_lined", broken.forgets_line),
    ),
    "agent: line outlives the session": Mutant(
        "an agent keeps what was lined up when its session ends",
        _one(on_session, "on_disconnected", broken.keeps_line),
    ),
    "agent: a member starts alone": Mutant(
        "a group that was recorded in part is started as far as it was",
        _one(recovery, "_drop_incomplete_groups", broken.drops_no_group),
        ("torn_group",),
    ),
    "agent: a member outlives its group": Mutant(
        "the end of one task of a group ends no other",
        _one(on_group, "apply_rules", broken.ends_no_others),
    ),
    "agent: rules end with the agent": Mutant(
        "ends that an earlier agent has recorded without the kills that follow end no other",
        _one(recovery, "apply_all_rules", broken.nothing),
        ("torn_group",),
    ),
    "master: a group in part": Mutant(
        "the tasks of a group are accepted or refused one by one",
        _one(UnitVerdicts, "decide", broken.decides_alone),
    ),
    "master: a group charged in part": Mutant(
        "only the first task of a group is charged",
        (
            (unit_launch, "launch_charges", broken.charges_first),
            (on_submit, "launch_charges", broken.charges_first),
        ),
    ),
    "agent: launches in executors again": Mutant(
        "an executor that returns is sent the tasks that it has",
        _one(on_executor, "_synchronise", broken.sends_again),
    ),
    "agent: tasks outlive their executor": Mutant(
        "the tasks in an executor do not end with it",
        _one(status_updates, "_end_child", broken.nothing),
    ),
    "agent: updates of executors not durable": Mutant(
        "an executor is told that an update is durable, and it is not",
        _one(on_executor, "on_event", broken.acknowledges_unrecorded),
        ("agent_crash",),
    ),
    "master: a message to another framework": Mutant(
        "a message of an executor is sent to the framework that connected first",
        _one(on_agent, "on_said", broken.tells_another),
    ),
    "master: messages not counted": Mutant(
        "messages to executors are passed on or dropped without being counted",
        _one(on_call, "send_message", broken.drops_uncounted),
    ),
    "agent: a message to another executor": Mutant(
        "a message is passed on to the newest executor of the agent",
        _one(on_executor, "on_message", broken.passes_to_newest),
    ),
    "sdk: messages sent again": Mutant(
        "a new stream carries messages that an earlier one has carried",
        _one(CallLedger, "give_up", broken.carries_nothing),
        ("snap", "reset", "half_reset"),
    ),
    "past use: the order stays": Mutant(
        "past use changes weights, and roles keep their places",
        _one(Tree, "set_past", broken.keeps_order),
        ("weight",),
    ),
    "hold: charged twice": Mutant(
        "what is dealt from a hold is charged again",
        _one(Tree, "deal", broken.deals_holds_again),
    ),
    "hold: offered to others": Mutant(
        "a hold is offered to frameworks that it is not for",
        (
            (PooledAgent, "serves", broken.serves_all),
            (AgentAllocation, "_neediest", broken.deals_to_all),
        ),
    ),
    "hold: outlives its time": Mutant(
        "a hold does not end when its time to live is over",
        _one(on_hold, "on_hold_due", broken.keeps_expired),
    ),
    "hold: its tasks become free": Mutant(
        "tasks in a hold that has ended are not charged",
        _one(hold_charges, "remove_hold", broken.frees_tasks),
    ),
    "hold: leaks": Mutant(
        "what tasks took from a hold does not return to it",
        _one(Charges, "release", broken.keeps_parts),
    ),
    "usage: counted twice": Mutant(
        "a successor counts the time since the last step twice",
        _one(UsageLedger, "_count_gap", broken.counts_gap_twice),
        ("weight", "master_crash"),
    ),
    "volume: dealt to others": Mutant(
        "the disk of a volume is offered", _one(Holds, "make", broken.deals_volumes)
    ),
    "volume: not wiped": Mutant(
        "the directory of a volume stays after its end",
        (
            (on_hold, "_order_volume", broken.removes_no_volume),
            (on_hold, "_sort_out_volumes", broken.lists_no_volumes),
        ),
    ),
    "gang: runs in part": Mutant(
        "the others of a gang run on when a member has ended or is unreachable",
        _one(step, "settle_gangs", broken.settles_no_gangs),
    ),
    "gang: starts again before the end": Mutant(
        "a member of a gang that starts again is queued while it is being killed",
        _one(on_line, "ends_run", broken.returns_early),
    ),
    "volume: task placed elsewhere": Mutant(
        "a task is placed on any agent, whatever its volumes",
        (
            (unit_launch, "check_volumes", broken.places_anywhere),
            (on_submit, "check_volumes", broken.places_anywhere),
        ),
    ),
    "volume: given to another owner": Mutant(
        "a task gets volumes of another framework",
        (
            (unit_launch, "check_volumes", broken.asks_no_owner),
            (on_submit, "check_volumes", broken.asks_no_owner),
        ),
    ),
    "volume: lost in failover": Mutant(
        "a successor does not know that a hold is a volume",
        _one(state_recovery, "_recover_hold", broken.recalls_no_volume),
    ),
    "requeue: before the end": Mutant(
        "a preempted task is queued again while it is being killed",
        _one(on_line, "ends_run", broken.requeues_early),
    ),
    "requeue: numbers from 1": Mutant(
        "an agent numbers the updates of a further run from 1",
        _one(status_updates, "PendingUpdates", broken.numbers_from_1),
    ),
    "reservation: kept after its end": Mutant(
        "the allocator keeps others from agents of a reservation that has ended",
        _one(on_reservation, "_release", broken.keeps_reserved),
        ("reserve",),
    ),
    "reservation: of agents of another": Mutant(
        "two reservations have one agent at the same time",
        _one(on_reservation, "_reserved_agents", broken.nothing_is_reserved),
        ("reserve",),
    ),
    "devices: a slot twice": Mutant(
        "the choice of devices ignores which are free",
        _one(Inventory, "choose", broken.chooses_used_slots),
    ),
    "devices: not told by the agent": Mutant(
        "the master takes the devices of an agent for any set of its resources",
        _one(registration, "inventory_of", broken.registers_no_devices),
    ),
    "sdk: end shown twice": Mutant(
        "a handled update is passed to the handler again",
        _one(UpdateBook, "decide", broken.shows_again),
    ),
    "sdk: calls not sent again": Mutant(
        "a new stream does not carry the calls without a verdict",
        _one(CallLedger, "carry", broken.carries_nothing),
    ),
}
