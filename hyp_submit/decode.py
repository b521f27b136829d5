"""Foreign text and objects -> the model. Nothing here reads a file or asks a program: it is handed what they said.

Every function raises UsageError (files that a user wrote) or Unreadable (answers of Slurm and AWS) with one line that
names the place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import yaml

from hyp_submit import nodes as names
from hyp_submit.errors import Unreadable, UsageError
from hyp_submit.model import (
    Block,
    Cluster,
    Framework,
    InstanceGroup,
    Job,
    Node,
    Partition,
    Switch,
    Topology,
    TopologyKind,
)
from hyp_submit.workload import SIZES

SNAPSHOT_SCHEMA = "hyp-submit/cluster/1"


def _yaml(text: str) -> Any:
    """YAML by the safe loader, the C one where PyYAML has it (ten times faster on a large topology)."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506


# --- snapshot files ------------------------------------------------------------------------------------------------

_NodeList = str | list[str] | None
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class _Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a snapshot file: every field optional but the name, unknown ones ignored."""


class _WirePartition(_Wire, frozen=True, kw_only=True):
    name: str
    state: str = "UP"
    topology: str | None = None
    nodes: _NodeList = None
    default: bool = False


class _WireNode(_Wire, frozen=True, kw_only=True):
    name: str
    state: list[str] | str = "UNKNOWN"
    gpus: _Count = 0
    gpus_allocated: _Count = 0
    reason: str | None = None


class _WireBlock(_Wire, frozen=True, kw_only=True):
    name: str
    nodes: _NodeList = None


class _WireSwitch(_Wire, frozen=True, kw_only=True):
    name: str
    children: _NodeList = None
    nodes: _NodeList = None


class _WireTopology(_Wire, frozen=True, kw_only=True):
    name: str
    kind: TopologyKind = "flat"
    block_sizes: list[int] = []
    blocks: list[_WireBlock] = []
    switches: list[_WireSwitch] = []


class _WireJob(_Wire, frozen=True, kw_only=True):
    id: int
    user: str = ""
    name: str = ""
    partition: str = ""
    state: str = "UNKNOWN"
    nodes: _NodeList = None
    node_count: _Count | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    segment_size: _Count | None = None
    priority: int | None = None
    reason: str | None = None


class _WireGroup(_Wire, frozen=True, kw_only=True):
    name: str
    status: str = "InService"
    current: _Count = 0
    target: _Count = 0
    min: _Count = 0
    instance_type: str | None = None
    partitions: list[str] = []
    node_type: str | None = None


class _WireCluster(_Wire, frozen=True, kw_only=True, omit_defaults=False):
    schema: str
    taken_at: datetime
    cluster: str = "cluster"
    slurm_version: str | None = None
    scheduler_parameters: dict[str, str | int | float | bool | None] = {}
    partitions: list[_WirePartition] = []
    nodes: list[_WireNode] = []
    topologies: list[_WireTopology] = []
    jobs: list[_WireJob] = []
    instance_groups: list[_WireGroup] = []


def snapshot(text: bytes, place: str) -> Cluster:
    """The cluster of a snapshot file; `place` is the file's name, for errors."""
    try:
        wire = msgspec.json.decode(text, type=_WireCluster)
        return _cluster(wire)
    except (msgspec.MsgspecError, UsageError) as error:
        raise UsageError(f"{place}: not a snapshot: {error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{place}: not a snapshot: not UTF-8 text at byte {error.start}") from error
    except RecursionError as error:
        raise UsageError(f"{place}: not a snapshot: nested too deep") from error
    except OverflowError as error:
        raise UsageError(f"{place}: not a snapshot: a time beyond the calendar") from error


def _cluster(wire: _WireCluster) -> Cluster:
    if wire.schema != SNAPSHOT_SCHEMA:
        raise UsageError(f"$.schema is {wire.schema!r}, this program reads {SNAPSHOT_SCHEMA!r}")
    position = {node.name: place for place, node in enumerate(wire.nodes)}
    if len(position) < len(wire.nodes):
        double = next(node.name for place, node in enumerate(wire.nodes) if position[node.name] != place)
        raise UsageError(f"$.nodes: {double!r} stands there twice")
    return Cluster(
        name=wire.cluster,
        taken_at=_aware(wire.taken_at),
        slurm_version=wire.slurm_version,
        scheduler_parameters={key: str(value) for key, value in wire.scheduler_parameters.items()},
        nodes=tuple(
            Node(node.name, *state(node.state), gpus=node.gpus, gpus_allocated=node.gpus_allocated, reason=node.reason)
            for node in wire.nodes
        ),
        partitions=tuple(
            Partition(
                one.name,
                one.state,
                one.topology,
                _in_table_order(_names(one.nodes, f"$.partitions[{at}].nodes"), position),
                one.default,
            )
            for at, one in enumerate(wire.partitions)
        ),
        topologies=tuple(_wire_topology(one, f"$.topologies[{at}]") for at, one in enumerate(wire.topologies)),
        jobs=tuple(_wire_job(job, f"$.jobs[{at}]") for at, job in enumerate(wire.jobs)),
        instance_groups=tuple(
            InstanceGroup(
                one.name,
                one.status,
                one.current,
                one.target,
                one.min,
                one.instance_type,
                tuple(one.partitions),
                one.node_type,
            )
            for one in wire.instance_groups
        ),
    )


