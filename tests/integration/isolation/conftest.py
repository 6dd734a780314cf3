"""Leaves out the folders whose tests run in a guest, except in a guest."""

from __future__ import annotations

from tests.harness.uml import in_guest

collect_ignore = [] if in_guest() else ["cgroup2", "systemd"]
