"""The commands that show roles: all of them, or one."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

from croupier.ctl.connection import Master, connected
from croupier.ctl.listing import print_pages
from croupier.ctl.pages import pages
from croupier.ctl.tables import QUOTAS, ROLES, WEIGHTS, Table, print_table
from croupier.ctl.target import Target
from croupier.ctl.views import View, role_view
from croupier.model.ids import check_role
from croupier.model.roles import RoleSettings
from croupier.v1 import operator_pb2 as pb
from croupier.wire.roles import settings_to_wire


def list_roles(target: Target, *, as_json: bool) -> None:
    """Print all roles as the tree that they are."""
    print_pages(target, _fetch, ROLES, as_json=as_json)


def list_weights(target: Target, *, as_json: bool) -> None:
    """Print the weights of all roles."""
    print_pages(target, _fetch, WEIGHTS, as_json=as_json)


def list_quotas(target: Target, *, as_json: bool) -> None:
    """Print the roles that have a guarantee, a limit or a preemption setting."""

    async def fetch(master: Master) -> AsyncIterator[list[View]]:
        async for page in _fetch(master):
            yield [view for view in page if _has_quota(view)]

    print_pages(target, fetch, QUOTAS, as_json=as_json)


def show_weight(target: Target, role: str, *, as_json: bool) -> None:
    """Print the weight of one role.

    Raises:
        InvalidRequest: if the role is illegal.
    """
    _show(WEIGHTS, target, role, as_json)


def show_quota(target: Target, role: str, *, as_json: bool) -> None:
    """Print the guarantee, limit and preemption setting of one role.

    Raises:
        InvalidRequest: if the role is illegal.
    """
    _show(QUOTAS, target, role, as_json)


def _show(table: Table, target: Target, role: str, as_json: bool) -> None:
    check_role(role)
    # A role that nobody has named is there all the same, with the default settings.
    untouched = pb.RoleView(role=role, settings=settings_to_wire(RoleSettings()))
    found = [view for view in _roles(target) if view["role"] == role] or [role_view(untouched)]
    if as_json:
        print(json.dumps(found[0], indent=2))
    else:
        print_table(table, found, sys.stdout)


def _has_quota(view: View) -> bool:
    return bool(
        view["guarantee"]["milli"] or view["limit"]["milli"] or view["preemption"] is not None
    )


def _roles(target: Target) -> list[View]:
    async def listed() -> list[View]:
        async with connected(target) as master:
            return [view async for page in _fetch(master) for view in page]

    return asyncio.run(listed())


async def _fetch(master: Master) -> AsyncIterator[list[View]]:
    async for page in pages(master, master.service.ListRoles, pb.ListRolesRequest()):
        yield [role_view(role) for role in page.roles]