def _wire_topology(one: _WireTopology, place: str) -> Topology:
    return Topology(
        one.name,
        one.kind,
        _block_sizes(one.block_sizes, f"{place}.block_sizes"),
        tuple(
            Block(block.name, _names(block.nodes, f"{place}.blocks[{at}].nodes")) for at, block in enumerate(one.blocks)
        ),
        tuple(
            Switch(
                switch.name,
                _names(switch.children, f"{place}.switches[{at}].children"),
                _names(switch.nodes, f"{place}.switches[{at}].nodes"),
            )
            for at, switch in enumerate(one.switches)
        ),
    )


def _wire_job(job: _WireJob, place: str) -> Job:
    held = _names(job.nodes, f"{place}.nodes")
    return Job(
        id=job.id,
        user=job.user,
        name=job.name,
        partition=job.partition,
        state=job.state,
        nodes=held,
        node_count=len(held) if job.node_count is None else job.node_count,
        start_time=job.start_time and _aware(job.start_time),
        end_time=job.end_time and _aware(job.end_time),
        segment_size=job.segment_size,
        priority=job.priority,
        reason=job.reason,
    )


def _block_sizes(sizes: Sequence[object], place: str) -> tuple[int, ...]:
    """Block sizes as topology/block has them: the base size first, then its doubles. Raises UsageError."""
    found = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0]
    ratios = [size / found[0] for size in found]
    if len(found) < len(sizes) or any(ratio not in {2.0**level for level in range(32)} for ratio in ratios):
        raise UsageError(f"{place}: {list(sizes)} is not a base size and its multiples by 2, 4, 8, ...")
    return tuple(found)


def to_snapshot(cluster: Cluster) -> bytes:
    """The cluster as a snapshot file, indented, ending in a newline."""
    wire = _WireCluster(
        schema=SNAPSHOT_SCHEMA,
        taken_at=cluster.taken_at,
        cluster=cluster.name,
        slurm_version=cluster.slurm_version,
        scheduler_parameters=dict(cluster.scheduler_parameters),
        partitions=[
            _WirePartition(
                name=one.name, state=one.state, topology=one.topology, nodes=_wire_names(one.nodes), default=one.default
            )
            for one in cluster.partitions
        ],
        nodes=[
            _WireNode(
                name=node.name,
                state=[node.base, *sorted(node.flags)],
                gpus=node.gpus,
                gpus_allocated=node.gpus_allocated,
                reason=node.reason,
            )
            for node in cluster.nodes
        ],
        topologies=[
            _WireTopology(
                name=one.name,
                kind=one.kind,
                block_sizes=list(one.block_sizes),
                blocks=[_WireBlock(name=block.name, nodes=_wire_names(block.nodes)) for block in one.blocks],
                switches=[
                    _WireSwitch(
                        name=switch.name,
                        children=list(switch.children) or None,
                        nodes=_wire_names(switch.nodes) or None,
                    )
                    for switch in one.switches
                ],
            )
            for one in cluster.topologies
        ],
        jobs=[
            _WireJob(
                id=job.id,
                user=job.user,
                name=job.name,
                partition=job.partition,
                state=job.state,
                nodes=_wire_names(job.nodes),
                node_count=job.node_count,
                start_time=job.start_time,
                end_time=job.end_time,
                segment_size=job.segment_size,
                priority=job.priority,
                reason=job.reason,
            )
            for job in cluster.jobs
        ],
        instance_groups=[
            _WireGroup(
                name=one.name,
                status=one.status,
                current=one.current,
                target=one.target,
                min=one.min,
                instance_type=one.instance_type,
                partitions=list(one.partitions),
                node_type=one.node_type,
            )
            for one in cluster.instance_groups
        ],
    )
    return msgspec.json.format(msgspec.json.encode(wire), indent=1) + b"\n"


def _names(text: _NodeList, place: str) -> tuple[str, ...]:
    if not isinstance(text, str):
        return tuple(text or ())
    try:
        return names.expand(text)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error


def _wire_names(members: Sequence[str]) -> str | list[str]:
    """The names as a hostlist where that gives them back as they are, else one by one."""
    folded = names.fold(members)
    try:
        return folded if names.expand(folded) == tuple(members) else list(members)
    except UsageError:
        return list(members)


