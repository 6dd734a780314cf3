"""Certificates of every daemon, renewed while they run.

Rule: a daemon's files change all at once, as with a link that Kubernetes turns to another folder.
An authority is replaced in three steps: all trust both, all have certificates of the new one, the
old one is forgotten. etcd rereads certificates but not authorities, so it has one of its own.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path

from croupier.net.credentials import ClientSecurity
from tests.harness.certificates import Authority, PemFiles

CLUSTER = "chaos"
# Wall clocks jump by an hour and more.
VALID = (timedelta(days=-2), timedelta(days=2))
OPERATOR = "operator"


class ClusterCertificates:
    """The authorities of a cluster and the certificates of its daemons.

    Attributes:
        version: counts renewals.
    """

    def __init__(self, folder: Path) -> None:
        """Write below `folder`."""
        self._folder = folder
        self.version = 0
        self._numbers = count(1)
        self._etcd = Authority("", VALID)
        # Authorities that all trust, and the one that signs.
        self._trusted = [Authority(CLUSTER, VALID)]
        self._signer = self._trusted[0]
        # Names of principals by daemon; members of etcd have none.
        self._roles: dict[str, str] = {}
        self.add(OPERATOR, "client/admin")

    def add(self, name: str, role: str) -> None:
        """Make the certificates of a daemon, for the principal `role`; empty for etcd's own."""
        self._roles[name] = role
        self._write(name)

    def files(self, name: str) -> PemFiles:
        """Return the files of a daemon."""
        return _files(self._folder / name)

    def flags(self, name: str) -> list[str]:
        """Return the flags of a master or an agent."""
        files = self.files(name)
        return [f"--tls-ca={files.ca}", f"--tls-cert={files.cert}", f"--tls-key={files.key}"]

    def environment(self, name: str) -> dict[str, str]:
        """Return the variables of a framework."""
        files = self.files(name)
        paths = {"CA": files.ca, "CERT": files.cert, "KEY": files.key}
        return {f"CROUPIER_TLS_{key}": str(path) for key, path in paths.items()}

    def for_etcd(self, name: str) -> Sequence[str]:
        """Return a master's flags for etcd."""
        files = _files(self._folder / name / "etcd")
        return [f"--etcd-ca={files.ca}", f"--etcd-cert={files.cert}", f"--etcd-key={files.key}"]

    def of_etcd(self, name: str) -> Sequence[str]:
        """Return the flags of a member of etcd."""
        files = _files(self._folder / name / "etcd")
        return [
            f"--{kind}={path}"
            for peer in ("", "peer-")
            for kind, path in (
                (f"{peer}cert-file", files.cert),
                (f"{peer}key-file", files.key),
                (f"{peer}trusted-ca-file", files.ca),
                (f"{peer}client-cert-auth", "true"),
            )
        ]

    def operator(self) -> ClientSecurity:
        """Return the credentials of the checker."""
        files = self.files(OPERATOR)
        return ClientSecurity(files.ca, files.cert, files.key)

    def https(self) -> ssl.SSLContext:
        """Return the checker's settings for HTTP."""
        files = self.files(OPERATOR)
        context = ssl.create_default_context(cafile=files.ca)
        context.load_cert_chain(files.cert, files.key)
        return context

    def renew(self) -> None:
        """Give every daemon a new certificate of the same authority."""
        for name in self._roles:
            self._write(name)
        self.version += 1

    def replace_authority(self) -> None:
        """Take the next step of replacing the authority."""
        if len(self._trusted) == 1:
            self._trusted.append(Authority(CLUSTER, VALID))
        elif self._signer is self._trusted[0]:
            self._signer = self._trusted[1]
        else:
            del self._trusted[0]
        self.renew()

    def _write(self, name: str) -> None:
        folder = self._folder / f"{name}.{next(self._numbers)}"
        if role := self._roles[name]:
            trusted = b"".join(each.pem for each in self._trusted)
            self._signer.issue(folder, role, valid=VALID, trusting=trusted)
        if not role or role.startswith("master/"):
            self._etcd.issue(folder / "etcd", f"etcd/{name}", valid=VALID)
        link = self._folder / f"{name}.new"
        link.symlink_to(folder.name)
        link.replace(self._folder / name)


def _files(folder: Path) -> PemFiles:
    return PemFiles(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
