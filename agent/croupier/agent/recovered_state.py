"""The state of the core from the records of an earlier life, as the operator wants it recovered."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from croupier.agent.checkpoint import WHAT_TO_DO, Checkpoint, Loaded
from croupier.agent.cleanup import unknown_runs
from croupier.agent.core.recovery import forget_masters, identify, incomplete, recovered
from croupier.agent.core.state import AgentState
from croupier.agent.credential import AgentCredential
from croupier.agent.metrics import Metrics
from croupier.agent.work_dir import WorkDir
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.resources import Resources
from croupier.process.logging import get_logger

if TYPE_CHECKING:  # cyclopts
    from croupier.agent.config import AgentConfig

_log = get_logger("croupier.agent")


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

    Raises:
        InvalidRequest: if the records do not fit this agent, or if some are lost and the
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
        metrics.record_lost()
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

    Raises:
        InvalidRequest: if the agent has another one.
    """
    try:
        identify(state, credential.given_id, is_certified=bool(credential.certified_id))
    except Conflict as error:
        raise InvalidRequest(str(error)) from error
