"""Links to the output, usage and files of tasks, which a master signs and an agent verifies.

Rule: a link permits to read one path on one agent, for about a minute. The key of an
agent is derived from the secret of the cluster; masters send it in REGISTERED, and agents do not
store it. Anyone who holds a link may use it, so it is a credential: nothing logs it.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final
from urllib.parse import quote

from croupier.model.errors import PermissionDenied
from croupier.model.ids import AgentId, FrameworkId, TaskId

# Seconds for which a link is valid.
VALID_S: Final = 60
# Seconds by which the clocks of a master and an agent may differ.
SKEW_S: Final = 30
KEY_BYTES: Final = 32
MAX_SECONDS_DIGITS: Final = 12


def derive_key(secret: str, agent_id: AgentId) -> bytes:
    """Return the key of an agent's links, from the secret of the cluster."""
    return hmac.digest(secret.encode(), f"output-link/{agent_id}".encode(), hashlib.sha256)


def output_path(framework_id: FrameworkId, task_id: TaskId, stream: str) -> str:
    """Return the path of a task's output on its agent, not encoded. Ids hold no slashes."""
    return f"/output/{framework_id}/{task_id}/{stream}"


def usage_path(framework_id: FrameworkId, task_id: TaskId) -> str:
    """Return the path of a task's usage on its agent, not encoded."""
    return f"/usage/{framework_id}/{task_id}"


def files_path(framework_id: FrameworkId, task_id: TaskId) -> str:
    """Return the path of a task's files on its agent, not encoded; a query names the file."""
    return f"/files/{framework_id}/{task_id}"


def sign(key: bytes, path: str, expires: int) -> str:
    """Return the signature of a link to read `path` until `expires`, in Unix seconds."""
    return hmac.digest(key, f"GET\n{path}\n{expires}".encode(), hashlib.sha256).hex()


def signed_link(key: bytes, path: str, expires: int) -> str:
    """Return the encoded path with a query that permits to read it until `expires`."""
    return f"{quote(path)}?expires={expires}&signature={sign(key, path, expires)}"


def check_link(key: bytes, path: str, expires: str, signature: str, now_s: float) -> None:
    """Raise PermissionDenied unless `key` signed the link, and it is valid now, at `now_s`."""
    is_number = expires.isascii() and expires.isdigit() and len(expires) <= MAX_SECONDS_DIGITS
    seconds = int(expires) if is_number else 0
    expected = sign(key, path, seconds).encode()
    if not hmac.compare_digest(expected, signature.encode(errors="replace")) or not is_number:
        raise PermissionDenied("the signature of the link is wrong; ask the master for a new link")
    if now_s > seconds + SKEW_S:
        raise PermissionDenied(
            f"the link expired {now_s - seconds:.0f} s ago by the clock of this agent; ask the"
            " master for a new link"
        )
    if seconds > now_s + VALID_S + SKEW_S:
        raise PermissionDenied(
            f"the link expires in {seconds - now_s:.0f} s by the clock of this agent, although it"
            f" is valid for {VALID_S} s: the clocks of this agent and of the master differ"
        )
