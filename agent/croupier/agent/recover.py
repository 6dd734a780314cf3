"""Recovery by `--recover`: the state from an earlier life, and `--recover=cleanup`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from croupier.agent.checkpoint import WHAT_TO_DO, Checkpoint, Loaded, clear
from croupier.agent.core.records import Record, TaskRecord
from croupier.agent.core.recovery import forget_masters, identify, incomplete, recovered
from croupier.agent.core.state import AgentState
from croupier.agent.credential import AgentCredential, remove_own_token
from croupier.agent.exec.task_execs import end_commands
from croupier.agent.isolation.cgroup.isolator import remove_groups
from croupier.agent.isolation.isolator import Layers
from croupier.agent.isolation.task_users import release_own_uids
from croupier.agent.janitor import remove_trees
from croupier.agent.metrics import Metrics
from croupier.agent.secret_files import SecretFiles
from croupier.agent.shim.orphans import end_orphans, find_live_orphans
from croupier.agent.work_dir import LOCK, WorkDir
from croupier.model.errors import Conflict, InvalidRequest, Unavailable
from croupier.model.resources import Resources
from croupier.process.logging import get_logger

if TYPE_CHECKING:  # cyclopts
    from croupier.agent.config import AgentConfig

_log = get_logger("croupier.agent")


def unknown_runs(runs: Path, records: Iterable[Record]) -> str:
    """Return a message about live runs that no record names; empty if there are none.

    Raises Unavailable if the run files cannot be read.
    """
    known = {record.run for record in records if isinstance(record, TaskRecord)}
    try:
        living = find_live_orphans(runs, known) if runs.is_dir() else []
    except OSError as error:
        raise Unavailable(f"cannot use {runs}: {error.strerror}") from error
    if not living:
        return ""
    return f"processes of {len(living)} tasks run that no record names, such as {living[0]}"


def end_unknown_runs(work_dir: WorkDir, known: Collection[str], isolation: Layers) -> None:
    """End commands of an earlier life, and runs that are not `known`; blocks.

    Raises OSError if the run files cannot be read.
    """
    end_commands(work_dir.execs)
    if orphans := end_orphans(work_dir.runs, known):
        _log.error("orphan_runs_ended", count=orphans)
    try:
        isolation.clean(known)
    except OSError as error:
        # The next agent tries again; nothing of these runs is in the way of others.
        _log.error("isolation_not_cleaned", error=str(error))


def check_used(directory: Path) -> None:
    """Check that an agent has used the work dir.

    Raises InvalidRequest if none has, since it may be the wrong directory.
    """
    if not (directory.expanduser() / LOCK).exists():
        raise InvalidRequest(f"{directory} is not an agent's work dir: nothing to clean up")


async def clean_up(directory: Path) -> None:
    """End every task of an earlier agent on the work dir, and remove its records.

    Sandboxes stay; the next agent removes them in time. Raises CroupierError if the work dir cannot
    be used, or an agent uses it.
    """
    work_dir = await WorkDir.open(directory)
    try:
        ended = 0
        await asyncio.to_thread(end_commands, work_dir.execs)
        if work_dir.runs.is_dir():
            ended = await asyncio.to_thread(end_orphans, work_dir.runs, ())
        await asyncio.to_thread(remove_groups, work_dir.path)
        release_own_uids(work_dir)
        await remove_trees(SecretFiles(work_dir.path).left(()))
        clear(work_dir.path)
        remove_own_token(work_dir.path)
    except OSError as error:
        raise Unavailable(f"cannot clean {work_dir.path}: {error.strerror}") from error
    finally:
        work_dir.close()
    _log.info("cleaned_up", work_dir=str(work_dir.path), tasks=ended)


async def recovered_state(
    config: AgentConfig,
    work_dir: WorkDir,
    checkpoint: Checkpoint,
    loaded: Loaded,
    total: Resources,
    boot_id: Callable[[], str],
    metrics: Metrics,
) -> AgentState:
    """Rebuild the state from the `loaded` records of the checkpoint.

    Raises InvalidRequest if the records do not fit this agent, or if some are lost and the
    configuration does not accept that.
    """
    is_lenient = config.recover == "best-effort"
    lost = loaded.damaged
    if unknown := unknown_runs(work_dir.runs, loaded.records):
        if not is_lenient:
            # Marked now, because these tasks may have ended by the next start.
            checkpoint.mark_incomplete()
            raise InvalidRequest(f"{checkpoint.path} is incomplete: {unknown}. {WHAT_TO_DO}")
        lost = [*lost, unknown]
        # Durable before the agent ends these runs: they are the only proof of the loss.
        await checkpoint.commit([incomplete(loaded.records)])
    for what in lost:
        _log.error("record_lost", file=str(checkpoint.path), reason=what)
        metrics.count("agent_recovery_errors")
    try:
        state = recovered(
            loaded.records,
            total,
            boot_id=boot_id(),
            life=secrets.token_hex(8),
            incomplete=bool(lost),
            lenient=is_lenient,
        )
    except Conflict as error:
        raise InvalidRequest(f"{checkpoint.path}: {error}") from error
    if config.recover == "forget-master":
        _log.warning("master_forgotten", cluster=state.cluster, epoch=state.master_epoch)
        await checkpoint.commit(forget_masters(state))
    return state


def take_identity(state: AgentState, credential: AgentCredential) -> None:
    """Take the id in the agent's credential, if there is one.

    Raises InvalidRequest if the agent has another one.
    """
    try:
        identify(state, credential.given_id, is_certified=bool(credential.certified_id))
    except Conflict as error:
        raise InvalidRequest(str(error)) from error