def _in_table_order(members: Sequence[str], position: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(members, key=lambda name: position.get(name, len(position))))


def _aware(moment: datetime) -> datetime:
    """A time without an offset is taken as UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


# --- node states ---------------------------------------------------------------------------------------------------

BASES = frozenset({"UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE"})
"""node_states of slurm.h (25.11), without NODE_STATE_END."""
_ALIASES = {"ALLOC": "ALLOCATED", "MIX": "MIXED", "UNK": "UNKNOWN", "FUTR": "FUTURE", "ERR": "ERROR"}
_IMPLIED = {
    # Compound words of node_state_string(): base and flag in one, the base being what slurmctld would otherwise say.
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"),
    "MAINT": ("IDLE", "MAINTENANCE"),
    "COMPLETING": ("IDLE", "COMPLETING"),
}
_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_ISSUED",
    "^": "REBOOT_REQUESTED",
    "-": "PLANNED",
}
"""The suffixes of sinfo's short states (sinfo(1), NODE STATE CODES)."""


def state(words: str | Iterable[str]) -> tuple[str, frozenset[str]]:
    """A node's base state and flags, from `IDLE+CLOUD+DRAIN`, `idle*`, or the words as a list.

    UNKNOWN as the base where no word is one.
    """
    base = None
    flags: set[str] = set()
    for raw in words.split("+") if isinstance(words, str) else words:
        word = raw.strip().upper()
        while word and word[-1] in _SUFFIXES:
            flags.add(_SUFFIXES[word[-1]])
            word = word[:-1]
        word = _ALIASES.get(word, word)
        if word in BASES:
            base = word
        elif base is None and word in _IMPLIED:
            base, flag = _IMPLIED[word]
            flags.add(flag)
        elif word:
            flags.add(word)
    return base or "UNKNOWN", frozenset(flags)


# --- topology ------------------------------------------------------------------------------------------------------


def topologies(text: str, place: str = "topology.yaml") -> tuple[Topology, ...]:
    """The topologies of topology.yaml, as slurmctld prints it back: each entry one of `block`, `tree` or `flat`.

    slurmctld writes all three keys into each entry, an empty or null one for a kind that it is not.
    """
    try:
        entries = _yaml(text)
    except yaml.YAMLError as error:
        raise Unreadable(f"{place}: not YAML: {' '.join(str(error).split())}") from error
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise Unreadable(f"{place}: expected a list of topologies, found {type(entries).__name__}")
    return tuple(_topology(entry, f"{place}: $[{index}]") for index, entry in enumerate(entries))


def _topology(entry: object, place: str) -> Topology:
    fields = _mapping(entry, place)
    name = str(fields.get("topology", ""))
    try:
        if block := fields.get("block"):
            return _block_topology(name, _mapping(block, f"{place}.block"), f"{place}.block")
        if tree := fields.get("tree"):
            return _tree_topology(name, _mapping(tree, f"{place}.tree"), f"{place}.tree")
    except UsageError as error:
        raise Unreadable(f"{place}: {error}") from error
    return Topology(name, "flat")


def _block_topology(name: str, block: Mapping[str, Any], place: str) -> Topology:
    blocks = [_mapping(one, f"{place}.blocks[{at}]") for at, one in enumerate(_list(block, "blocks", place))]
    return Topology(
        name,
        "block",
        block_sizes=_block_sizes(_list(block, "block_sizes", place), f"{place}.block_sizes"),
        blocks=tuple(Block(str(one.get("block")), names.expand(str(one.get("nodes") or ""))) for one in blocks),
    )


def _tree_topology(name: str, tree: Mapping[str, Any], place: str) -> Topology:
    switches = [_mapping(one, f"{place}.switches[{at}]") for at, one in enumerate(_list(tree, "switches", place))]
    return Topology(
        name,
        "tree",
        switches=tuple(
            Switch(
                str(one.get("switch")),
                names.expand(str(one.get("children") or "")),
                names.expand(str(one.get("nodes") or "")),
            )
            for one in switches
        ),
    )


