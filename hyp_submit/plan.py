"""plan(cluster, workload, request) -> Plan: which segment size, whether it fits, when, and why not another.

The choice, worked through: 36 nodes, groups that make the unit u = 6 nodes, four blocks of 18 with 9, 18, 4 and 16
nodes free; a job of 14 nodes in the third block ends in 70 minutes.

1. Candidates are the divisors of 36 that are multiples of 6 and fit a block: 6, 12, 18.
2. Segments needed and free now: 18 needs 2, free 1 (us-2); 12 needs 3, free 2; 6 needs 6, free 1+3+0+2 = 6.
3. Earliest starts: 6 now, 12 and 18 in 70 minutes (then us-3 is whole).
4. The largest that starts within the patience (30 minutes) of the soonest: 6. With `--patience 2h`: 18.

`place` says where Slurm would put a candidate, `fit` whether and when.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from hyp_submit import workload as sizes
from hyp_submit.errors import UsageError
from hyp_submit.fit import Room, fit
from hyp_submit.model import (
    Candidate,
    Census,
    Cluster,
    Fit,
    Framework,
    Group,
    Note,
    Partition,
    Plan,
    Request,
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
    nodes = _node_count(workload, request)
    room = Room(cluster, partition, workload.gpus_per_node)
    gpus = room.gpus
    workload = sizes.complete(replace(workload, nodes=nodes, gpus_per_node=gpus), framework)
    problems = sizes.check(workload, framework)
    if problems:
        raise UsageError("; ".join(problem.message for problem in problems))
    groups = sizes.groups(workload, framework)
    job = _Job(nodes, gpus, groups, sizes.expert_groups(framework, groups), workload)
    notes: list[Note] = []
    if partition.state != "UP":
        notes.append(
            Note("partition-not-up", f"partition {partition.name} is {partition.state}: Slurm starts no job there")
        )
    if request.unmodelled:
        options = ", ".join(f"--{name}" for name in request.unmodelled)
        notes.append(Note("not-modelled", f"{options} may narrow the nodes further than this plan knows"))
    notes += _jobs_ahead(cluster, partition)
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


def _jobs_ahead(cluster: Cluster, partition: Partition) -> Iterable[Note]:
    """That others wait already: when a job starts is then for Slurm's priorities to say, which a plan does not know."""
    waiting = [
        job
        for job in cluster.jobs
        if job.state == "PENDING" and job.reason in _CONTENDING and partition.name in job.partition.split(",")
    ]
    if waiting:
        nodes = sum(job.node_count for job in waiting)
        yield Note(
            "jobs-ahead",
            f"{len(waiting)} job{'s' * (len(waiting) != 1)} ({nodes} nodes) already wait in {partition.name}: "
            "Slurm may start them first, whatever is free",
        )


_CONTENDING = frozenset({None, "Resources", "Priority"})
"""Reasons of waiting jobs that take the next free nodes; others wait for something else."""


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


# --- block topology ------------------------------------------------------------------------------------------------


def _plan_block(room: Room, job: _Job, request: Request, notes: list[Note]) -> Plan:
    base = room.base_size()
    largest = base if room.missing else min(base, max(room.total, default=0))
    segments = _segments(job, request, largest)
    rule, note = _rule(job, segments, largest)
    notes += [note] if note else []
    considered = [_block_candidate(room, job, segment, request, rule(segment)) for segment in segments]
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


_Rule = Callable[[int | None], str | None]
"""Says why a segment size is not legal, or None where it is."""


def _rule(job: _Job, segments: Sequence[int | None], largest: int) -> tuple[_Rule, Note | None]:
    """Which segments keep whole what can be kept whole, and what is given up where not everything can be.

    One block that holds the whole job always does. Else the groups decide, or if they need more than a block the expert
    groups; and where not even those fit, the sizes that cut each group into the fewest pieces.
    """
    if job.unit <= largest or job.nodes <= largest:
        return lambda segment: _splits(job, job.groups, segment, largest), None
    kept = job.expert if sizes.unit(job.expert, job.gpus) <= largest else ()
    wide = [group for group in job.groups if group not in kept and group.gpus > job.gpus]
    lost = ", ".join(f"{group.name} ({group.gpus} GPUs)" for group in wide)
    note = Note(
        "groups-span-blocks",
        f"{lost} cannot stay in one block: a segment would need {job.unit} nodes and a block gives {largest}"
        + (f"; {kept[0].name} is kept whole" if kept else ""),
    )
    if kept:
        return lambda segment: _splits(job, kept, segment, largest), note
    fewest = min(_pieces(job.unit, segment) for segment in segments)

    def rule(segment: int | None) -> str | None:
        pieces = _pieces(job.unit, segment)
        return None if pieces == fewest else f"cuts each group into {pieces} pieces where {fewest} would do"

    return rule, note


