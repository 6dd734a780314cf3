"""A real etcd on loopback, of one or several members, which tests can kill and freeze.

Its processes are ended by their ids when `running_etcd` is left.
"""

from __future__ import annotations

import base64
import json
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from croupier.master.etcd.target import EtcdAccess, EtcdTarget
from croupier.net.address import Address
from croupier.net.transport import free_addresses
from tests.harness.certificates import HOUR, Authority, PemFiles
from tests.harness.debian import program

READY_S = 60.0
ROOT_PASSWORD = "root's"
USER, PASSWORD = "croupier", "croupier's"


@dataclass(frozen=True)
class Certificates:
    """Certificates of etcd's members and of its clients."""

    server: PemFiles
    client: PemFiles


@dataclass
class Member:
    """A member of an etcd, and its process while it runs."""

    name: str
    client: Address
    peer: Address
    directory: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)


class Etcd:
    """An etcd for fault injection.

    Attributes:
        members: in the order of the clients' addresses.
    """

    def __init__(
        self,
        directory: Path,
        members: int,
        certificates: Certificates | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        """Prepare the members; `start` runs them. Data is below `directory`; `flags` are etcd's."""
        self.certificates, self._flags = certificates, flags
        addresses = free_addresses(2 * members)
        self.members = [
            Member(f"m{number}", client, peer, directory / f"m{number}")
            for number, (client, peer) in enumerate(
                zip(addresses[:members], addresses[members:], strict=True)
            )
        ]

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Return the addresses of the members for clients."""
        return tuple(member.client for member in self.members)

    def target(self, prefix: str = "croupier") -> EtcdTarget:
        """Return the value of `--store` for this etcd."""
        return EtcdTarget(self.addresses, prefix)

    def access(self, user: str = "", password: str = "") -> EtcdAccess:
        """Return the credentials of a client."""
        if self.certificates is None:
            return EtcdAccess(user=user, password=password)
        files = self.certificates.client
        ca, cert, key = (path.read_bytes() for path in (files.ca, files.cert, files.key))
        return EtcdAccess(ca, cert, key, user, password)

    def start(self) -> None:
        """Start all members, and wait until they have a leader."""
        for number in range(len(self.members)):
            self.launch(number)
        self.wait_ready()

    def launch(self, number: int) -> None:
        """Start a member, with its data if it ran before."""
        member = self.members[number]
        assert member.process is None
        scheme = "https" if self.certificates else "http"
        peers = ",".join(f"{each.name}=http://{each.peer}" for each in self.members)
        command = [
            str(program("etcd", "etcd-server")),
            f"--name={member.name}",
            f"--data-dir={member.directory}",
            f"--listen-client-urls={scheme}://{member.client}",
            f"--advertise-client-urls={scheme}://{member.client}",
            f"--listen-peer-urls=http://{member.peer}",
            f"--initial-advertise-peer-urls=http://{member.peer}",
            f"--initial-cluster={peers}",
            "--logger=zap",
            "--log-level=warn",
            *self._flags,
        ]
        if self.certificates is not None:
            files = self.certificates.server
            command += [
                f"--cert-file={files.cert}",
                f"--key-file={files.key}",
                f"--trusted-ca-file={files.ca}",
                "--client-cert-auth",
            ]
        member.directory.parent.mkdir(parents=True, exist_ok=True)
        with member.directory.with_suffix(".log").open("ab") as log:
            member.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def kill(self, *numbers: int) -> None:
        """Kill members with SIGKILL."""
        for number in numbers:
            process = self.members[number].process
            assert process is not None
            process.kill()
            process.wait(timeout=10)
            self.members[number].process = None

    def freeze(self, *numbers: int) -> None:
        """Stop members; their connections stay open."""
        for number in numbers:
            self._signal(number, signal.SIGSTOP)

    def thaw(self, *numbers: int) -> None:
        """Continue frozen members."""
        for number in numbers:
            self._signal(number, signal.SIGCONT)

    def stop(self) -> None:
        """End all members."""
        running = [number for number, each in enumerate(self.members) if each.process is not None]
        for number in running:
            # SIGKILL ends frozen members too.
            self.kill(number)

    def wait_ready(self, *numbers: int) -> None:
        """Wait until these members, by default all that run, read and write.

        Raises:
            AssertionError: if it does not within 20 s; holds the end of its log.
        """
        deadline = time.monotonic() + READY_S
        while True:
            asked = [self.members[number] for number in numbers] or self.members
            running = [member for member in asked if member.process is not None]
            if all(self._is_healthy(member) for member in running):
                return
            if time.monotonic() > deadline:
                log = running[0].directory.with_suffix(".log").read_text()
                raise AssertionError(f"etcd is not ready:\n{log[-2000:]}")
            time.sleep(0.05)

    def leader(self) -> int:
        """Return the number of the raft leader."""
        answers = [
            json.loads(self._ask(member, "/v3/maintenance/status", {})) for member in self.members
        ]
        own = [answer["header"]["member_id"] for answer in answers]
        return own.index(answers[0]["leader"])

    def compact(self) -> None:
        """Compact all revisions but the latest."""
        answer = json.loads(self._ask(self.members[0], "/v3/kv/range", {"key": "AA=="}))
        revision = answer["header"]["revision"]
        self._ask(self.members[0], "/v3/kv/compaction", {"revision": revision, "physical": True})

    def fill(self) -> None:
        """Write until etcd refuses, which needs a quota.

        Raises:
            AssertionError: if it never refuses.
        """
        put = {"key": _base64(b"ballast"), "value": _base64(b"-" * 200_000)}
        for _ in range(200):
            try:
                self._ask(self.members[0], "/v3/kv/put", put)
            except urllib.error.HTTPError:
                return
        raise AssertionError("etcd is never full")

    def make_room(self) -> None:
        """Free space as an operator does: compact, defragment and disarm the alarm."""
        self.compact()
        for member in self.members:
            self._ask(member, "/v3/maintenance/defragment", {})
        raised = json.loads(self._ask(self.members[0], "/v3/maintenance/alarm", {}))
        for alarm in raised.get("alarms", []):
            disarm = {"action": "DEACTIVATE", **alarm}
            self._ask(self.members[0], "/v3/maintenance/alarm", disarm)

    def enable_users(self, prefix: str) -> None:
        """Enable authentication, with root and with `USER` for the keys below `prefix`."""
        first = self.members[0]
        start, end = f"/{prefix}/".encode(), f"/{prefix}0".encode()
        permission = {"permType": "READWRITE", "key": _base64(start), "range_end": _base64(end)}
        for path, question in (
            ("user/add", {"name": "root", "password": ROOT_PASSWORD}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": USER, "password": PASSWORD}),
            ("role/add", {"name": "masters"}),
            ("role/grant", {"name": "masters", "perm": permission}),
            ("user/grant", {"user": USER, "role": "masters"}),
            ("enable", {}),
        ):
            self._ask(first, f"/v3/auth/{path}", question)

    def _signal(self, number: int, which: signal.Signals) -> None:
        process = self.members[number].process
        assert process is not None
        process.send_signal(which)

    def _is_healthy(self, member: Member) -> bool:
        assert member.process is not None
        assert member.process.poll() is None, member.directory.with_suffix(".log").read_text()
        try:
            return bool(json.loads(self._ask(member, "/health"))["health"] == "true")
        except (OSError, ValueError, KeyError):
            return False

    def _ask(self, member: Member, path: str, question: object = None) -> bytes:
        """Return the answer of etcd's HTTP interface."""
        scheme, context = "http", None
        if self.certificates is not None:
            files = self.certificates.client
            scheme, context = "https", ssl.create_default_context(cafile=files.ca)
            context.load_cert_chain(files.cert, files.key)
        data = None if question is None else json.dumps(question).encode()
        request = urllib.request.Request(f"{scheme}://{member.client}{path}", data=data)
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return bytes(answer.read())


@contextmanager
def running_etcd(
    directory: Path,
    members: int = 1,
    certificates: Certificates | None = None,
    flags: Sequence[str] = (),
) -> Iterator[Etcd]:
    """Run an etcd until the block is left."""
    etcd = Etcd(directory, members, certificates, flags)
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.stop()


def make_certificates(directory: Path, authority: Authority | None = None) -> Certificates:
    """Make certificates for loopback, by a new authority if none is given."""
    authority = authority or Authority("etcd")
    return Certificates(
        authority.issue(directory / "server", "etcd/server", valid=valid_for(2)),
        authority.issue(directory / "client", "client/master", valid=valid_for(2)),
    )


def valid_for(days: int) -> tuple[timedelta, timedelta]:
    """Return when a certificate is valid, counted from now."""
    return -HOUR, timedelta(days=days)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
