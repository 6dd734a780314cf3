"""The shim for machines without a C compiler: the same protocol, slower and larger.

    python -S -E -I fallback.py DIRECTORY [OPTION...] -- PROGRAM [ARGUMENT...]

shim.c describes the protocol, and has a counterpart of each function here. This program starts
with each task, so it imports little.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from select import poll

# The interpreter starts without any directory but those of the standard library.
sys.path.append(__file__.rsplit("/", 4)[0])
from croupier.agent.shim.box import (
    CHANNEL,
    FIRST_INSIDE,
    INSIDE,
    STEP,
    await_start,
    find_signal,
    hand_over,
    tell,
)
from croupier.agent.shim.restrictions import (
    Failed,
    Options,
    kill_groups,
    prctl,
    prepare,
    restrict_early,
    restrict_late,
    usage,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PROTOCOL = "croupier-shim 2"
PREFIX = b"T."
RUN_FILE, PIPE, FIRST_UNKNOWN = 3, 4, 5
SHIM_LINE, TASK_LINE, END_LINE, USAGE_LINE = 64, 128, 192, 256
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
OOM_SCORE_ADJ = 500
SWEEP_S = 10.0
_AWAITED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1}


def attempt(call: Callable[..., object], *arguments: object) -> None:
    """Make a system call and ignore its failure."""
    try:
        call(*arguments)
    except OSError:
        return


def write_line(at: int, text: str) -> None:
    """Write one line of the run file."""
    attempt(os.pwrite, RUN_FILE, text.encode(), at)


def report(text: str) -> None:
    """Send a line to the agent, if it still lives."""
    attempt(os.write, PIPE, f"{os.getpid()} {text}".encode())


def stat_field(pid: int, number: int) -> int:
    """Return a field of /proc/PID/stat, numbered as in proc(5); 0 if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - spares the import
            return int(file.read().rpartition(b")")[2].split()[number - 3])
    except (OSError, IndexError):
        return 0


def read_options(words: list[str]) -> tuple[Options, list[str]] | None:
    """Return the options and the task's words after them; None if one is wrong."""
    if "--" not in words[:-1]:
        return None
    end = words.index("--")
    try:
        return Options(words[:end]), words[end + 1 :]
    except ValueError:
        return None


def execute(argv: list[bytes], environment: dict[bytes, bytes]) -> int:
    """Execute the program; return the error number if that fails."""
    program = argv[0]
    directories = [b""]
    if b"/" not in program:
        directories = environment.get(b"PATH", b"/bin:/usr/bin").split(b":")
    first = 0
    for directory in directories:
        path = directory + b"/" + program if directory else program
        try:
            os.execve(path, argv, environment)  # noqa: S606 - no shell is wanted
        except OSError as error:
            if b"/" in program:
                return error.errno or errno.EINVAL
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                first = first or error.errno or errno.EINVAL
    return first or errno.ENOENT


def raise_oom_score() -> tuple[int, bytes] | None:
    """Make the kernel kill the task before the agent when memory is short.

    The child inherits the score. Return the open file and the score before; None: it stays.
    """
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    before = os.read(fd, 16)
    if int(before or b"0") < OOM_SCORE_ADJ:
        attempt(os.pwrite, fd, b"%d" % OOM_SCORE_ADJ, 0)
    return fd, before


def become(
    shim: int,
    directory: str,
    options: Options,
    argv: list[bytes],
    environment: dict[bytes, bytes],
    channel: int,
) -> Failed:
    """Become the task, or bubblewrap; return why that failed (in the child)."""
    os.setsid()
    if options.has_terminal:
        failed = take_terminal()
        if failed is not None:
            return failed
    try:
        os.chdir(directory)
    except OSError as error:
        return Failed("sandbox", error.errno or errno.EINVAL)
    try:
        restrict_early(options)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shim:
            os._exit(1)
        restrict_late(options)
        if options.is_boxed:
            hand_over(options, channel)
    except Failed as failed:
        return failed
    if options.is_boxed:
        # Prefixed again: the variables have no effect on bubblewrap.
        return Failed(STEP, execute(argv, {PREFIX + n: v for n, v in environment.items()}))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return Failed("exec", execute(argv, environment))


def take_terminal() -> Failed | None:
    """Make the input the controlling terminal; return why that failed (in the child)."""
    import fcntl
    import termios

    try:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    except OSError as error:
        return Failed("isolation:terminal", error.errno or errno.EINVAL)
    return None


def attach() -> None:
    """End what is started now with the agent."""
    prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)
    if is_agent_gone():
        # It ended before. The signal waits until there is something to kill.
        os.kill(os.getpid(), signal.SIGUSR1)


def release_streams(null: int) -> None:
    """Leave the streams to the program: they end with the last process that has them."""
    for fd in range(3):
        os.dup2(null, fd)


def start(directory: str, options: Options, words: list[str], channel: int = -1) -> int:
    """Start the task, or bubblewrap with the channel; return its pid.

    Raises:
        Failed: if it cannot be started.
    """
    score = raise_oom_score()
    prctl(PR_SET_DUMPABLE, 0)
    try:
        prepare(options)
        return fork(directory, options, words, channel)
    finally:
        if options.ruleset >= 0:
            os.close(options.ruleset)
        if score is not None:
            attempt(os.pwrite, score[0], score[1], 0)
            os.close(score[0])


