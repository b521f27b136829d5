"""plan(cluster, workload, request) -> Plan: which segment size, whether it fits, when, and why not another.

The choice, worked through: 36 nodes, groups that make the unit u = 6 nodes, four blocks of 18 with 9, 18, 4 and 16
nodes free; a job of 14 nodes in the third block ends in 70 minutes.

1. Candidates are the divisors of 36 that are multiples of 6 and fit a block: 6, 12, 18.
2. Segments needed and free now: 18 needs 2, free 1 (us-2); 12 needs 3, free 2; 6 needs 6, free 1+3+0+2 = 6.
3. Earliest starts: 6 now, 12 and 18 in 70 minutes (then us-3 is whole).
4. The largest that starts within the patience (30 minutes) of the soonest: 6. With `--patience 2h`: 18.

`place` says where Slurm would put a candidate; freeing a node never makes a job not fit, so that the earliest start is
found by bisection over the moments at which nodes come free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from math import ceil

from hyp_submit import workload as sizes
from hyp_submit.errors import UsageError
from hyp_submit.model import (
    Candidate,
    Census,
    Cluster,
    Fit,
    Framework,
    Group,
    Node,
    Note,
    Partition,
    Plan,
    Request,
    Seat,
    Topology,
    Workload,
)
from hyp_submit.place import Taken, place_blocks, place_tree, whole_segments
from hyp_submit.ranks import count_split


def plan(cluster: Cluster, workload: Workload, request: Request, framework: Framework | None = None) -> Plan:
    """Decide how to ask Slurm for the job; the decision is on the cluster as it is in `cluster`.

    Raises UsageError for requests that can never be right (no such partition, no node count, a segment that does not
    divide it, sizes that do not divide the world). A job that merely cannot fit is a Plan whose `fit` says so.
    """
    partition = _partition(cluster, request)
    room = _Room(cluster, partition)
    nodes = _node_count(workload, request)
    gpus = workload.gpus_per_node if workload.gpus_per_node is not None else room.gpus_per_node()
    workload = sizes.complete(replace(workload, nodes=nodes, gpus_per_node=gpus), framework)
    problems = sizes.check(workload, framework)
    if problems:
        raise UsageError("; ".join(problem.message for problem in problems))
    groups = sizes.groups(workload, framework)
    job = _Job(nodes, gpus, groups, sizes.expert_groups(framework, groups), workload)
    notes: list[Note] = []
    if room.loose:
        notes.append(
            Note(
                "nodes-in-no-block",
                f"{len(room.loose)} nodes of {partition.name} are in no block of its topology: Slurm gives them no job "
                f"({', '.join(room.loose[:3])}{', ...' if len(room.loose) > 3 else ''})",
            )
        )
    choose = {"block": _plan_block, "tree": _plan_tree, "flat": _plan_flat}[room.topology.kind]
    return choose(room, job, request, notes)


@dataclass(frozen=True)
class _Job:
    nodes: int
    gpus: int
    groups: tuple[Group, ...]
    expert: tuple[Group, ...]
    workload: Workload

    @property
    def unit(self) -> int:
        return sizes.unit(self.groups, self.gpus)

    @property
    def inner(self) -> int | None:
        return max((group.gpus for group in self.groups), default=None)


class _Room:
    """The nodes of one partition by the places (blocks, leaves, or the partition itself) that they are in."""

    def __init__(self, cluster: Cluster, partition: Partition) -> None:
        self.cluster = cluster
        self.partition = partition
        self.topology: Topology = cluster.topology_of(partition)
        known = cluster.node
        mine = {name for name in partition.nodes if name in known}
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
        self.missing = max(0, sum(group.target for group in cluster.groups_of(partition.name)) - len(mine))
        self.release = _release_times(cluster)

    def gpus_per_node(self) -> int:
        """GPUs of the partition's nodes; 0 where it has none. Raises UsageError where they differ."""
        counts = {node.gpus for nodes in self.members for node in nodes}
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

    def counts(self, good: Callable[[Node], bool]) -> list[int]:
        """How many nodes of each place are good."""
        return [sum(map(good, nodes)) for nodes in self.members]

    def moments(self) -> list[datetime]:
        """When healthy nodes of the partition come free, soonest first; without those whose end is not known."""
        ends = {
            self.release.get(node.name) for nodes in self.members for node in nodes if node.healthy and not node.free
        }
        return sorted(end for end in ends if end is not None)

    def free_at(self, moment: datetime) -> Callable[[Node], bool]:
        """Whether a node is free once the jobs that end by then have ended."""

        def good(node: Node) -> bool:
            end = self.release.get(node.name)
            return node.free or (node.healthy and end is not None and end <= moment)

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


