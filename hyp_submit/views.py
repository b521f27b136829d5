"""What a cluster looks like to a person: conditions of nodes, rows of blocks and switches, the queue in order.

Pure, and shared by the command line and the terminal UI, so that both say the same. `picture` does all the work that
grows with the cluster; what it returns is only looked up in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Literal

from hyp_submit.model import Cluster, Job, Node, Partition, Switch, Topology
from hyp_submit.nodes import fold
from hyp_submit.report import duration

Hue = Literal["free", "busy", "claimed", "leaving", "broken", "absent", "unknown"]
"""What a colour says: idle; in use, which is not bad; spoken for; going out of use; out of use; off; not known."""


class Condition(Enum):
    """A node in one character. From the best to the worst: of several, the last is the one worth a word."""

    IDLE = (".", "idle", "free")
    ALLOCATED = ("#", "allocated", "busy")
    MIXED = ("+", "mixed", "busy")
    PLANNED = ("p", "planned", "claimed")
    RESERVED = ("r", "reserved", "claimed")
    OFF = ("~", "powered down", "absent")
    STARTING = ("^", "powering up", "claimed")
    UNKNOWN = ("?", "unknown", "unknown")
    DRAINING = ("d", "draining", "leaving")
    DRAINED = ("D", "drained", "broken")
    SILENT = ("*", "not responding", "broken")
    DOWN = ("X", "down", "broken")

    def __init__(self, glyph: str, word: str, hue: Hue) -> None:
        self.glyph = glyph
        self.word = word
        self.hue = hue


SEVERITY: Mapping[Condition, int] = {condition: rank for rank, condition in enumerate(Condition)}

_BUSY_BASES = frozenset({"ALLOCATED", "MIXED"})
_OFF_FLAGS = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"})
_CLAIMS = frozenset({"RESERVED", "MAINTENANCE", "BLOCKED"})


def condition(node: Node | None) -> Condition:
    """The condition of a node; None is one that Slurm names but says nothing about.

    Where several hold, the one that decides what to do about the node, as sinfo does: drained stays drained while the
    node is also silent or off. A node that Slurm itself restarts is DOWN and silent meanwhile, and no trouble.
    """
    if node is None:
        return Condition.UNKNOWN
    flags = node.flags
    busy = node.base in _BUSY_BASES or "COMPLETING" in flags
    rules: tuple[tuple[object, Condition], ...] = (
        ("REBOOT_ISSUED" in flags, Condition.STARTING),
        (node.base in {"DOWN", "ERROR"} or flags & {"FAIL", "INVALID_REG"}, Condition.DOWN),
        ("DRAIN" in flags, Condition.DRAINING if busy else Condition.DRAINED),
        (flags & {"POWERING_UP", "POWER_UP"}, Condition.STARTING),
        (flags & _OFF_FLAGS or node.base == "FUTURE", Condition.OFF),
        (flags & {"NOT_RESPONDING", "NO_RESPOND"}, Condition.SILENT),
        (node.base == "MIXED", Condition.MIXED),
        (busy, Condition.ALLOCATED),
        (node.base != "IDLE", Condition.UNKNOWN),
        ("REBOOT_REQUESTED" in flags, Condition.STARTING),
        (flags & _CLAIMS, Condition.RESERVED),
        ("PLANNED" in flags, Condition.PLANNED),
    )
    return next((found for holds, found in rules if holds), Condition.IDLE)


# --- rows ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tally:
    """Nodes counted."""

    total: int = 0
    healthy: int = 0
    free: int = 0
    """Free now, and in a place that Slurm could start a job in."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.total + other.total, self.healthy + other.healthy, self.free + other.free)


@dataclass(frozen=True, slots=True)
class Trouble:
    """The worst that is wrong with the nodes of a row, and how many have just that."""

    condition: Condition
    count: int
    reason: str | None
    """In the words of whoever set it, without who and when; None where nobody said."""


