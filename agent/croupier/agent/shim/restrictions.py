"""What the interpreted shim's child takes from itself before it becomes the task.

restrictions.h has a counterpart of each function here. This module is loaded with each task, so it
imports little.

Rule: options are read, files opened and rules made before the fork. A step that fails is named as
in the run file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FLAGS = ("no-new-privs", "boxed", "attached", "terminal")
SINGLE = ("run", "umask", "bounding", "user", "landlock", "seccomp", *FLAGS)
SEVERAL = ("group", "kill", "limit")
PATHS = ("run", "group", "kill", "seccomp")
MOST_FILES, MOST_LIMITS, MOST_RANGES = 32, 16, 1024
LAST_CAPABILITY = 63
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 23, 24, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
LANDLOCK_CREATE, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_PATH, LANDLOCK_PORT = 1, 2
INSTRUCTION, MAX_FILTER = 8, 4096
_NO_ID = 0xFFFFFFFF
_U64 = 2**64


class Failed(Exception):
    """The step of the start that failed, and the error number."""

    def __init__(self, step: str, number: int) -> None:
        super().__init__(step, number)
        self.step, self.number = step, number


class Options:
    """The options of the shim, checked.

    Attributes:
        landlock: the rights to files, ports and scopes.
        filter: the address of the filter of system calls; it is loaded by `prepare`.
        ruleset: a descriptor; -1: there is none.
    """

    def __init__(self, words: list[str]) -> None:
        """Read the options.

        Raises:
            ValueError: if one is unknown or malformed.
        """
        found: dict[str, list[str]] = {name: [] for name in (*SINGLE, *SEVERAL)}
        for word in words:
            name, equals, text = word.partition("=")
            if name not in found or bool(equals) is (name in FLAGS):
                raise ValueError(word)
            if name in PATHS and not text.startswith("/"):
                raise ValueError(word)
            found[name].append(text)
        if any(len(found[name]) > 1 for name in SINGLE):
            raise ValueError("an option is there twice")
        self.groups, self.kills = found["group"], found["kill"]
        if max(len(self.groups), len(self.kills)) > MOST_FILES:
            raise ValueError("too many files")
        self.limits = [_limit(text) for text in found["limit"]]
        if len(self.limits) > MOST_LIMITS:
            raise ValueError("too many limits")
        self.umask = [_number(text, 8, 0o1000) for text in found["umask"]]
        self.bounding = [_number(text, 16, _U64) for text in found["bounding"]]
        self.user = [_user(text) for text in found["user"]]
        self.no_new_privs = bool(found["no-new-privs"])
        self.is_boxed = bool(found["boxed"])
        self.is_attached = bool(found["attached"])
        self.has_terminal = bool(found["terminal"])
        self.seccomp = found["seccomp"]
        self.landlock: list[int] = []
        self.ports: list[range] = []
        for text in found["landlock"]:
            self.landlock, self.ports = _landlock(text)
        self.filter: ctypes.Array[ctypes.c_char] | None = None
        self.ruleset = -1


def _number(text: str, base: int, below: int) -> int:
    if not (text.isascii() and text.isalnum()) or not (number := int(text, base)) < below:
        raise ValueError(text)
    return number


def _limit(text: str) -> tuple[int, int, int]:
    number, soft, hard = text.split(":")
    limit = _number(number, 10, 16), _number(soft, 10, _U64), _number(hard, 10, _U64)
    if limit[1] > limit[2]:
        raise ValueError(text)
    return limit


def _user(text: str) -> tuple[int, int, list[int]]:
    """Read UID:GID[:[GROUP,GROUP...]]."""
    uid, gid, *groups = text.split(":", 2)
    further = groups[0].split(",") if groups and groups[0] else []
    return (
        _number(uid, 10, _NO_ID),
        _number(gid, 10, _NO_ID),
        [_number(group, 10, _NO_ID) for group in further],
    )


def _landlock(text: str) -> tuple[list[int], list[range]]:
    """Read FILES:PORTS:SCOPES[:FIRST-LAST,FIRST-LAST...]."""
    *rights, ports = (text + ":" * (text.count(":") < 3)).split(":")
    if len(rights) != 3:
        raise ValueError(text)
    ranges = []
    for pair in ports.split(",") if ports else []:
        first, last = (_number(port, 10, 65536) for port in pair.split("-"))
        ranges.append(range(first, last + 1))
        if first > last:
            raise ValueError(text)
    if len(ranges) > MOST_RANGES:
        raise ValueError(text)
    return [_number(right, 16, _U64) for right in rights], ranges


def _call(step: str, function: Callable[..., int], *arguments: object) -> int:
    """Call a function of the C library.

    Raises:
        Failed: if it answers with an error.
    """
    result = function(*arguments)
    if result < 0:
        raise Failed(step, ctypes.get_errno() or errno.EINVAL)
    return result


def libc() -> ctypes.CDLL:
    """Return the C library, whose errors `_call` sees."""
    return ctypes.CDLL(None, use_errno=True)


def prctl(option: int, *arguments: int) -> int:
    """Call prctl, which Python does not offer; return its answer."""
    padded = [ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0, 0)[:4]]
    result: int = libc().prctl(option, *padded)
    return result


def _syscall(step: str, number: int, *arguments: object) -> int:
    padded = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return _call(step, libc().syscall, ctypes.c_long(number), *padded)


def write_word(path: str, word: bytes) -> None:
    """Write a word to a file of a control group.

    Raises:
        OSError: if that fails.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, word)
    finally:
        os.close(fd)


