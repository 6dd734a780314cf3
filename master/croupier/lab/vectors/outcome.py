"""The facts of clients with tasks: counts, amounts, shares, and hypothetical bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import attrgetter

from croupier.lab.solvers import continuous
from croupier.lab.solvers.continuous import User
from croupier.lab.vectors.facts import Fact, Got, Share
from croupier.lab.vectors.vector import Amounts, Unreadable, Vector, shortened


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The number of tasks of each client; `schedule` has the client of each, or is None."""

    vector: Vector
    tasks: Mapping[str, Fraction]
    schedule: Sequence[str] | None = None
    more: Sequence[Fact] = ()

    @property
    def facts(self) -> Sequence[Fact]:
        """The facts of the mode, and those of all modes with tasks."""
        return (
            *self.more,
            ("tasks", lambda _: dict(self.tasks)),
            ("allocation", lambda _: {c: self._allocation(c) for c in self.vector.clients}),
            ("dominant_share", lambda _: self._dominant_shares(self.tasks)),
            ("shares", lambda _: {c: self._shares(c) for c in self.vector.clients}),
            ("aggregate_usage", lambda _: self._sums()),
            ("used", lambda _: self._used()),
            ("left", lambda _: self._left()),
            ("alone", lambda _: {c: self._alone(c) for c in self.vector.clients}),
            ("partition_tasks", lambda _: {c: self._alone(c) // 1 for c in self.vector.clients}),
            ("continuous_tasks", lambda _: continuous_tasks(self.vector, self.vector.policy)),
            ("useful_true_tasks_of_(.+)", lambda _, client: self._useful(client)),
            ("(.+)_on_bundle_of_(.+)", lambda _, one, other: self._on_bundle(one, other)),
            ("schedule", lambda _: self._in_order()),
            ("rows", lambda _: self._rows()),
        )

    def _allocation(self, client: str) -> list[Fraction]:
        return [self.tasks[client] * need for need in self.vector.demands[client]]

    def _shares(self, client: str) -> list[Share]:
        return [self._share(a, r, [client]) for r, a in enumerate(self._allocation(client))]

    def _share(self, amount: Fraction, resource: int, clients: Sequence[str]) -> Share:
        total = self.vector.capacity[resource]
        if not total:
            return Share(Fraction(0), Fraction(0))
        step = sum((self.vector.demands[client][resource] for client in clients), Fraction(0))
        return Share(amount / total, step / total)

    def _dominant_shares(self, tasks: Mapping[str, Fraction]) -> dict[str, Share]:
        """Return the dominant share of every client and pool."""
        demands = self.vector.demands
        found = {}
        for path in (*self.vector.clients, *self.vector.pools()):
            below = [c for c in self.vector.clients if c == path or c.startswith(f"{path}/")]
            parts = [
                self._share(sum((tasks[c] * demands[c][r] for c in below), Fraction(0)), r, below)
                for r in range(len(self.vector.capacity))
            ]
            step = max(part.step for part in parts)
            found[path] = Share(max(part.value for part in parts), step)
        return found

    def _sums(self) -> dict[str, Got]:
        return {c: sum(self._allocation(c), Fraction(0)) for c in self.vector.clients}

    def _used(self) -> list[Fraction]:
        columns = zip(*(self._allocation(c) for c in self.vector.clients), strict=True)
        return [sum(column, Fraction(0)) for column in columns]

    def _left(self) -> list[Fraction]:
        return [total - used for total, used in zip(self.vector.total(), self._used(), strict=True)]

    def _alone(self, client: str) -> Fraction:
        """Return the tasks that fit on the client's part of the cluster by weight."""
        if self.vector.pools():
            raise Unreadable("the tasks of a client alone are not defined for a tree")
        vector = self.vector
        weights = [vector.weight(other) for other in vector.clients]
        parts = []
        for r, need in enumerate(vector.demands[client]):
            total_weight = sum((weight[r] for weight in weights), Fraction(0))
            if need:
                parts.append(vector.capacity[r] * vector.weight(client)[r] / total_weight / need)
        backlog = vector.backlog.get(client)
        if backlog is not None:
            parts.append(backlog)
        if not parts:
            raise Unreadable(f"nothing bounds the tasks of {shortened(client)}")
        return min(parts)

    def _useful(self, client: str) -> Fraction:
        """Return how many true tasks of the client fit into its allocation for claimed ones."""
        self.vector.check_client(client)
        return self._fitting(self._allocation(client), _true_demand(self.vector, client))

    def _on_bundle(self, one: str, other: str) -> Fraction:
        self.vector.check_client(one)
        self.vector.check_client(other)
        return self._fitting(self._allocation(other), self.vector.demands[one])

    def _fitting(self, bundle: Sequence[Fraction], demand: Amounts) -> Fraction:
        parts = [b / need for b, need in zip(bundle, demand, strict=True) if need]
        if not parts:
            raise Unreadable("a task that takes nothing fits without end")
        return min(parts) if self.vector.mode == "continuous" else Fraction(min(parts) // 1)

    def _in_order(self) -> list[str]:
        if self.schedule is None:
            raise Unreadable(f"mode {self.vector.mode} has no schedule")
        return list(self.schedule)

    def _rows(self) -> list[Got]:
        """Return, after each task, the client that started it and the shares of all clients."""
        counts = dict.fromkeys(self.vector.clients, Fraction(0))
        rows: list[Got] = []
        for client in self._in_order():
            counts[client] += 1
            now = TaskOutcome(self.vector, dict(counts))
            row: dict[str, Got] = {"pick": client, "cluster": now._cluster()}
            dominant = now._dominant_shares(counts)
            for path in self.vector.clients:
                row[f"shares_{path}"] = now._shares(path)
                row[f"dominant_{path}"] = dominant[path]
                row[f"tasks_{path}"] = counts[path]
            rows.append(row)
        return rows

    def _cluster(self) -> list[Share]:
        return [self._share(a, r, self.vector.clients) for r, a in enumerate(self._used())]


def continuous_tasks(vector: Vector, policy: str) -> dict[str, Fraction]:
    """Return the divisible tasks of each client under `policy`; raises Unreadable or Undefined."""
    if vector.pools():
        raise Unreadable("divisible tasks are shared among clients, not in a tree of pools")
    users = users_of(vector)
    name, _, argument = policy.partition(":")
    if name in ("drf", "drf-neverskip"):
        tasks = continuous.drf(vector.capacity, users)
    elif name == "asset":
        tasks = continuous.asset(vector.capacity, users)
    elif name == "single":
        tasks = continuous.single(vector.capacity, users, resource_index(vector, argument))
    else:
        raise Unreadable(f"policy {shortened(policy)} is not known for divisible tasks")
    return dict(zip(vector.clients, tasks, strict=True))


def users_of(vector: Vector) -> list[User]:
    """Return the clients as users of a flat policy, in the order listed."""
    return [user_of(vector, client) for client in vector.clients]


def user_of(vector: Vector, client: str) -> User:
    """Return one client as a user of a flat policy."""
    backlog = vector.backlog.get(client) if vector.is_active(client) else Fraction(0)
    return User(vector.demands[client], vector.weight(client), backlog)


def resource_index(vector: Vector, argument: str) -> int:
    """Return the resource that `single:<r>` names by index or name; raises Unreadable for none."""
    if argument in vector.resources:
        return vector.resources.index(argument)
    if argument.isdecimal() and int(argument) < len(vector.resources):
        return int(argument)
    raise Unreadable(f"policy single:{shortened(argument)} names no resource")


def _true_demand(vector: Vector, client: str) -> Amounts:
    """Return the true demand of a client that lies, from the vector that tells the truth.

    That vector has the same name without `-lie`, with `-truth` or nothing instead; or else it is
    the only one of the file that differs in this client's demand alone. Raises Unreadable if there
    is no such vector.
    """
    alike = [other for other in vector.others if _differs_only_in(vector, other, client)]
    stem = vector.name.removesuffix("-lie")
    named = [other for other in alike if other.name in (stem, f"{stem}-truth")]
    found = {other.demands[client] for other in named or alike}
    if len(found) != 1:
        raise Unreadable(
            f"no vector of the file tells what {shortened(client)} needs in truth"
            f" (one named {shortened(stem)!r}, with another demand of that client only)"
        )
    return found.pop()


_place = attrgetter("resources", "capacity", "nodes")


def _differs_only_in(vector: Vector, other: Vector, client: str) -> bool:
    if _place(vector) != _place(other) or vector.demands.keys() != other.demands.keys():
        return False
    return {c for c, d in vector.demands.items() if other.demands[c] != d} == {client}
