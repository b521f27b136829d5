"""Whether a job fits on a partition's nodes, when first, and on which nodes then. Pure: the clock is the cluster's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import islice

from hyp_submit.errors import UsageError
from hyp_submit.model import Cluster, Fit, Node, Partition, Seat, Topology
from hyp_submit.place import Taken


class Room:
    """The nodes of one partition by the places (blocks, leaves, or the partition itself) that they are in."""

    def __init__(self, cluster: Cluster, partition: Partition, gpus_per_node: int | None = None) -> None:
        """`gpus_per_node` is what the job asks of each node: nodes with fewer are none of its."""
        self.cluster = cluster
        self.partition = partition
        self.topology: Topology = cluster.topology_of(partition)
        known = cluster.node
        own = [known[name] for name in partition.nodes if name in known]
        self.gpus = gpus_per_node if gpus_per_node is not None else self._common_gpus(own)
        # A snapshot need not say GPUs, and Slurm itself refuses GPUs where there are none.
        counted = any(node.gpus for node in own)
        mine = {node.name for node in own if not counted or node.gpus >= self.gpus}
        if own and not mine:
            most = max(node.gpus for node in own)
            raise UsageError(f"{self.gpus} GPUs a node: those of {partition.name} have {most}")
        places = {
            "block": [(block.name, block.nodes) for block in self.topology.blocks],
            "tree": [(switch.name, switch.nodes) for switch in self.topology.switches if switch.nodes],
            "flat": [(partition.name, partition.nodes)],
        }[self.topology.kind]
        self.names = [name for name, _ in places]
        self.members: list[list[Node]] = [
            sorted((known[name] for name in names if name in mine), key=lambda node: cluster.position[node.name])
            for _, names in places
        ]
        placed = {node.name for nodes in self.members for node in nodes}
        self.loose = sorted(mine - placed, key=lambda name: cluster.position[name])
        self.place_of = {node.name: self.names[i] for i, nodes in enumerate(self.members) for node in nodes}
        self.missing = max(0, sum(group.target for group in cluster.groups_of(partition.name)) - len(own))
        self.release = _release_times(cluster)
        self._free_then: dict[datetime, list[int]] = {}

    def _common_gpus(self, own: Sequence[Node]) -> int:
        """GPUs of the partition's nodes; 0 where it has none. Raises UsageError where they differ."""
        counts = {node.gpus for node in own}
        if len(counts) > 1:
            raise UsageError(
                f"partition {self.partition.name} mixes nodes of {', '.join(map(str, sorted(counts)))} GPUs: "
                "name a partition of one kind (--partition), or say which with --gpus-per-node"
            )
        return counts.pop() if counts else 0

    def base_size(self) -> int:
        """The base block size; where topology.yaml gives none, the largest block."""
        if self.topology.block_sizes:
            return self.topology.block_sizes[0]
        return max((len(nodes) for nodes in self.members), default=1) or 1

    def _counts(self, good: Callable[[Node], bool]) -> list[int]:
        """How many nodes of each place are good."""
        return [sum(map(good, nodes)) for nodes in self.members]

    @cached_property
    def total(self) -> list[int]:
        """How many nodes each place has."""
        return [len(nodes) for nodes in self.members]

    @cached_property
    def healthy(self) -> list[int]:
        """How many nodes of each place are healthy."""
        return self._counts(is_healthy)

    @cached_property
    def free(self) -> list[int]:
        """How many nodes of each place are free now."""
        return self._counts(self.cluster.is_free)

    def free_then(self, moment: datetime) -> list[int]:
        """How many nodes of each place are free once the jobs that end by then have ended."""
        if moment not in self._free_then:
            self._free_then[moment] = self._counts(self.free_at(moment))
        return self._free_then[moment]

    @cached_property
    def moments(self) -> list[datetime]:
        """When healthy nodes of the partition come free, soonest first; without those whose end is not known."""
        free = self.cluster.is_free
        busy = (node for nodes in self.members for node in nodes if node.healthy and not free(node))
        ends = {self.release.get(node.name) for node in busy}
        return sorted(end for end in ends if end is not None)

    def free_at(self, moment: datetime) -> Callable[[Node], bool]:
        """Whether a node is free once the jobs that end by then have ended."""

        def good(node: Node) -> bool:
            end = self.release.get(node.name)
            return self.cluster.is_free(node) or (node.healthy and end is not None and end <= moment)

        return good

    def seats(self, placed: Sequence[Taken], good: Callable[[Node], bool]) -> tuple[Seat, ...]:
        """The nodes of a placement: in each place the first good ones of the node table, as Slurm takes them."""
        pools = [iter([node.name for node in nodes if good(node)]) for nodes in self.members]
        kind = self.topology.kind
        found = []
        for segment, taken in enumerate(placed):
            for place, count in sorted(taken.items()):
                names = tuple(islice(pools[place], count))
                block = self.names[place] if kind == "block" else None
                switch = self.names[place] if kind == "tree" else None
                found.append(Seat(segment, block, switch, names))
        return tuple(found)


def _release_times(cluster: Cluster) -> Mapping[str, datetime | None]:
    """When the last job of each busy node ends; None where one of them has no known end."""
    ends: dict[str, datetime | None] = {}
    for job in cluster.jobs:
        for name in job.nodes if job.holds_nodes else ():
            if name not in ends:
                ends[name] = job.end_time
            elif (known := ends[name]) is not None:
                ends[name] = None if job.end_time is None else max(known, job.end_time)
    return ends


Placer = Callable[[Sequence[int]], "list[Taken] | None"]


def fit(room: Room, placer: Placer, *, possible: bool) -> Fit:
    """Where and when a placement succeeds; `placer` is asked with the number of good nodes of each place.

    Freeing a node never makes a placement fail, so that the earliest start is found by bisection over the moments at
    which nodes come free. `possible` is what holds where not even the healthy nodes do.
    """

    now = room.cluster.taken_at
    placed = placer(room.free)
    if placed is not None:
        return Fit(now=True, ever=True, possible=True, earliest=now, seats=room.seats(placed, room.cluster.is_free))
    on_healthy = placer(room.healthy)
    if on_healthy is None:
        return Fit(now=False, ever=False, possible=possible, earliest=None)
    moments = room.moments
    if not moments or placer(room.free_then(moments[-1])) is None:
        return Fit(now=False, ever=True, possible=True, earliest=None, seats=room.seats(on_healthy, is_healthy))
    low, high = 0, len(moments) - 1
    while low < high:
        middle = (low + high) // 2
        fits = placer(room.free_then(moments[middle])) is not None
        low, high = (low, middle) if fits else (middle + 1, high)
    first = moments[high]
    seats = room.seats(placer(room.free_then(first)) or [], room.free_at(first))
    return Fit(now=False, ever=True, possible=True, earliest=max(first, now), seats=seats)


def is_healthy(node: Node) -> bool:
    """Whether Slurm would ever start a job on the node as things stand."""
    return node.healthy