_Placer = Callable[[Sequence[int]], "list[Taken] | None"]


def _fit(room: _Room, placer: _Placer, possible: bool) -> Fit:
    """Where and when a placement succeeds; `placer` is asked with the good nodes of each place."""

    def attempt(good: Callable[[Node], bool]) -> list[Taken] | None:
        return placer(room.counts(good))

    now = room.cluster.taken_at
    free: Callable[[Node], bool] = lambda node: node.free  # noqa: E731
    healthy: Callable[[Node], bool] = lambda node: node.healthy  # noqa: E731
    placed = attempt(free)
    if placed is not None:
        return Fit(now=True, ever=True, possible=True, earliest=now, seats=room.seats(placed, free))
    on_healthy = attempt(healthy)
    if on_healthy is None:
        return Fit(now=False, ever=False, possible=possible, earliest=None)
    moments = room.moments()
    if not moments or attempt(room.free_at(moments[-1])) is None:
        return Fit(now=False, ever=True, possible=True, earliest=None, seats=room.seats(on_healthy, healthy))
    low, high = 0, len(moments) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if attempt(room.free_at(moments[middle])) is not None else (middle + 1, high)
    good = room.free_at(moments[high])
    placed = attempt(good) or []
    return Fit(now=False, ever=True, possible=True, earliest=max(moments[high], now), seats=room.seats(placed, good))


# --- block topology ------------------------------------------------------------------------------------------------


def _plan_block(room: _Room, job: _Job, request: Request, notes: list[Note]) -> Plan:
    base = room.base_size()
    everything = room.counts(lambda _: True)
    largest = base if room.missing else min(base, max(everything, default=0))
    legal_unit, split_note = _legal_unit(job, largest)
    notes += [split_note] if split_note else []
    considered = [
        _block_candidate(room, job, segment, request, base, _illegal(job, segment, legal_unit, largest))
        for segment in _segments(job, request, largest)
    ]
    chosen = _choose(considered, request)
    notes += _block_notes(room, job, chosen, base, request)
    options = [] if chosen.segment is None else [f"--segment={chosen.segment}"]
    options += ["--spread-segments"] if request.spread_segments and chosen.segment is not None else []
    return _finish(
        room,
        job,
        chosen,
        tuple(_explain(candidate, chosen) for candidate in considered),
        segment=chosen.segment,
        segments=None if chosen.segment is None else chosen.needed,
        switches=None,
        options=options,
        notes=notes,
    )


def _legal_unit(job: _Job, largest: int) -> tuple[int, Note | None]:
    """The unit that segments must be a multiple of, and what is given up where no segment can keep all groups whole."""
    if job.unit <= largest or job.nodes <= largest:
        return job.unit, None
    expert = sizes.unit(job.expert, job.gpus)
    kept = job.expert if job.expert and expert <= largest else ()
    lost = ", ".join(
        f"{group.name} ({group.gpus} GPUs)" for group in job.groups if group not in kept and group.gpus > job.gpus
    )
    whole = f"; {job.expert[0].name} is kept whole" if kept else ""
    note = Note(
        "groups-span-blocks",
        f"{lost} cannot stay in one block: a segment would need {job.unit} nodes and a block gives {largest}{whole}",
    )
    return (expert if kept else 1), note


def _segments(job: _Job, request: Request, largest: int) -> list[int | None]:
    """The segment sizes to look at, largest first; None is "no segment"."""
    if request.segment == "none":
        return [None]
    if request.segment is not None:
        if request.segment < 1 or job.nodes % request.segment:
            near = [size for size in _divisors(job.nodes) if size <= largest]
            raise UsageError(
                f"--segment={request.segment} does not divide {job.nodes} nodes, which Slurm refuses: "
                f"use one of {', '.join(map(str, near))}, or another node count"
            )
        return [request.segment]
    fitting = [size for size in _divisors(job.nodes) if size <= largest]
    return [*reversed(fitting[1:]), *([None] if fitting == [1] and job.nodes > 1 else []), 1]


