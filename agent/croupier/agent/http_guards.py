"""What the agent's HTTP routes require of requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from croupier.agent.output_links import OutputLinks
from croupier.net.server_tls import ServerTls
from croupier.process.http.credentials import clients_only, metrics_guard
from croupier.process.http.routes import Guard, Requirement, allow_all

if TYPE_CHECKING:  # cyclopts
    from croupier.agent.config import AgentConfig


def http_guards(
    config: AgentConfig,
    links: OutputLinks,
    tls: Callable[[], ServerTls] | None,
    *,
    is_authenticated: bool,
) -> dict[Requirement, Guard]:
    """Return the guard of each requirement.

    Args:
        config: of the agent.
        links: check the links of requests for output.
        tls: returns the agent's present certificate; None without TLS.
        is_authenticated: whether the agent itself has a credential.
    """

    def trust_domain() -> str:
        return "" if tls is None else tls().trust_domain

    metrics: Guard = allow_all
    if config.protects_metrics(is_authenticated=is_authenticated):
        metrics = metrics_guard(config.metrics_token_file, clients_only(trust_domain))
    return {Requirement.READ_METRICS: metrics, Requirement.OUTPUT_LINK: links.check}
