"""Identity of a local cluster: so that only its user can use it, on a machine that others share.

The master has a certificate of an authority that is made for this start, so that no other program
on its port passes for it. Its callers have tokens: an administrator's for the user's commands and
frameworks, one by which agents join.

Rule: every start makes new secrets, in files of mode 0600. The user's programs find them by the
credentials file of the master's address, which is removed at the end.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from croupier.cli.flags import Target
from croupier.ctl.local.plan import HOST, SecurityFiles
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.token import BearerToken
from croupier.net.address import Address
from croupier.net.credential_search import credentials_file
from croupier.net.credentials import create_token_file, make_token, read_token_file
from croupier.net.trust_domain import master_dns_name
from croupier.process.durable_files import os_errors_as, replace_file

CLUSTER: Final = "local"
_DAYS: Final = 365
# The first line of a credentials file that this module may replace.
_MARK: Final = "# Written by croupier local, which removes it at its end.\n"


@dataclass(frozen=True, slots=True)
class LocalSecurity:
    """The secrets of one start, and the credentials file of the user."""

    files: SecurityFiles
    master: Address
    credentials: Path | None
    join_token: BearerToken

    @classmethod
    def make(
        cls, work_dir: Path, master: Address, environment: Mapping[str, str] = os.environ
    ) -> LocalSecurity:
        """Make a private directory within `work_dir`, for the files that `write_files` makes.

        Raises Conflict if the user has a credentials file of another origin for this address;
        InvalidRequest if it cannot be made, or another user has planted it.
        """
        credentials = credentials_file(master, environment)
        if credentials is not None and not _is_replaceable(credentials):
            raise Conflict(
                f"{credentials} has credentials for another cluster at {master}; remove it, or"
                " choose another --master-port"
            )
        private = work_dir / "local-secrets"
        with os_errors_as(InvalidRequest, f"cannot write {private}"):
            private.mkdir(mode=0o700, exist_ok=True)
            _check_own(private)
            private.chmod(0o700)
            for old in (*private.glob("*.token"), *private.glob("*.crt"), *private.glob("*.key")):
                old.unlink()
        own = f"master-{CLUSTER}"
        names = ("ca.crt", f"{own}.crt", f"{own}.key", "admin.token", "join.token")
        files = SecurityFiles(*(private / name for name in names))
        return cls(files, master, credentials, make_token())

    @property
    def target(self) -> Target:
        """The master, with the token of its administrator."""
        return Target(
            (self.master,),
            tls_ca=self.files.ca,
            tls_name=master_dns_name(CLUSTER),
            token_file=self.files.admin_token,
        )

    def write_files(self) -> None:
        """Make new secrets; raises InvalidRequest if a file cannot be written."""
        # Takes 0.1 s to import.
        from croupier.ctl.certificates.certificate import Leaf, utc_now
        from croupier.ctl.certificates.directory import AuthorityDirectory

        private = self.files.ca.parent
        with os_errors_as(InvalidRequest, f"cannot write {private}"):
            authority = AuthorityDirectory(private)
            authority.init(CLUSTER, _DAYS, utc_now(), force=False)
            leaf = Leaf("master", CLUSTER, (HOST, "localhost"))
            authority.issue(leaf, _DAYS, utc_now(), force=False)
            # Nothing else is ever signed.
            authority.key.unlink()
            create_token_file(self.files.admin_token, make_token())

    def let_join(self) -> None:
        """Write the join token once the master knows it; raises InvalidRequest if that fails."""
        path = self.files.join_token
        with os_errors_as(InvalidRequest, f"cannot write {path}"):
            create_token_file(path, self.join_token)

    def publish(self) -> Path | None:
        """Write the user's credentials file, and return its path; None if that is impossible."""
        if self.credentials is None:
            return None
        text = f'{_MARK}ca = "{self.files.ca}"\ntoken = "{self._admin_text()}"\n'
        try:
            self.credentials.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.credentials, text.encode())
        except OSError:
            return None
        return self.credentials

    def withdraw(self) -> None:
        """Remove the credentials file, unless a later cluster has replaced it."""
        if self.credentials is None:
            return
        try:
            if self._admin_text() in self.credentials.read_text():
                self.credentials.unlink()
        except (OSError, InvalidRequest):
            return

    def _admin_text(self) -> str:
        return read_token_file(self.files.admin_token).text


def _check_own(directory: Path) -> None:
    """Check that the directory is one of this user's, and no link.

    Raises InvalidRequest if it is not; another user may have planted it in a shared work dir.
    """
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise InvalidRequest(
            f"{directory} is a link, or belongs to another user; choose a --work-dir of your own"
        )


def _is_replaceable(path: Path) -> bool:
    try:
        return path.read_text(errors="replace").startswith(_MARK)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