def _mapping(value: object, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Unreadable(f"{place}: expected a mapping, found {type(value).__name__}")
    return value


def _list(mapping: Mapping[str, Any], key: str, place: str) -> list[Any]:
    """A list that may be missing."""
    value = mapping.get(key) or []
    if not isinstance(value, list):
        raise Unreadable(f"{place}.{key}: expected a list, found {type(value).__name__}")
    return value


def oneline_records(text: str) -> list[dict[str, str]]:
    """`scontrol show ... --oneliner`: a record a line of `Key=value`; a word without `=` goes on the last value."""
    records = []
    for line in text.splitlines():
        record: dict[str, str] = {}
        key = None
        for word in line.split(" "):
            head, equals, tail = word.partition("=")
            if equals and head.replace("_", "").replace(":", "").isalnum():
                key = head
                record[key] = tail
            elif key is not None and word:
                record[key] += " " + word
        if record:
            records.append(record)
    return records


# --- pyslurm -------------------------------------------------------------------------------------------------------


def pyslurm_nodes(nodes: Iterable[Any]) -> tuple[Node, ...]:
    """pyslurm's nodes, in the order given, which is slurmctld's."""
    return tuple(
        Node(
            node.name,
            *state(node.state or ""),
            gpus=_gpus(node.configured_gres),
            gpus_allocated=_gpus(node.allocated_gres),
            reason=node.reason or None,
        )
        for node in nodes
    )


def _gpus(gres: Mapping[str, Any] | None) -> int:
    """The GPUs of a GRES mapping (`{"gpu:h100": 8}`)."""
    return sum(int(count) for name, count in (gres or {}).items() if name.partition(":")[0] == "gpu")


def pyslurm_partitions(
    partitions: Iterable[Any], topology_of: Mapping[str, str], table: Sequence[str]
) -> tuple[Partition, ...]:
    """pyslurm's partitions; `topology_of` says which topology each names, `table` is the order of the node table."""
    position = {name: place for place, name in enumerate(table)}
    return tuple(
        Partition(
            one.name,
            str(one.state or "UNKNOWN"),
            topology_of.get(one.name),
            _in_table_order(names.expand(one.nodes or ""), position),
            bool(one.is_default),
        )
        for one in partitions
    )


NO_LIMIT = 365 * 24 * 60
"""Minutes: the limit that slurmctld writes for a running job that has none (seen on 26.05.5)."""


def pyslurm_jobs(jobs: Iterable[Any]) -> tuple[Job, ...]:
    """pyslurm's jobs, in the order given. A job without a time limit has no end: Slurm writes a limit of a year."""
    return tuple(
        Job(
            id=int(job.id),
            user=str(job.user_name or ""),
            name=str(job.name or ""),
            partition=str(job.partition or ""),
            state=str(job.state or "UNKNOWN"),
            nodes=names.expand(job.allocated_nodes or ""),
            node_count=int(job.num_nodes or 0),
            start_time=_moment(job.start_time),
            end_time=_moment(job.end_time) if 0 < (job.time_limit or 0) < NO_LIMIT else None,
            segment_size=job.segment_size or None,
            priority=job.priority,
            reason=None if job.state_reason in {None, "None"} else str(job.state_reason),
        )
        for job in jobs
    )


def _moment(seconds: Any) -> datetime | None:
    """A time of Slurm's in seconds since 1970; 0 and None are no time."""
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


# --- HyperPod ------------------------------------------------------------------------------------------------------


def instance_groups(answer: Mapping[str, Any]) -> tuple[InstanceGroup, ...]:
    """The instance groups of a DescribeCluster answer, in its order; fields that are missing take their defaults."""
    return tuple(
        InstanceGroup(
            name=str(group.get("InstanceGroupName", "")),
            status=str(group.get("Status", "Unknown")),
            current=int(group.get("CurrentCount") or 0),
            target=int(group.get("TargetCount") or 0),
            min=int(group.get("MinCount") or 0),
            instance_type=group.get("InstanceType"),
            partitions=tuple((group.get("SlurmConfig") or {}).get("PartitionNames") or ()),
            node_type=(group.get("SlurmConfig") or {}).get("NodeType"),
        )
        for group in answer.get("InstanceGroups") or ()
    )


# --- profiles ------------------------------------------------------------------------------------------------------


class _WireFramework(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    title: str
    groups: list[list[str]]
    expert: list[str] = []
    defaults: dict[str, str] = {}
    flags: dict[str, list[str]] = {}
    pp_inside_flags: list[str] = []
    detect: list[str] = []


def framework(text: str, place: str) -> Framework:
    """A framework profile; `place` is the file's name, for errors."""
    try:
        wire = msgspec.convert(_yaml(text), _WireFramework)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageError(f"{place}: {' '.join(str(error).split())}") from error
    unknown = sorted(
        {
            *(size for group in (*wire.groups, wire.expert) for size in group),
            *wire.defaults,
            *wire.defaults.values(),
            *wire.flags,
        }
        - set(SIZES)
    )
    if unknown:
        raise UsageError(f"{place}: no such size: {', '.join(unknown)}; there are {', '.join(SIZES)}")
    return Framework(
        name=wire.name,
        title=wire.title,
        groups=tuple(tuple(group) for group in wire.groups),
        expert=tuple(wire.expert),
        defaults=wire.defaults,
        flags={size: tuple(flags) for size, flags in wire.flags.items()},
        pp_inside_flags=tuple(wire.pp_inside_flags),
        detect=tuple(wire.detect),
    )
