"""Snapshot files: a cluster as JSON (schema hyp-submit/cluster/1), to plan and to look at where there is no Slurm."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from hyp_submit import nodes as names
from hyp_submit.decode import block_sizes, in_table_order, state
from hyp_submit.errors import UsageError
from hyp_submit.model import (
    Block,
    Cluster,
    InstanceGroup,
    Job,
    Node,
    Partition,
    Switch,
    Topology,
    TopologyKind,
)

SCHEMA = "hyp-submit/cluster/1"
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
    array: _Count | None = None
    task: str | None = None
    het: _Count | None = None
    het_offset: _Count | None = None


class _WireGroup(_Wire, frozen=True, kw_only=True):
    name: str
    status: str = "InService"
    current: _Count = 0
    target: _Count = 0
    min: _Count = 0
    instance_type: str | None = None
    partitions: list[str] = []
    node_type: str | None = None
    ultraservers: dict[str, _Count] = {}


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


def load(text: bytes, place: str) -> Cluster:
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
    if wire.schema != SCHEMA:
        raise UsageError(f"$.schema is {wire.schema!r}, this program reads {SCHEMA!r}")
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
                in_table_order(_names(one.nodes, f"$.partitions[{at}].nodes"), position),
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
                tuple(one.ultraservers.items()),
            )
            for one in wire.instance_groups
        ),
    )


def _wire_topology(one: _WireTopology, place: str) -> Topology:
    return Topology(
        one.name,
        one.kind,
        block_sizes(one.block_sizes, f"{place}.block_sizes"),
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
        array=job.array,
        task=job.task,
        het=job.het,
        het_offset=job.het_offset,
    )


def dump(cluster: Cluster) -> bytes:
    """The cluster as a snapshot file, indented, ending in a newline."""
    wire = _WireCluster(
        schema=SCHEMA,
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
                array=job.array,
                task=job.task,
                het=job.het,
                het_offset=job.het_offset,
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
                ultraservers=dict(one.ultraservers),
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


def _aware(moment: datetime) -> datetime:
    """A time without an offset is taken as UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