def fork(directory: str, options: Options, words: list[str], channel: int) -> int:
    """Start the task in a child; return its pid.

    Raises:
        Failed: if it cannot be started.
    """
    argv = [os.fsencode(word) for word in words]
    # Only prefixed variables are the task's: Python may have added one for its locale.
    environment = {
        name.removeprefix(PREFIX): value
        for name, value in os.environb.items()
        if name.startswith(PREFIX)
    }
    shim = os.getpid()
    reading, writing = os.pipe()
    try:
        task = os.fork()
    except OSError as error:
        raise Failed("exec", error.errno or errno.EAGAIN) from None
    if task == 0:
        try:
            failed = become(shim, directory, options, argv, environment, channel)
            os.write(writing, f"{failed.step} {failed.number}".encode())
        finally:
            os._exit(1)
    os.close(writing)
    # The exec of the program closes the writing end.
    failure = os.read(reading, 64).decode()
    os.close(reading)
    if failure:
        step, number = failure.split()
        raise Failed(step, int(number))
    return task


def find_children() -> list[int]:
    """Return the pids of this process's children."""
    try:
        with open("/proc/thread-self/children", "rb") as file:  # noqa: PTH123 - as above
            return [int(pid) for pid in file.read().split()]
    except OSError:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        return [pid for pid in pids if stat_field(pid, 4) == os.getpid()]


def end_children(spared: int) -> int:
    """Kill every child but `spared` and reap those that have ended; return how many.

    A child may end after the scan. This process then gets its children, which the scan missed.
    """
    ended = 0
    for pid in find_children():
        if pid == spared:
            continue
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                os.kill(pid, signal.SIGKILL)
            ended += 1
        except OSError:
            # The shim may not kill a process of another user, as after sudo.
            continue
    return ended


def end_group(task: int, number: int) -> None:
    """Signal the task's process group."""
    attempt(os.killpg, task, number)


def sweep(task: int, options: Options) -> None:
    """Kill all that descends from the task, whose first process has ended and is not reaped."""
    deadline = time.monotonic() + SWEEP_S
    end_group(task, signal.SIGKILL)
    kill_groups(options)
    while end_children(task) and time.monotonic() < deadline:
        signal.sigtimedwait({signal.SIGCHLD}, 0.002)


def wait_for_end(task: int, options: Options) -> str:
    """Wait for the end of the first process; return how it ended. Reap orphans, but not it."""
    while True:
        while end := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if end.si_pid == task:
                kind = "exit" if end.si_code == os.CLD_EXITED else "signal"
                return f"{kind} {end.si_status}\n"
            os.waitpid(end.si_pid, 0)
        number = signal.sigwait(_AWAITED)
        if number == signal.SIGTERM:
            end_group(task, signal.SIGTERM)
        elif number == signal.SIGUSR1:
            end_group(task, signal.SIGKILL)
            kill_groups(options)
            end_children(task)


def start_box(directory: str, options: Options, words: list[str]) -> tuple[int, int]:
    """Start bubblewrap, and the task in it; return its pid and the channel.

    Raises:
        Failed: if that fails; nothing is left then.
    """
    reading, writing = os.pipe()
    try:
        box = start(directory, options, words, writing)
    finally:
        os.close(writing)
    try:
        await_start(reading, box)
    except Failed:
        sweep(box, options)
        os.waitpid(box, 0)
        raise
    return box, reading


def be_inside(directory: str, options: Options, words: list[str]) -> int:
    """Supervise the task as process 1 of the box; return the exit code of the box."""
    os.set_inheritable(CHANNEL, False)
    os.closerange(FIRST_INSIDE, 65536)
    try:
        task = start(directory, options, words)
    except Failed as failed:
        tell(f"error {failed.step} {failed.number}\n")
        return 1
    tell("task\n")
    end = wait_for_end(task, options)
    kind, _, number = end.partition(" ")
    if kind == "exit":
        return int(number)
    tell(end)
    return 128 + int(number)


def is_agent_gone() -> bool:
    """Return whether the agent has closed the pipe."""
    pipe = poll()
    pipe.register(PIPE, 0)
    return bool(pipe.poll(0))


def main() -> int:
    """Supervise one task."""
    is_inside = sys.argv[1:2] == [INSIDE]
    told = read_options(sys.argv[2 + is_inside :])
    if told is None:
        print(PROTOCOL)
        return 0 if len(sys.argv) == 1 else 2
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    # Python ignores these, and a program inherits that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    if is_inside:
        return be_inside(sys.argv[2], *told)
    os.set_inheritable(RUN_FILE, False)
    os.set_inheritable(PIPE, False)
    os.closerange(FIRST_UNKNOWN, 65536)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    own = os.getpid()
    write_line(SHIM_LINE, f"shim {own} {stat_field(own, 22)}\n")
    supervise(sys.argv[1], *told)
    return 0


def supervise(directory: str, options: Options, words: list[str]) -> None:
    """Start the task, and record how it ends."""
    channel = null = -1
    if options.is_attached:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        attach()
    try:
        if options.is_boxed:
            task, channel = start_box(directory, options, words)
        else:
            task = start(directory, options, words)
    except Failed as failed:
        line = f"error {failed.step} {failed.number}\n"
        write_line(TASK_LINE, line)
        report(line)
        return
    if options.is_attached:
        release_streams(null)
    line = f"task {task} {stat_field(task, 22)}\n"
    write_line(TASK_LINE, line)
    report(line)
    end = wait_for_end(task, options)
    sweep(task, options)
    os.waitpid(task, 0)
    if channel >= 0:
        end = find_signal(channel, end)
    write_line(USAGE_LINE, usage())
    write_line(END_LINE, end)
    if is_agent_gone():
        attempt(os.fdatasync, RUN_FILE)


if __name__ == "__main__":
    sys.exit(main())
