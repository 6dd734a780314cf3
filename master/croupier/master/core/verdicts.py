"""The verdicts that the master holds until a program has marked them as seen.

Rule: a verdict is held as long as its call may be sent again, and is counted in `State.verdicts`.
"""

from __future__ import annotations

from math import inf

from croupier.master.core.frameworks import Framework
from croupier.master.core.messages import verdict_size
from croupier.master.core.state import State
from croupier.model.ids import TaskId
from croupier.model.verdict import Verdict

# Most earlier runs of a program in `Framework.earlier_clients`.
MAX_EARLIER_CLIENTS = 16


def remember(state: State, framework: Framework, verdict: Verdict) -> None:
    """Hold a verdict until it is marked as seen: the call may be sent again."""
    if framework.is_removed:
        return
    framework.verdicts[verdict.seq] = verdict
    state.verdicts.add(framework.framework_id, verdict_size(verdict))


def mark_seen(state: State, framework: Framework, seq: float) -> list[TaskId]:
    """Forget the verdicts up to `seq`; return the tasks that need not be retained for them."""
    while framework.verdicts and (first := next(iter(framework.verdicts))) <= seq:
        size = verdict_size(framework.verdicts.pop(first))
        state.verdicts.add(framework.framework_id, -size)
    for number in [each for each in framework.accepted if each <= seq]:
        del framework.accepted[number]
    return [
        task_id
        for number in [each for each in framework.retained if each <= seq]
        for task_id in framework.retained.pop(number)
    ]


def begin_run(state: State, framework: Framework, client_id: str) -> list[TaskId]:
    """Begin a new run of a program; return the tasks that need not be retained."""
    if framework.client_id:
        earlier = (*framework.earlier_clients, framework.client_id)
        framework.earlier_clients = earlier[-MAX_EARLIER_CLIENTS:]
    framework.client_id, framework.last_seq = client_id, 0
    return mark_seen(state, framework, inf)
