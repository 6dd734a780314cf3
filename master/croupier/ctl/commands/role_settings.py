"""`croupier weights` and `croupier quota`.

Rule: a command changes only the settings that it names, so that operators who change different
settings of one role do not overwrite each other.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Final

from cyclopts import Parameter

from croupier.api.forms import PREEMPTION
from croupier.api.objects import as_object
from croupier.cli.connection import Master, Refused, run
from croupier.cli.flags import (
    CHANGE,
    LOCAL,
    Change,
    DryRunFlag,
    ForceFlag,
    JsonFlag,
    JsonListFlag,
    MasterFlag,
    RoleName,
    Target,
)
from croupier.cli.table import Table, print_table
from croupier.cli.terminal import View
from croupier.ctl.app import family
from croupier.ctl.lists import all_of, print_list
from croupier.ctl.operation import UNCHANGED, print_result
from croupier.ctl.views.role import (
    QUOTAS,
    WEIGHTS,
    half_life_text,
    has_quota,
    min_run_text,
    preemption_text,
    resource_weights_text,
)
from croupier.model.budget import parse_budget
from croupier.model.durations import parse_duration
from croupier.model.errors import InvalidRequest
from croupier.model.ids import check_role
from croupier.model.preemption import parse_min_run
from croupier.model.roles import RoleSettings, parse_amounts, parse_weight
from croupier.process.cli import read_by
from croupier.v1 import operator_pb2 as pb
from croupier.wire.roles import settings_to_wire

WEIGHT_PARTS = (
    pb.RoleChange.PART_WEIGHT,
    pb.RoleChange.PART_RESOURCE_WEIGHTS,
    pb.RoleChange.PART_HALF_LIFE,
)
QUOTA_PARTS = (
    pb.RoleChange.PART_GUARANTEE,
    pb.RoleChange.PART_LIMIT,
    pb.RoleChange.PART_PREEMPTION,
    pb.RoleChange.PART_MIN_RUN,
    pb.RoleChange.PART_BUDGET,
)

weights = family("weights")
quota = family("quota", "Both apply to the role with all roles below it.")


@weights.command(name="list")
@weights.default
def weights_list(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
    """List the weights of all roles."""
    print_list(master, "roles", WEIGHTS, as_json=as_json)


@weights.command(name="get")
def weights_get(
    role: RoleName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False
) -> None:
    """Show the weight of one role, and what its past use makes of it."""
    _show_role(master, role, WEIGHTS, as_json=as_json)


@weights.command(name="set")
def weights_set(
    role: RoleName,
    weight: str | None = None,
    /,
    *,
    resource: Annotated[list[str] | None, Parameter(negative="")] = None,
    half_life: Annotated[float | None, read_by(parse_duration)] = None,
    dry_run: DryRunFlag = False,
    force: ForceFlag = False,
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Set the weight of a role, or how long its past use counts.

    Both take effect at once, and stay until they are changed.

    Args:
        weight: A number above 0, at most 1,000,000; may be a fraction, such as 0.5. Without it,
            only the half-life changes.
        resource: NAME=WEIGHT: multiplies the weight for that resource; may be repeated. These
            resource weights replace all earlier ones. Without this flag, earlier ones stay.
        half_life: Past use counts half after this time, from 1h to 90d, such as 7d: a role that
            used more than its share counts less until that is forgotten. Set it for all siblings.
            0: past use does not count.
    """
    wanted = weight_change(role, weight, resource or (), half_life)
    _change_role(wanted, Change(dry_run, master, as_json), force=force)


@weights.command(name="remove")
def weights_remove(role: RoleName, /, *, change: Change = CHANGE) -> None:
    """Reset the weight of a role to the master's configuration, and its half-life to none."""
    _change_role(role_change(role, None, WEIGHT_PARTS), change)


