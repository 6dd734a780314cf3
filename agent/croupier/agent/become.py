"""Runs a task as somebody else; the agent, as root, starts tasks with a `user` through this.

    python -I -S become.py USER -- COMMAND...

It comes after exec rather than before it: to change the account between fork and exec
takes a real fork, which is slow and crashes beside gRPC. The environment that the
framework asked for travels under a prefix, so that nothing in it, such as LD_PRELOAD, has
an effect while this is still root.
"""

from __future__ import annotations

import os
import pwd
import sys

# `execvpe` imports this, and the account may not be able to read the library by then.
import warnings  # noqa: F401

PREFIX = "CROUPIER_TASK_ENV."
_NOT_FOUND = 127
_NOT_RUN = 126


def main() -> int:
    """Become USER and turn into COMMAND; what is returned says why that failed."""
    user, command = sys.argv[1], sys.argv[3:]
    try:
        account = pwd.getpwnam(user)
        os.initgroups(account.pw_name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    except (KeyError, OSError) as error:
        print(f"cannot run as {user}: {error}", file=sys.stderr)
        return _NOT_RUN
    environment = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}
    environment |= {
        k.removeprefix(PREFIX): v for k, v in os.environ.items() if k.startswith(PREFIX)
    }
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - no shell is wanted
    except FileNotFoundError as error:
        print(f"cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND
    except OSError as error:
        print(f"cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return _NOT_RUN


if __name__ == "__main__":
    sys.exit(main())
