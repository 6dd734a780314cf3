"""Which failed launches are blamed on the agent: only those that no task can cause at will."""

from __future__ import annotations

import errno

import pytest

from croupier.agent.shim.launch_errors import cause_on_agent
from croupier.agent.shim.run_file import StartError


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.EIO])
def test_a_bad_program_is_not_blamed_on_the_agent(number: int) -> None:
    # EIO: a program that was cut off before the name of its interpreter.
    assert cause_on_agent(StartError("exec", number)) == ""


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.ENFILE])
def test_a_machine_that_is_short_of_a_resource_is(number: int) -> None:
    assert cause_on_agent(StartError("exec", number))
    assert cause_on_agent(StartError("sandbox", errno.EIO))
    assert cause_on_agent(StartError("isolation", errno.EPERM))