def kill_groups(options: Options) -> None:
    """Kill all processes in the task's control groups, even those that fork at this moment."""
    for path in options.kills:
        try:
            write_word(path, b"1")
        except OSError:
            continue


def prepare(options: Options) -> None:
    """Open and make all that the child needs.

    Raises:
        Failed: if that fails.
    """
    # In a box, bubblewrap installs the filter.
    for path in () if options.is_boxed else options.seccomp:
        _load_filter(options, path)
    if options.landlock:
        _make_landlock_rules(options)


def _load_filter(options: Options, path: str) -> None:
    step = "isolation:seccomp"
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - spares the import
            content = file.read(MAX_FILTER * INSTRUCTION)
    except OSError as error:
        raise Failed(step, error.errno or errno.EINVAL) from None
    if not content or len(content) % INSTRUCTION:
        raise Failed(step, errno.EINVAL)
    options.filter = ctypes.create_string_buffer(content, len(content))


def _make_landlock_rules(options: Options) -> None:
    """Make the rules: all files may be used, and the given ports."""
    step = "isolation:landlock"
    rights = (ctypes.c_uint64 * 3)(*options.landlock)
    options.ruleset = _syscall(step, LANDLOCK_CREATE, rights, ctypes.sizeof(rights), 0)
    files, ports, _ = options.landlock
    if files:
        root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        # Packed: 64 bits of rights, 32 of the descriptor.
        rule = (ctypes.c_uint32 * 3)(files & 0xFFFFFFFF, files >> 32, root)
        _syscall(step, LANDLOCK_ADD_RULE, options.ruleset, LANDLOCK_PATH, rule, 0)
        os.close(root)
    if ports:
        for port in (port for ports_ in options.ports for port in ports_):
            dealt = (ctypes.c_uint64 * 2)(ports, port)
            _syscall(step, LANDLOCK_ADD_RULE, options.ruleset, LANDLOCK_PORT, dealt, 0)


def _set_limit(number: int, soft: int, hard: int) -> None:
    present = resource.getrlimit(number)[1]
    most = min(hard, _unsigned(present))
    resource.setrlimit(number, (_signed(min(soft, most)), _signed(most)))


def _unsigned(limit: int) -> int:
    return limit if limit >= 0 else limit + _U64


def _signed(limit: int) -> int:
    return limit if limit < _U64 // 2 else limit - _U64


def restrict_early(options: Options) -> None:
    """Restrict the child while it has the rights of the agent.

    Raises:
        Failed: if a step fails.
    """
    step = "isolation:group"
    try:
        for path in options.groups:
            write_word(path, b"0")
        step = "isolation:limit"
        for limit in options.limits:
            _set_limit(*limit)
        for umask in options.umask:
            os.umask(umask)
        for kept in options.bounding:
            _drop_capabilities(kept)
        step = "user"
        for uid, gid, groups in options.user:
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
    except (OSError, ValueError) as error:
        raise Failed(step, getattr(error, "errno", None) or errno.EINVAL) from None


def _drop_capabilities(kept: int) -> None:
    """Empty the ambient set, and the bounding set but for `kept`."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    for number in range(LAST_CAPABILITY + 1):
        if not kept >> number & 1 and prctl(PR_CAPBSET_READ, number) == 1:
            _call("isolation:bounding", prctl, PR_CAPBSET_DROP, number)


def restrict_late(options: Options) -> None:
    """Restrict the child further; what follows is restricted too.

    Raises:
        Failed: if a step fails.
    """
    if options.no_new_privs:
        _call("isolation:no-new-privs", prctl, PR_SET_NO_NEW_PRIVS, 1)
    if options.ruleset >= 0:
        _syscall("isolation:landlock", LANDLOCK_RESTRICT, options.ruleset, 0)
    if options.filter is not None:
        instructions = ctypes.addressof(options.filter)
        length = len(options.filter) // INSTRUCTION
        # A 16-bit length and, after padding, the address.
        program = (ctypes.c_uint64 * 2)()
        ctypes.cast(program, ctypes.POINTER(ctypes.c_uint16))[0] = length
        program[1] = instructions
        address = ctypes.addressof(program)
        _call("isolation:seccomp", prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, address)


def usage() -> str:
    """Return the line on what all processes used that this one and their parents waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_ms = int((used.ru_utime + used.ru_stime) * 1000)
    return f"usage {cpu_ms} {used.ru_maxrss} {used.ru_inblock // 2} {used.ru_oublock // 2}\n"
