"""The agent's HTTP server: metrics, health, and the output, files and usage of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from croupier.agent.core.state import AgentState
from croupier.agent.output_links import OutputLinks
from croupier.agent.sandbox import Sandboxes
from croupier.agent.task_usage import TaskUsage
from croupier.model.clock import Clock
from croupier.net.server_tls import ServerTls

if TYPE_CHECKING:  # cyclopts and aiohttp
    from croupier.agent.config import AgentConfig
    from croupier.agent.isolation.flags import IsolationFlags
    from croupier.process.http.server import HttpServer


@dataclass(frozen=True, slots=True)
class OwnRoutes:
    """What the agent's own routes serve, and the links that they require.

    Attributes:
        flags: with the limits of tasks that name none, as the agent has resolved them.
    """

    state: AgentState
    sandboxes: Sandboxes
    usage: TaskUsage
    links: OutputLinks
    flags: IsolationFlags


def make_http(
    config: AgentConfig,
    registry: CollectorRegistry,
    clock: Clock,
    ready: Callable[[], str | None],
    own: OwnRoutes,
    tls: Callable[[], ServerTls] | None,
    is_authenticated: bool,
) -> HttpServer:
    """Return the server, which does not listen yet.

    Args:
        config: of the agent.
        registry: of its metrics.
        clock: monotonic.
        ready: returns what the agent still waits for, or None when it is ready.
        own: what its own routes serve.
        tls: returns the agent's present certificate; None without TLS.
        is_authenticated: whether the agent itself has a credential.
    """
    # These import aiohttp.
    from croupier.agent.http_guards import http_guards
    from croupier.agent.served_files import ServedFiles
    from croupier.agent.task_routes import SandboxRoutes, UsageRoute
    from croupier.process.http.server import HttpServer

    served = ServedFiles(own.state.is_live, own.links)
    sandboxes = SandboxRoutes(own.sandboxes, served)
    usage = UsageRoute(own.state, own.usage, own.flags)
    return HttpServer(
        registry,
        clock,
        ready,
        [*sandboxes.routes(), *usage.routes()],
        (config.hostname, config.http.host, *config.http_names),
        tls=tls,
        guards=http_guards(config, own.links, tls, is_authenticated=is_authenticated),
    )
