"""Which test runs the shell blocks of each page of the documentation."""

from __future__ import annotations

from typing import Final

# Arguments of the `croupier local` that pages start.
LOCAL: Final = ("--agents", "3", "--cpus", "2", "--mem", "2GB")
MPI_PAGE: Final = "docs/tutorials/mpi.md"
# Pages on the cluster of one `croupier local`.
LOCAL_PAGES: Final = [
    "README.md",
    "docs/first-ten-minutes.md",
    "docs/tutorials/framework.md",
    "docs/tutorials/sweep.md",
    "docs/tutorials/batch.md",
    "docs/tutorials/service.md",
    "docs/tutorials/two-teams.md",
    MPI_PAGE,
    "docs/batch.md",
    "docs/gangs.md",
    "docs/cron.md",
    "docs/usage.md",
]
# The first page makes the cluster of the others, which see it as its administrator.
SECURED_PAGES: Final = [
    "docs/security.md",
    "docs/cli.md",
    "docs/fairness.md",
    "docs/operating.md",
    "docs/high-availability.md",
]
PLAIN_PAGES: Final = ["deploy/README.md", "docs/http-api.md"]
# Pages that need no cluster but what they start.
OTHER_PAGES: Final = ["docs/deployment.md", "docs/event-log.md"]
# Its masters have stopped.
STOPPED_PAGE: Final = "docs/backup.md"
# Pages that tests of their subject run.
RUN_ELSEWHERE: Final = {"docs/service.md": "tests/e2e/test_service.py"}