@dataclass(frozen=True, slots=True)
class Row:
    """A block, a switch, or what has neither, as one row."""

    name: str
    nodes: tuple[str, ...]
    """Its own nodes of this partition, in the order of the node table; () for a switch above others."""
    conditions: tuple[Condition, ...]
    """Of `nodes`, one for one."""
    tally: Tally
    """Of everything beneath it."""
    trouble: Trouble | None = None
    depth: int = 0
    """Switches above it."""
    loose: bool = False
    """Whether these are nodes that the topology leaves out, on which Slurm places no job that asks for it."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition and its rows: blocks in Slurm's order, switches under their parents, or one row where it is flat."""

    partition: Partition
    topology: Topology
    rows: tuple[Row, ...]
    tally: Tally

    @property
    def name(self) -> str:
        """The partition's name."""
        return self.partition.name

    @property
    def shape(self) -> str:
        """Its topology in a few words."""
        if self.topology.kind == "block":
            blocks = sum(not row.loose for row in self.rows)
            sizes = "/".join(map(str, self.topology.block_sizes))
            return f"{_count(blocks, 'block')}{', block size ' + sizes if sizes else ''}"
        if self.topology.kind == "tree":
            leaves = sum(bool(row.nodes) and not row.loose for row in self.rows)
            return f"tree, {_count(leaves, 'leaf switch', 'leaf switches')}"
        return "no topology"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