def _pieces(unit: int, segment: int | None) -> int:
    """Segments that a run of `unit` nodes touches; a segment that does not divide it cuts one more somewhere."""
    return 1 if segment is None else -(-unit // segment) + (unit % segment > 0)


def _splits(job: _Job, groups: Sequence[Group], segment: int | None, largest: int) -> str | None:
    """Which of the groups a segment would cut, in words; None where none."""
    if segment is None or segment == job.nodes <= largest:
        return None
    cut = [group for group in groups if (segment * job.gpus) % group.gpus]
    return "splits " + " and ".join(f"{group.name} ({group.gpus} GPUs)" for group in cut) if cut else None


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


def _block_candidate(room: Room, job: _Job, segment: int | None, request: Request, illegal: str | None) -> Candidate:
    base = room.base_size()
    count = 1 if segment is None else job.nodes // segment
    per_piece = segment or job.nodes
    sizes_ = room.topology.block_sizes or (base,)

    def placer(counts: Sequence[int]) -> list[Taken] | None:
        if sum(counts) < job.nodes:  # said before a list of pieces is made, however many the user asks for
            return None
        return place_blocks(counts, [per_piece] * count, sizes_, spread=request.spread_segments)

    whole = room.total
    completed = _completed(whole, base, per_piece, room.missing)
    found = fit(room, placer, possible=placer(completed) is not None)
    return Candidate(
        segment=segment,
        needed=count,
        free=whole_segments(room.free, per_piece, base),
        healthy=whole_segments(room.healthy, per_piece, base),
        total=whole_segments(whole, per_piece, base),
        spare=_spare(room, found),
        legal=illegal is None,
        why=illegal,
        fit=found,
        split=_split(room, job, found),
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


def _spare(room: Room, fit: Fit) -> int:
    """Healthy nodes that are left in the tightest block that the placement takes from; 0 where it has no placement."""
    used: dict[str, int] = defaultdict(int)
    for seat in fit.seats:
        used[seat.block or seat.switch or room.partition.name] += len(seat.nodes)
    healthy = dict(zip(room.names, room.healthy, strict=True))
    return min((healthy[place] - count for place, count in used.items()), default=0)


def _rank_order(room: Room, fit: Fit) -> list[str]:
    """The placement's nodes as Slurm would number them."""
    return sorted((name for seat in fit.seats for name in seat.nodes), key=lambda name: room.cluster.position[name])


def _split(room: Room, job: _Job, fit: Fit) -> int:
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


def _rank(candidate: Candidate) -> float:
    """Order of segment sizes; none stands just above 1: Slurm then takes the least number of blocks."""
    return 1.5 if candidate.segment is None else candidate.segment


def _explain(candidate: Candidate, chosen: Candidate) -> Candidate:
    """The candidate with the reason why it lost to the chosen one."""
    if candidate is chosen or candidate.why is not None:
        return candidate
    fit = candidate.fit
    if not fit.possible:
        why = "never enough whole segments"
    elif not fit.ever:
        why = "not on the nodes that are healthy now"
    elif _rank(candidate) < _rank(chosen) and fit.earliest is not None:
        why = "smaller"
    elif fit.earliest is None:
        why = "waits for a job without a known end"
    else:
        why = "starts later than --patience allows"
    return replace(candidate, why=why)


def _block_notes(room: Room, job: _Job, chosen: Candidate, base: int, request: Request) -> Iterable[Note]:
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
            f"touch more than one block{'' if chosen.why else ' although the segments are whole'}",
        )


# --- tree and flat -------------------------------------------------------------------------------------------------


def _plan_tree(room: Room, job: _Job, request: Request, notes: list[Note]) -> Plan:
    spines = _spines(room.topology, room.names)

    def candidate(most: int | None) -> Candidate:
        def placer(counts: Sequence[int]) -> list[Taken] | None:
            taken = place_tree(counts, job.nodes, spines, most_leaves=most)
            return None if taken is None else [taken]

        # What is still to come stands under switches not known yet: at best all under one, beside the others.
        whole = [*room.total, room.missing]
        complete = place_tree(whole, job.nodes, [*spines, list(range(len(whole)))], most_leaves=most)
        found = fit(room, placer, possible=complete is not None)
        return Candidate(
            segment=None,
            needed=1,
            free=whole_segments(room.free, job.nodes, job.nodes),
            healthy=whole_segments(room.healthy, job.nodes, job.nodes),
            total=whole_segments(whole, job.nodes, job.nodes),
            spare=_spare(room, found),
            legal=True,
            why=None,
            fit=found,
            split=_split(room, job, found),
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


def _fewest_leaves(room: Room, nodes: int) -> int | None:
    """The fewest leaf switches whose nodes, all healthy ones or else all, hold the job; None where none do."""
    for counts in (room.healthy, room.total):
        left = nodes
        for used, count in enumerate(sorted(counts, reverse=True), start=1):
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


def _plan_flat(room: Room, job: _Job, request: Request, notes: list[Note]) -> Plan:
    def placer(counts: Sequence[int]) -> list[Taken] | None:
        return [{0: job.nodes}] if counts[0] >= job.nodes else None

    everything = room.total[0] + room.missing
    found = fit(room, placer, possible=everything >= job.nodes)
    chosen = Candidate(
        segment=None,
        needed=1,
        free=room.free[0] // job.nodes,
        healthy=room.healthy[0] // job.nodes,
        total=everything // job.nodes,
        spare=_spare(room, found),
        legal=True,
        why=None,
        fit=found,
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
    room: Room,
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
            total=sum(room.total),
            healthy=sum(room.healthy),
            free=sum(room.free),
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


def _shortfall(room: Room, job: _Job, chosen: Candidate) -> str:
    """Why the job can never fit, in one line."""
    whole = sum(room.total) + room.missing
    if job.nodes > whole:
        name = room.partition.name
        return f"{job.nodes} nodes can never start in {name}: it has {whole}, with all that is still to come"
    if chosen.segment is not None:
        return (
            f"{chosen.needed} segments of {chosen.segment} nodes can never start in {room.partition.name}: "
            f"its blocks hold {chosen.total} with every node healthy"
        )
    return f"{job.nodes} nodes can never start in {room.partition.name} as asked: its topology has no place for them"