@quota.command(name="list")
@quota.default
def quota_list(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
    """List the roles that have a guarantee, a limit, a preemption setting or a budget."""
    print_list(master, "roles", QUOTAS, as_json=as_json, keep=has_quota)


@quota.command(name="get")
def quota_get(role: RoleName, /, *, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """Show the guarantee, the limit, the settings of preemption and the budget of one role."""
    _show_role(master, role, QUOTAS, as_json=as_json)


@quota.command(name="set")
def quota_set(
    role: RoleName,
    /,
    *,
    guarantee: str | None = None,
    limit: str | None = None,
    preemption: str | None = None,
    min_run: str | None = None,
    budget: str | None = None,
    dry_run: DryRunFlag = False,
    force: ForceFlag = False,
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Set the guarantee, the limit, a setting of preemption or the budget of a role.

    The change takes effect at once, and stays until the next one. Settings that are not given keep
    their value.

    Args:
        guarantee: Amounts such as 'cpus:4;mem:8GB': a role that uses less is served first. ''
            removes the guarantee.
        limit: Amounts such as 'cpus:4;mem:8GB': the role never uses more. 0 is a limit; '' removes
            the limit.
        preemption: on, off (the role neither preempts nor is preempted), or inherit (as its
            parent).
        min_run: Time for which each task of the role runs before it may be preempted, such as 10m,
            at most 24h; or inherit (as its parent). A task may ask for more.
        budget: Resources times hours that its tasks may use in a period, and what happens then,
            such as 'cpus:1000;mem:2TB/month/block'. Periods: hour, day, week, month (UTC). Then:
            warn, lowest (served only what no other role wants), block (nothing new is started).
            none removes the budget.
    """
    wanted = quota_change(role, guarantee, limit, preemption, min_run, budget)
    _change_role(wanted, Change(dry_run, master, as_json), force=force)


@quota.command(name="remove")
def quota_remove(role: RoleName, /, *, change: Change = CHANGE) -> None:
    """Remove the guarantee, the limit, the settings of preemption and the budget of a role."""
    _change_role(role_change(role, None, QUOTA_PARTS), change)


def _show_role(target: Target, role: str, table: Table, *, as_json: bool) -> None:
    """Print one role. A role without settings and frameworks has the defaults."""
    check_role(role)
    known = run(target, lambda master: all_of(master, "roles"))
    default = as_object(pb.RoleView(role=role, settings=settings_to_wire(RoleSettings())))
    found = next((view for view in known if view["role"] == role), default)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print_table(table, [found], sys.stdout)


def weight_change(
    role: str, weight: str | None, resources: Sequence[str], half_life_s: float | None = None
) -> pb.RoleChange:
    """Return the change of `weights set`, such as `cpus=2`; raises InvalidRequest if malformed."""
    if weight is None and (resources or half_life_s is None):
        raise InvalidRequest("give a weight, or --half-life alone")
    by_resource: dict[str, int] = {}
    for text in resources:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidRequest(f"--resource {text!r} is not NAME=WEIGHT (example: gpus=2)")
        if name in by_resource:
            raise InvalidRequest(f"--resource {name} is given twice")
        by_resource[name] = parse_weight(f"the weight of {name}", value)
    settings = RoleSettings(
        parse_weight(f"the weight of {role}", "1" if weight is None else weight),
        by_resource,
        half_life_ms=round((half_life_s or 0) * 1000),
    )
    given = (weight is not None, bool(by_resource), half_life_s is not None)
    parts = [part for part, is_given in zip(WEIGHT_PARTS, given, strict=True) if is_given]
    return role_change(role, settings, parts)


def quota_change(
    role: str,
    guarantee: str | None,
    limit: str | None,
    preemption: str | None,
    min_run: str | None,
    budget: str | None,
) -> pb.RoleChange:
    """Return the change of `quota set`; raises InvalidRequest if all are None, or malformed."""
    given = (guarantee, limit, preemption, min_run, budget)
    parts = [part for part, text in zip(QUOTA_PARTS, given, strict=True) if text is not None]
    if not parts:
        raise InvalidRequest("give --guarantee, --limit, --preemption, --min-run or --budget")
    if preemption not in (None, *PREEMPTION):
        raise InvalidRequest(f"--preemption is on, off or inherit, not {preemption!r}")
    settings = RoleSettings(
        guarantee=parse_amounts(guarantee or ""),
        limit=parse_amounts(limit or ""),
        preemption=PREEMPTION[preemption] if preemption is not None else None,
        min_run_ms=parse_min_run(min_run or "inherit"),
        budget=parse_budget("none" if budget is None else budget),
    )
    return role_change(role, settings, parts)


def _change_role(wanted: pb.RoleChange, change: Change, *, force: bool = False) -> None:
    """Make the change, or only check it with `dry_run`, and print the differences."""
    request = pb.UpdateRolesRequest(changes=[wanted], dry_run=change.dry_run, force=force)
    answer = run(change.master, lambda master: _updated(master, request))
    view = as_object(answer)
    head = [UNCHANGED] if answer.dry_run else []
    lines = moved_lines(view["roles"], wanted.role, view["others"])
    print_result(view, *head, *lines, as_json=change.as_json)


async def _updated(master: Master, request: pb.UpdateRolesRequest) -> pb.UpdateRolesResponse:
    """Change roles; from a master of release 1.0, remove only settings that it knows."""
    try:
        return await master.ask(master.service.UpdateRoles, request)
    except Refused as error:
        (wanted,) = request.changes
        if wanted.HasField("settings") or "unknown parts" not in str(error):
            raise
        wanted.parts[:] = [each for each in wanted.parts if each <= pb.RoleChange.PART_PREEMPTION]
        return await master.ask(master.service.UpdateRoles, request)


def moved_lines(moved: Sequence[View], named: str, others: int) -> Iterator[str]:
    """Yield one line for each role that changed, and one for `named` in any case."""
    for view in moved:
        before, after = view["before"], view["after"]
        differences = list(_differences(before, after))
        if not differences and view["role"] == named:
            differences = ["nothing is different"]
        if differences:
            share = f"its share is {after['share']:.3f}"
            yield f"{view['role']}: {', '.join(differences)}; {share}"
    if others:
        yield f"and {others} more roles are entitled to another share"


# Each setting: what it is called, its key, its text, and the word for none of it.
_SETTINGS: Final[tuple[tuple[str, str, Callable[[View], str], str], ...]] = (
    ("guarantee", "guarantee", lambda role: str(role["guarantee"]["text"]), "none"),
    ("limit", "limit", lambda role: str(role["limit"]["text"]), "none"),
    ("weight", "weight_milli", lambda role: f"{role['weight']:g}", ""),
    ("weights", "resource_weights", resource_weights_text, "none"),
    ("half-life", "half_life_s", half_life_text, "none"),
    ("preemption", "preemption", preemption_text, "inherited"),
    ("minimum run time", "min_run_s", min_run_text, "inherited"),
    ("budget", "budget", lambda role: role["budget"] or "", "none"),
    ("entitled to", "entitlement_ppm", lambda role: f"{role['entitlement']:.3f}", ""),
)


def _differences(before: View, after: View) -> Iterator[str]:
    for name, key, text, nothing in _SETTINGS:
        if before[key] != after[key]:
            yield f"{name} {text(before) or nothing} -> {text(after) or nothing}"


def role_change(
    role: str, settings: RoleSettings | None, parts: Sequence[pb.RoleChange.Part.ValueType]
) -> pb.RoleChange:
    """Return a role's change, without settings its removal; raises InvalidRequest if malformed."""
    check_role(role)
    if settings is None:
        return pb.RoleChange(role=role, parts=parts)
    settings.check()
    return pb.RoleChange(role=role, settings=settings_to_wire(settings), parts=parts)