class _Rows:
    """Makes the rows of one partition."""

    def __init__(self, cluster: Cluster, partition: Partition, conditions: Mapping[str, Condition]) -> None:
        self.cluster = cluster
        self.left = set(partition.nodes)
        self.partition = partition
        self.conditions = conditions

    def make(self, topology: Topology) -> Iterator[Row]:
        if topology.kind == "block":
            for block in topology.blocks:
                if nodes := self._take(block.nodes):
                    yield self._row(block.name, nodes)
        elif topology.kind == "tree":
            yield from self._tree(topology.switches)
        else:
            yield self._row("nodes", self._take(self.partition.nodes))
        if self.left:
            yield self._row(
                "in no block" if topology.kind == "block" else "on no switch", self._take(self.left), loose=True
            )

    def _take(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the names that are the partition's and in no row yet, in the order of the node table."""
        mine = self.left.intersection(names)
        self.left -= mine
        position = self.cluster.position
        return tuple(sorted(mine, key=lambda name: (position.get(name, len(position)), name)))

    def _row(self, name: str, nodes: tuple[str, ...], *, depth: int = 0, loose: bool = False) -> Row:
        known = [node for member in nodes if (node := self.cluster.node.get(member)) is not None]
        tally = Tally(
            len(nodes), sum(node.healthy for node in known), 0 if loose else sum(map(self.cluster.is_free, known))
        )
        seen = tuple(self.conditions.get(member, Condition.UNKNOWN) for member in nodes)
        return Row(name, nodes, seen, tally, self._worst(known), depth, loose)

    def _worst(self, nodes: Sequence[Node]) -> Trouble | None:
        found = Counter((self.conditions[node.name], plain_reason(node.reason)) for node in nodes if not node.healthy)
        if not found:
            return None
        (worst, reason), count = max(found.items(), key=lambda item: (SEVERITY[item[0][0]], item[1]))
        return Trouble(worst, count, reason)

    def _tree(self, switches: Sequence[Switch]) -> Iterator[Row]:
        """Switches under their parents, depth first; those without nodes of this partition are left out."""
        by_name = {switch.name: switch for switch in switches}
        below = {child for switch in switches for child in switch.children}
        seen: set[str] = set()

        def walk(switch: Switch, depth: int) -> list[Row]:
            seen.add(switch.name)
            own = self._row(switch.name, self._take(switch.nodes), depth=depth)
            rows: list[Row] = []
            tally = own.tally
            for child in switch.children:
                if child in by_name and child not in seen:
                    under = walk(by_name[child], depth + 1)
                    tally = sum((row.tally for row in under if row.depth == depth + 1), tally)
                    rows.extend(under)
            if not tally.total:
                return []
            return [replace(own, tally=tally), *rows]

        for switch in switches:
            if switch.name not in below:
                yield from walk(switch, 0)


def plain_reason(reason: str | None) -> str | None:
    """The reason without the ` [root@2026-11-30T13:12:40]` that Slurm puts behind it."""
    text = (reason or "").strip()
    if text.endswith("]") and "@" in (tail := text.rpartition("[")[2]) and " " not in tail:
        text = text.rpartition("[")[0].rstrip()
    return text or None


# --- the queue -----------------------------------------------------------------------------------------------------


def _queue_key(job: Job) -> tuple[int, int, int]:
    """Jobs that have nodes, then waiting ones by priority, then what has ended; the oldest first among equals."""
    rank = 0 if job.holds_nodes else 1 if job.state == "PENDING" else 2
    return (rank, -(job.priority or 0) if rank == 1 else 0, job.id)


@dataclass(frozen=True, slots=True)
class Queue:
    """Jobs in the order of the queue: those that run, then those that wait, the next one first."""

    jobs: tuple[Job, ...] = ()
    states: Mapping[str, int] = field(default_factory=dict)
    """How many jobs are in each state, in the order of the queue."""
    longest: Mapping[str, int] = field(default_factory=dict)
    """Characters of the longest `id`, `user`, `name`, `partition` and `state`."""


def _queue(jobs: Sequence[Job]) -> Queue:
    texts = {
        "id": {str(max((job.id for job in jobs), default=0))},
        "user": {job.user for job in jobs},
        "name": {job.name for job in jobs},
        "partition": {job.partition for job in jobs},
        "state": (states := Counter(job.state for job in jobs)),
    }
    longest = {name: max(map(len, found), default=0) for name, found in texts.items()}
    return Queue(tuple(jobs), states, longest)


def outlook(job: Job, now: datetime) -> str:
    """How long a job still has, or why it waits."""
    if not job.holds_nodes:
        return job.reason or "" if job.state == "PENDING" else ""
    if job.end_time is None:
        return "no time limit"
    if job.end_time < now:
        return "over its time limit"
    return f"{duration(job.end_time - now)} left"


# --- everything ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Picture:
    """A cluster, worked out for showing."""

    cluster: Cluster
    partitions: tuple[PartitionView, ...]
    """Those with blocks first, then those with switches, then flat ones; otherwise in Slurm's order."""
    conditions: Mapping[str, Condition]
    """Of every node, by name."""
    counts: Mapping[str | None, Mapping[Condition, int]]
    """How many nodes of each partition are in each condition that occurs, best first; under None those of all."""
    queue: Mapping[str | None, Queue]
    """The jobs of each partition that has any; under None those of all."""
    tenants: Mapping[str, tuple[Job, ...]]
    """The jobs on each node that has any."""

    def place_of(self, partition: str, node: str) -> str | None:
        """The block or leaf switch of a partition's node; None where it is in none."""
        for view in self.partitions:
            if view.name == partition and view.topology.kind != "flat":
                return next((row.name for row in view.rows if not row.loose and node in row.nodes), None)
        return None

    def places(self, job: Job) -> str:
        """Where a running job is: `us-1 18, us-3 9`, or a hostlist where there are no blocks or switches."""
        mine = set(job.nodes)
        for view in self.partitions:
            if view.name == job.partition and view.topology.kind != "flat":
                counts = ((row, len(mine.intersection(row.nodes))) for row in view.rows)
                return ", ".join(f"{row.name} {count}" for row, count in counts if count)
        return fold(job.nodes)


def picture(cluster: Cluster) -> Picture:
    """Work a cluster out for showing: the part that takes time on a large one."""
    conditions = {node.name: condition(node) for node in cluster.nodes}
    order = {"block": 0, "tree": 1, "flat": 2}
    shaped = sorted(
        ((partition, cluster.topology_of(partition)) for partition in cluster.partitions if partition.nodes),
        key=lambda pair: order[pair[1].kind],
    )
    tenants: dict[str, list[Job]] = {}
    jobs: dict[str | None, list[Job]] = {None: sorted(cluster.jobs, key=_queue_key)}
    for job in jobs[None]:
        # A waiting job may name several partitions; it is in the queue of each.
        for name in dict.fromkeys(job.partition.split(",")):
            jobs.setdefault(name, []).append(job)
        if job.holds_nodes:
            for node in job.nodes:
                tenants.setdefault(node, []).append(job)
    partitions = tuple(_partition_view(cluster, *pair, conditions) for pair in shaped)
    counts: dict[str | None, Mapping[Condition, int]] = {None: _counts(conditions.values())}
    counts |= {view.name: _counts(one for row in view.rows for one in row.conditions) for view in partitions}
    return Picture(
        cluster=cluster,
        partitions=partitions,
        conditions=conditions,
        counts=counts,
        queue={name: _queue(found) for name, found in jobs.items()},
        tenants={name: tuple(jobs) for name, jobs in tenants.items()},
    )


def _counts(conditions: Iterable[Condition]) -> Mapping[Condition, int]:
    found = Counter(conditions)
    return {one: found[one] for one in Condition if found[one]}


def _partition_view(
    cluster: Cluster, partition: Partition, topology: Topology, conditions: Mapping[str, Condition]
) -> PartitionView:
    rows = tuple(_Rows(cluster, partition, conditions).make(topology))
    return PartitionView(partition, topology, rows, sum((row.tally for row in rows if row.depth == 0), Tally()))
