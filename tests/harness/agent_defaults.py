"""The user of tasks in tests that are not about users: the one that runs the tests.

Agents in processes of their own read the environment, which this module sets when it is imported;
agents of older builds ignore it, and flags override it. By default an agent that is root gives each
task a uid of its own, which could enter neither the temporary directory of a test nor a checkout
below /root. A test of that gives `--task-user own`.
"""

from __future__ import annotations

import os
from typing import Final

from croupier.agent.isolation.flags import TaskUserFlags

_IS_ROOT: Final = os.geteuid() == 0
# For agents in the process of the test.
SAME_USER: Final = (
    TaskUserFlags(task_user="root", task_users=("*", "root")) if _IS_ROOT else TaskUserFlags()
)

# For `croupier local`, whose daemons do not read the environment.
LOCAL_FLAGS: Final = ("--task-user", "root") if _IS_ROOT else ()

if _IS_ROOT:
    os.environ.setdefault("CROUPIER_TASK_USER", "root")
    os.environ.setdefault("CROUPIER_TASK_USERS", "*,root")
