"""The security of a master's services, over all of its terms."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from croupier.master.access.audit import Audit, AuditFile
from croupier.master.access.rate_limits import RateLimiter
from croupier.master.core.state import State
from croupier.master.services.authentication import Authenticator
from croupier.master.services.checks import Checks
from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest
from croupier.model.token import BearerToken
from croupier.net.credentials import create_token_file, make_token, read_token_file
from croupier.process.durable_files import os_errors_as
from croupier.process.logging import get_logger
from croupier.process.metric_families import Family

if TYPE_CHECKING:  # cyclopts
    from croupier.master.config import MasterConfig

_log = get_logger("croupier.master")


class Security:
    """Authentication, permission, limits and audit; all calls, gRPC or HTTP, pass `checks`."""

    def __init__(
        self,
        config: MasterConfig,
        clock: Clock,
        state: Callable[[], State | None],
        trust_domain: Callable[[], str],
    ) -> None:
        """Guard by the rules and tokens in `state`, which is None while this master follows.

        Raises InvalidRequest if the file of the admin's token cannot be used, or the extra `oidc`
        is needed and not installed; Unavailable if the audit log cannot be opened.
        """
        is_on = config.requires_auth
        self._admin_token_file = config.admin_token_file if is_on else None
        path = config.audit_log
        self.file = None if path is None else AuditFile(path.expanduser())
        self.audit = Audit(clock, self.file, is_on=is_on or self.file is not None)
        self.limiter = RateLimiter(config.rate_limits(), clock)
        provider = config.oidc.provider(clock) if is_on else None
        if provider is not None:
            # The first call need not wait for its keys.
            provider.refresh()
        self.authenticator = Authenticator(
            clock,
            state,
            is_on=is_on,
            trust_domain=trust_domain,
            admin_token=_admin_token(self._admin_token_file),
            is_mutual=config.tls.tls_ca is not None,
            verify_other=None if provider is None else provider.verify,
        )
        self.checks = Checks(self.authenticator, state, self.limiter, self.audit)

    def renew(self) -> None:
        """Read the file of the admin's token again; raises InvalidRequest if it cannot be used."""
        self.authenticator.admin_token = _admin_token(self._admin_token_file)

    def close(self) -> None:
        """Write what is left of the audit log; block for at most 5 s."""
        if self.file is not None:
            self.file.close()


def _admin_token(path: Path | None) -> BearerToken | None:
    """Return the token in the file, which is made if there is none; raises InvalidRequest."""
    if path is None:
        return None
    path = path.expanduser()
    with os_errors_as(InvalidRequest, f"--admin-token-file {path}"), suppress(FileExistsError):
        create_token_file(path, make_token())
        _log.info("admin_token_made", path=str(path))
    return read_token_file(path)


SECURITY: Final[tuple[Family[Security], ...]] = (
    Family(
        "authentication_failures",
        "Calls without a valid credential by reason: missing, malformed, unknown, expired,"
        " revoked, certificate or provider.",
        lambda security: security.checks.unauthenticated,
        ("reason",),
        is_counter=True,
    ),
    Family(
        "calls_denied",
        "Unary calls and streams that no rule allows, by method.",
        lambda security: security.checks.denied,
        ("method",),
        is_counter=True,
    ),
    Family(
        "rate_limited",
        "Unary calls and large messages refused, and pauses in reading streams, for the rate of"
        " their principal.",
        lambda security: {"refused": security.limiter.refused, "delayed": security.limiter.delayed},
        ("outcome",),
        is_counter=True,
    ),
    Family(
        "audit_lines_lost",
        "Audit lines that were not written: the disk failed (failed), or one address sent too many"
        " calls without a credential (suppressed).",
        lambda security: {
            "failed": 0 if security.file is None else security.file.lost,
            "suppressed": security.audit.suppressed,
        },
        ("why",),
        is_counter=True,
    ),
)
