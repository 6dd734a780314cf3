"""A network of hosts on one machine: a network namespace for each, and a switch between them.

Rule: every packet from one host to another passes the switch, which this process runs. A fault is a
rule of the switch, so it holds for each packet in its direction, on connections that exist and on
new ones, and no host is told about it.

Each host has a TUN device whose other end is here. No program configures them, and no kernel module
beside tun is needed.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import random
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFMTU = 0x8914, 0x8916, 0x891C, 0x8922
IFF_UP_RUNNING = 0x41
IFF_TUN_NO_PI = 0x1001
MTU = 9000
PREFIX = "10.77.0."
# Packets of one host that are passed on before others have their turn.
TURN = 64


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to packets from `sources` to `targets`.

    Attributes:
        loss: the fraction that is dropped; 1 cuts this direction.
        delay_s: the longest delay; each packet waits between half of it and all of it.
    """

    sources: frozenset[str]
    targets: frozenset[str]
    loss: float = 1.0
    delay_s: float = 0.0

    def holds(self, source: str, target: str) -> bool:
        """Return whether the rule is about this direction."""
        return source in self.sources and target in self.targets


@dataclass(frozen=True, slots=True)
class Host:
    """One host: its name, its address, its namespace and its end of the switch."""

    name: str
    address: str
    namespace: int
    device: int

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` on this host, with the pid of `argv`."""
        return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self.namespace}", "--", *argv]


class HostNetwork:
    """All hosts and the switch, from `start` to `stop`.

    Attributes:
        hosts: by name.
        rules: what is wrong at present.
    """

    def __init__(self, rng: random.Random) -> None:
        """Have no hosts; `rng` decides which packets are lost."""
        self._rng = rng
        self._by_address: dict[bytes, Host] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.hosts: dict[str, Host] = {}
        self.rules: list[Rule] = []
        # This process is the first host, in the namespace that `enter` has made.
        self._add("checker", lambda _work: None)

    def host(self, name: str) -> Host:
        """Return the host of that name, in a namespace of its own; make it the first time."""
        return self.hosts.get(name) or self._add(
            name, lambda libc: _checked(libc.unshare(CLONE_NEWNET), "unshare")
        )

    def start(self) -> None:
        """Pass packets on; needs a running loop."""
        self._loop = asyncio.get_running_loop()
        for host in self.hosts.values():
            self._loop.add_reader(host.device, self._pass_on, host, self._loop)

    def stop(self) -> None:
        """Close the devices and forget the namespaces."""
        for host in self.hosts.values():
            if self._loop is not None:
                self._loop.remove_reader(host.device)
            os.close(host.device)
            os.close(host.namespace)

    def _add(self, name: str, enter: Callable[[ctypes.CDLL], None]) -> Host:
        address = f"{PREFIX}{len(self.hosts) + 1}"
        made: list[Host] = []
        failed: list[OSError] = []

        def make() -> None:
            # A namespace is a property of a thread. It lives on with the descriptor.
            try:
                enter(ctypes.CDLL(None, use_errno=True))
                device = _device(address)
                namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                made.append(Host(name, address, namespace, device))
            except OSError as error:
                failed.append(error)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        self.hosts[name] = self._by_address[socket.inet_aton(address)] = made[0]
        return made[0]

    def _pass_on(self, source: Host, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(TURN):
            try:
                packet = os.read(source.device, MTU + 4)
            except BlockingIOError:
                return
            target = self._by_address.get(packet[16:20])
            if target is None or packet[0] >> 4 != 4:
                continue  # IPv6 asks for routers
            delay_s = 0.0
            for rule in self.rules:
                if rule.holds(source.name, target.name):
                    if self._rng.random() < rule.loss:
                        break
                    delay_s += rule.delay_s * self._rng.uniform(0.5, 1)
            else:
                if delay_s:
                    loop.call_later(delay_s, _deliver, target, packet)
                else:
                    _deliver(target, packet)


def _deliver(target: Host, packet: bytes) -> None:
    try:
        os.write(target.device, packet)
    except OSError:
        return  # a full queue, or the end of the run: networks lose packets


def why_not() -> str:
    """Return why this machine cannot have such a network; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there is no /dev/net/tun"
    # In a process of its own: a namespace that is entered cannot be left.
    pid = os.fork()
    if pid == 0:
        try:
            _checked(ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET), "unshare")
            _device(f"{PREFIX}1")
        except OSError:
            os._exit(1)
        os._exit(0)
    return "namespaces are not permitted" if os.waitpid(pid, 0)[1] else ""


def enter() -> None:
    """Move this process, before it has any other thread, into a network namespace of its own."""
    _checked(ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET), "unshare")


def _device(address: str) -> int:
    """Make the TUN device of the present namespace; return the switch's end of it."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"net0", IFF_TUN_NO_PI))
        for number, argument in (
            (SIOCSIFADDR, _internet(address)),
            (SIOCSIFNETMASK, _internet("255.255.255.0")),
            (SIOCSIFMTU, struct.pack("i20x", MTU)),
            (SIOCSIFFLAGS, struct.pack("H22x", IFF_UP_RUNNING)),
        ):
            fcntl.ioctl(asked, number, b"net0".ljust(16, b"\0") + argument)
        up = b"lo".ljust(16, b"\0") + struct.pack("H22x", IFF_UP_RUNNING)
        fcntl.ioctl(asked, SIOCSIFFLAGS, up)
    return device


def _internet(address: str) -> bytes:
    return struct.pack("HH4s16x", socket.AF_INET, 0, socket.inet_aton(address))


def _checked(result: int, call: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")