def _illegal(job: _Job, segment: int | None, legal_unit: int, largest: int) -> str | None:
    """Why a segment size would split groups, or None where it keeps what can be kept."""
    if segment is None or segment == job.nodes <= largest:
        return None
    if segment % legal_unit:
        cut = [group for group in job.groups if (segment * job.gpus) % group.gpus]
        return "splits " + " and ".join(f"{group.name} ({group.gpus} GPUs)" for group in cut)
    return None


def _block_candidate(
    room: _Room, job: _Job, segment: int | None, request: Request, base: int, illegal: str | None
) -> Candidate:
    pieces = [job.nodes] if segment is None else [segment] * (job.nodes // segment)
    sizes_ = room.topology.block_sizes or (base,)

    def placer(counts: Sequence[int]) -> list[Taken] | None:
        return place_blocks(counts, pieces, sizes_, spread=request.spread_segments)

    whole = room.counts(lambda _: True)
    completed = _completed(whole, base, pieces[0], room.missing)
    fit = _fit(room, placer, placer(completed) is not None)
    per_piece = segment or job.nodes
    return Candidate(
        segment=segment,
        needed=len(pieces),
        free=whole_segments(room.counts(lambda node: node.free), per_piece, base),
        healthy=whole_segments(room.counts(lambda node: node.healthy), per_piece, base),
        total=whole_segments(whole, per_piece, base),
        spare=_spare(room, fit),
        legal=illegal is None,
        why=illegal,
        fit=fit,
        split=_split(room, job, fit),
    )


def _completed(counts: Sequence[int], base: int, piece: int, missing: int) -> list[int]:
    """Blocks as they could be once the `missing` instances of the groups' targets are there, at best for the job.

    Where an instance will land is not known, so each goes where it completes a segment soonest; what is left over makes
    new blocks of the base size.
    """
    filled = list(counts)
    while missing:
        gains = [
            (-(count % piece) % piece or piece, place)
            for place, count in enumerate(filled)
            if count + (-(count % piece) % piece or piece) <= base
        ]
        if not gains or min(gains)[0] > missing:
            break
        cost, place = min(gains)
        filled[place] += cost
        missing -= cost
    room_left = [base - count for count in filled]
    if piece > base:
        for place in sorted(range(len(filled)), key=lambda place: room_left[place]):
            added = max(0, min(missing, room_left[place]))
            filled[place] += added
            missing -= added
    while missing:
        filled.append(min(base, missing))
        missing -= filled[-1]
    return filled


def _spare(room: _Room, fit: Fit) -> int:
    """Healthy nodes that are left in the tightest block that the placement takes from; 0 where it has no placement."""
    used: dict[str, int] = defaultdict(int)
    for seat in fit.seats:
        used[seat.block or seat.switch or room.partition.name] += len(seat.nodes)
    healthy = dict(zip(room.names, room.counts(lambda node: node.healthy), strict=True))
    return min((healthy[place] - count for place, count in used.items()), default=0)


def _rank_order(room: _Room, fit: Fit) -> list[str]:
    """The placement's nodes as Slurm would number them."""
    return sorted((name for seat in fit.seats for name in seat.nodes), key=lambda name: room.cluster.position[name])


def _split(room: _Room, job: _Job, fit: Fit) -> int:
    return count_split(_rank_order(room, fit), room.place_of, job.gpus, job.inner or 0)


def _choose(considered: Sequence[Candidate], request: Request) -> Candidate:
    """The largest legal segment that starts not much later than the soonest; see the module's worked example.

    Where none starts at a known time: the largest that could ever start, or ever be possible; else simply the largest.
    """
    legal = [candidate for candidate in considered if candidate.legal] or list(considered)
    timed = [(candidate, start) for candidate in legal if (start := candidate.fit.earliest) is not None]
    ever = [candidate for candidate in legal if candidate.fit.ever]
    if timed and request.patience is not None:
        soonest = min(start for _, start in timed)
        return next(candidate for candidate, start in timed if start - soonest <= request.patience)
    for some in (ever, [candidate for candidate in legal if candidate.fit.possible], legal):
        if some:
            return some[0]
    raise AssertionError("a job always has a candidate")


def _explain(candidate: Candidate, chosen: Candidate) -> Candidate:
    """The candidate with the reason why it lost to the chosen one."""
    if candidate is chosen or candidate.why is not None:
        return candidate
    fit = candidate.fit
    if not fit.possible:
        why = "never: too few whole segments even with every node healthy"
    elif not fit.ever:
        why = "not on the nodes that are healthy now"
    elif (candidate.segment or 0) < (chosen.segment or 0):
        why = "smaller"
    elif fit.earliest is None:
        why = "waits for a job without a known end"
    else:
        why = "starts later than --patience allows"
    return replace(candidate, why=why)


def _block_notes(room: _Room, job: _Job, chosen: Candidate, base: int, request: Request) -> Iterable[Note]:
    if chosen.why is not None:
        yield Note("segment-splits-groups", f"--segment={chosen.segment} {chosen.why}")
    if chosen.segment is not None and chosen.segment > base:
        yield Note(
            "segment-over-block",
            f"--segment={chosen.segment} is larger than a block of {base}: Slurm takes it and crosses the NVLink "
            "domain without a word",
        )
    if request.switches not in {None, "none"}:
        yield Note("switches-ignored", f"--switches has no effect: {room.partition.name} has a block topology")
    if chosen.fit.ever and chosen.spare == 0 and job.nodes > 1:
        yield Note(
            "no-spare",
            "no spare node in a block that it fills: after a failure the requeued job waits for the replacement "
            "(20-30 minutes)",
        )
    if chosen.split:
        yield Note(
            "ranks-scattered",
            f"Slurm numbers nodes by name: {chosen.split} of {_group_count(job)} groups of {job.inner} GPUs would "
            "touch more than one block although the segments are whole",
        )


# --- tree and flat -------------------------------------------------------------------------------------------------


def _plan_tree(room: _Room, job: _Job, request: Request, notes: list[Note]) -> Plan:
    spines = _spines(room.topology, room.names)

    def candidate(most: int | None) -> Candidate:
        def placer(counts: Sequence[int]) -> list[Taken] | None:
            taken = place_tree(counts, job.nodes, spines, most_leaves=most)
            return None if taken is None else [taken]

        whole = room.counts(lambda _: True)
        whole = [*whole, room.missing] if room.missing else whole
        fit = _fit(room, placer, placer(whole) is not None)
        return Candidate(
            segment=None,
            needed=1,
            free=whole_segments(room.counts(lambda node: node.free), job.nodes, job.nodes),
            healthy=whole_segments(room.counts(lambda node: node.healthy), job.nodes, job.nodes),
            total=whole_segments(whole, job.nodes, job.nodes),
            spare=_spare(room, fit),
            legal=True,
            why=None,
            fit=fit,
            split=_split(room, job, fit),
        )

    if request.switches == "none":
        most = None
    elif request.switches is not None:
        most = request.switches
    else:
        most = _fewest_leaves(room, job.nodes)
    if request.segment not in {None, "none"}:
        notes.append(Note("segment-ignored", f"--segment has no effect: {room.partition.name} has a tree topology"))
    if most is not None:
        cap = room.cluster.scheduler_parameters.get("max_switch_wait", "300")
        notes.append(
            Note(
                "switches-soft",
                f"--switches={most} holds for {cap} s (max_switch_wait); then Slurm starts the job on more switches",
            )
        )
    chosen = candidate(most)
    return _finish(
        room,
        job,
        chosen,
        (chosen,),
        segment=None,
        segments=None,
        switches=most,
        options=[] if most is None else [f"--switches={most}"],
        notes=notes,
    )


def _fewest_leaves(room: _Room, nodes: int) -> int | None:
    """The fewest leaf switches whose nodes, all healthy ones or else all, hold the job; None where none do."""
    for good in (lambda node: node.healthy, lambda _: True):
        left = nodes
        for used, count in enumerate(sorted(room.counts(good), reverse=True), start=1):
            left -= count
            if left <= 0:
                return used
    return None


def _spines(topology: Topology, leaves: Sequence[str]) -> list[list[int]]:
    """For each switch above the leaves, in the order of the file, the leaves under it by index."""
    index = {name: place for place, name in enumerate(leaves)}
    children = {switch.name: switch.children for switch in topology.switches}

    def under(name: str, seen: frozenset[str]) -> list[int]:
        if name in index:
            return [index[name]]
        if name in seen:
            return []
        return [leaf for child in children.get(name, ()) for leaf in under(child, seen | {name})]

    return [under(switch.name, frozenset()) for switch in topology.switches if switch.children]


def _plan_flat(room: _Room, job: _Job, request: Request, notes: list[Note]) -> Plan:
    def placer(counts: Sequence[int]) -> list[Taken] | None:
        return [{0: job.nodes}] if counts[0] >= job.nodes else None

    everything = room.counts(lambda _: True)[0] + room.missing
    fit = _fit(room, placer, everything >= job.nodes)
    chosen = Candidate(
        segment=None,
        needed=1,
        free=room.counts(lambda node: node.free)[0] // job.nodes,
        healthy=room.counts(lambda node: node.healthy)[0] // job.nodes,
        total=everything // job.nodes,
        spare=_spare(room, fit),
        legal=True,
        why=None,
        fit=fit,
        split=0,
    )
    if job.nodes > 1 and job.gpus:
        notes.append(
            Note("flat", f"{room.partition.name} has no topology: Slurm may put the job on any nodes, near or far")
        )
    for option, given in (("--segment", request.segment), ("--switches", request.switches)):
        if given not in {None, "none"}:
            notes.append(Note("option-ignored", f"{option} has no effect: {room.partition.name} has no topology"))
    return _finish(room, job, chosen, (chosen,), segment=None, segments=None, switches=None, options=[], notes=notes)


# --- common --------------------------------------------------------------------------------------------------------


def _partition(cluster: Cluster, request: Request) -> Partition:
    """The partition asked for, or Slurm's default one."""
    if request.partition is None:
        default = next((partition for partition in cluster.partitions if partition.default), None)
        if default is None:
            raise UsageError(f"no partition named and Slurm has no default one: --partition {_names(cluster)}")
        return default
    if request.partition not in cluster.partition:
        raise UsageError(f"no partition {request.partition!r} in {cluster.name}: there are {_names(cluster)}")
    return cluster.partition[request.partition]


def _names(cluster: Cluster) -> str:
    return ", ".join(partition.name for partition in cluster.partitions) or "none"


def _node_count(workload: Workload, request: Request) -> int:
    nodes = request.nodes if request.nodes is not None else workload.nodes
    if nodes is None:
        raise UsageError("how many nodes? Neither the script nor the command line says: --nodes N")
    if nodes < 1:
        raise UsageError(f"--nodes {nodes}: a job has at least one node")
    return nodes


def _divisors(number: int) -> list[int]:
    """All divisors, smallest first."""
    small = [candidate for candidate in range(1, int(number**0.5) + 1) if number % candidate == 0]
    return sorted({*small, *(number // candidate for candidate in small)})


def _group_count(job: _Job) -> int:
    return ceil(job.nodes * job.gpus / job.inner) if job.inner else 0


def _finish(
    room: _Room,
    job: _Job,
    chosen: Candidate,
    candidates: tuple[Candidate, ...],
    *,
    segment: int | None,
    segments: int | None,
    switches: int | None,
    options: list[str],
    notes: list[Note],
) -> Plan:
    errors: tuple[Note, ...] = ()
    if not chosen.fit.possible:
        errors = (Note("cannot-fit", _shortfall(room, job, chosen)),)
    return Plan(
        partition=room.partition.name,
        topology=room.topology,
        nodes=job.nodes,
        gpus_per_node=job.gpus,
        census=Census(
            total=sum(room.counts(lambda _: True)),
            healthy=sum(room.counts(lambda node: node.healthy)),
            free=sum(room.counts(lambda node: node.free)),
            coming=room.missing,
        ),
        workload=job.workload,
        groups=job.groups,
        inner_gpus=job.inner,
        inner_nodes=job.unit,
        segment=segment,
        segments=segments,
        switches=switches,
        fit=chosen.fit,
        candidates=candidates,
        group_count=_group_count(job),
        group_split=chosen.split,
        sbatch=(f"--partition={room.partition.name}", f"--nodes={job.nodes}", *options),
        warnings=tuple(notes),
        errors=errors,
    )


def _shortfall(room: _Room, job: _Job, chosen: Candidate) -> str:
    """Why the job can never fit, in one line."""
    whole = sum(room.counts(lambda _: True)) + room.missing
    if job.nodes > whole:
        name = room.partition.name
        return f"{job.nodes} nodes can never start in {name}: it has {whole}, with all that is still to come"
    if chosen.segment is not None:
        return (
            f"{chosen.needed} segments of {chosen.segment} nodes can never start in {room.partition.name}: "
            f"its blocks hold {chosen.total} with every node healthy"
        )
    return f"{job.nodes} nodes can never start in {room.partition.name} as asked: its topology has no place for them"
