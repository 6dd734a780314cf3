"""`croupier service`, whose commands are imported when one of them is called."""

from __future__ import annotations

from croupier.process.cli import make_app

service = make_app(
    "service",
    "Run N instances of a long-running task: health checks, rolling updates, rollback.\n\n"
    "Example: croupier service apply web.toml",
    reads_environment=False,
)
for _name in ("apply", "status", "scale", "rollout", "stop"):
    service.command(f"croupier.apps.service.commands:{_name}", name=_name)
