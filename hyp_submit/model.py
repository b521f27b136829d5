"""The one picture of a cluster, a job's needs and a plan that every other module shares.

Everything here is frozen. Times are aware UTC datetimes. Sequences are tuples; an empty one means "none".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Literal

TopologyKind = Literal["block", "tree", "flat"]

UNUSABLE_BASES = frozenset({"DOWN", "ERROR", "FUTURE", "UNKNOWN"})
UNUSABLE_FLAGS = frozenset(
    {"DRAIN", "FAIL", "NOT_RESPONDING", "NO_RESPOND", "POWERING_DOWN", "POWER_DOWN", "INVALID_REG", "BLOCKED"}
)
BUSY_FLAGS = frozenset({"COMPLETING", "RESERVED", "MAINTENANCE", "REBOOT_ISSUED", "REBOOT_REQUESTED"})

HOLDING_STATES = frozenset(
    {"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED"}
)
"""Job states of slurm.h, base or flag, in which a job has its nodes."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as slurmctld sees it. Its state is a base and a set of flags; what it is good for follows from both."""

    name: str
    base: str
    """IDLE, ALLOCATED, MIXED, DOWN, ... : slurm.h's node_states without the prefix."""
    flags: frozenset[str] = frozenset()
    """CLOUD, DRAIN, COMPLETING, ... : slurm.h's NODE_STATE_* flags without the prefix."""
    gpus: int = 0
    """GPUs (or other accelerators) in its GRES; 0 where it has none."""
    gpus_allocated: int = 0
    reason: str | None = None
    """Why it is drained or down, in the words of whoever did it."""

    @property
    def healthy(self) -> bool:
        """Whether Slurm would ever start a job here as things stand: neither down, drained nor failing.

        A powered-down cloud node counts: slurmctld gives it jobs and powers it up for them.
        """
        return self.base not in UNUSABLE_BASES and not self.flags & UNUSABLE_FLAGS

    @property
    def free(self) -> bool:
        """Whether its state would let a whole-node job start here now; `Cluster.is_free` knows the jobs, too."""
        return self.healthy and self.base == "IDLE" and not self.flags & BUSY_FLAGS

    @property
    def coming(self) -> bool:
        """Whether it is on its way back: powering up, rebooting, or being replaced by HyperPod (`Action:...`)."""
        return bool(self.flags & {"POWERING_UP", "REBOOT_ISSUED", "REBOOT_REQUESTED"}) or (
            not self.healthy and (self.reason or "").startswith("Action:")
        )

    @property
    def state(self) -> str:
        """The state as Slurm writes it, `IDLE+CLOUD+DRAIN`; flags in alphabetical order."""
        return "+".join([self.base, *sorted(self.flags)])


@dataclass(frozen=True, slots=True)
class Block:
    """The nodes of one NVLink domain (one UltraServer), in the order of the topology file."""

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch of a tree. A leaf switch has nodes, any other has children."""

    name: str
    children: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """One topology of the cluster. Blocks and switches keep Slurm's own order: its choices depend on it."""

    name: str
    kind: TopologyKind
    block_sizes: tuple[int, ...] = ()
    """Nodes of a block, base size first, then the sizes of the levels above it; empty where not a block topology."""
    blocks: tuple[Block, ...] = ()
    switches: tuple[Switch, ...] = ()


FLAT = Topology("flat", "flat")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition; `nodes` in the order of the cluster's node table."""

    name: str
    state: str = "UP"
    topology: str | None = None
    """The name of its topology; None: the cluster's default one."""
    nodes: tuple[str, ...] = ()
    default: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the queue."""

    id: int
    user: str
    name: str
    partition: str
    state: str
    nodes: tuple[str, ...] = ()
    """The nodes it has; empty while it waits."""
    node_count: int = 0
    start_time: datetime | None = None
    end_time: datetime | None = None
    """When its time limit ends; None where that is not known (no limit)."""
    segment_size: int | None = None
    priority: int | None = None
    reason: str | None = None
    array: int | None = None
    """The id of the array that it is a task of."""
    task: str | None = None
    """Its number in the array, or those of the tasks that are still to come, as Slurm writes them: `7`, `8-20%4`."""
    het: int | None = None
    """The id of the heterogeneous job that it is a component of."""
    het_offset: int | None = None
    """Which component, from 0."""

    @property
    def holds_nodes(self) -> bool:
        """Whether its nodes are busy with it: slurmctld remembers the nodes of finished jobs for a while, too."""
        return self.state in HOLDING_STATES


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """A HyperPod instance group, from DescribeCluster."""

    name: str
    status: str
    """InService, Creating, Updating, Failed, Degraded, SystemUpdating, Deleting, or a value newer than this program."""
    current: int
    target: int
    min: int = 0
    """MinCount; 0 where the answer has none, which is ordinary continuous scaling."""
    instance_type: str | None = None
    """None for a group of several types (flexible group)."""
    partitions: tuple[str, ...] = ()
    """SlurmConfig.PartitionNames; empty for controller and login groups and for clusters without SlurmConfig."""
    node_type: str | None = None
    ultraservers: tuple[tuple[str, int], ...] = ()
    """Its UltraServers, each with its instances that are there (from ListClusterNodes); () where that was not asked."""


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of a group, from ListClusterNodes."""

    group: str
    node: str | None
    """Its name in Slurm; None while it has no host name."""
    ultraserver: str | None
    """The UltraServer that it is part of; None where the type has none."""
    running: bool


@dataclass(frozen=True, slots=True)
class HyperPod:
    """HyperPod's own side of the cluster, from DescribeCluster."""

    name: str
    status: str
    continuous: bool
    """NodeProvisioningMode Continuous: the only mode with MinCount and events."""
    groups: tuple[InstanceGroup, ...]
    failure: str | None = None
    """FailureMessage of the cluster; groups have none there."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of an instance group."""

    at: datetime
    level: str
    """Info, Warn or Error."""
    text: str
    reason: str | None = None
    """FailureMessage, where there is one."""


@dataclass(frozen=True)
class Cluster:
    """What was read at one moment: Slurm's side, and HyperPod's where it was asked."""

    name: str
    taken_at: datetime
    nodes: tuple[Node, ...] = ()
    """In the order of slurmctld's node table (natural order of names): rank order depends on it."""
    partitions: tuple[Partition, ...] = ()
    topologies: tuple[Topology, ...] = ()
    jobs: tuple[Job, ...] = ()
    instance_groups: tuple[InstanceGroup, ...] = ()
    slurm_version: str | None = None
    scheduler_parameters: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def node(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def position(self) -> Mapping[str, int]:
        """Each node's place in slurmctld's node table."""
        return {node.name: place for place, node in enumerate(self.nodes)}

    @cached_property
    def held(self) -> frozenset[str]:
        """Nodes that a job has, whatever their own state says: those of a suspended job are IDLE."""
        return frozenset(name for job in self.jobs if job.holds_nodes for name in job.nodes)

    def is_free(self, node: Node) -> bool:
        """Whether a whole-node job could start on the node now."""
        return node.free and node.name not in self.held

    @cached_property
    def partition(self) -> Mapping[str, Partition]:
        """Partitions by name."""
        return {partition.name: partition for partition in self.partitions}

    def topology_of(self, partition: Partition) -> Topology:
        """The partition's topology; flat where it names none, or one that does not exist."""
        wanted = partition.topology or "default"
        return next((topology for topology in self.topologies if topology.name == wanted), FLAT)

    def groups_of(self, partition: str) -> tuple[InstanceGroup, ...]:
        """The instance groups that feed a partition, in DescribeCluster's order."""
        return tuple(group for group in self.instance_groups if partition in group.partitions)


@dataclass(frozen=True, slots=True)
class Open:
    """A question that the files leave open, and the flag that settles it."""

    field: str
    why: str
    flag: str


@dataclass(frozen=True, slots=True)
class Workload:
    """The parallel sizes of a training job, as far as they are known (None: not said anywhere)."""

    framework: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    ep: int | None = None
    etp: int | None = None
    dp: int | None = None
    shard: int | None = None
    """GPUs of an HSDP shard group; None where the world is sharded as a whole or not at all."""
    pp_inside: bool = False
    """Whether PP lies inside DP in the rank order (`--use-tp-pp-dp-mapping`)."""
    sources: Mapping[str, str] = field(default_factory=dict)
    open: tuple[Open, ...] = ()


@dataclass(frozen=True, slots=True)
class Framework:
    """How a training framework names its parallel sizes and numbers its ranks: one file of `profiles/frameworks`."""

    name: str
    title: str
    groups: tuple[tuple[str, ...], ...]
    """Each a product of sizes that is a run of consecutive ranks which belongs in one NVLink domain."""
    expert: tuple[str, ...] = ()
    """The one of `groups` that is kept whole when not all of them can be."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Size -> the size that it equals when it is not given."""
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Size -> its command line flags."""
    pp_inside_flags: tuple[str, ...] = ()
    """Flags that put PP inside DP in the rank order."""
    detect: tuple[str, ...] = ()
    """Words of a script by which the framework is known."""


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive ranks that talk most, and so belong in one NVLink domain: `TP x CP = 8 GPUs`."""

    name: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the planner, and what the user fixed."""

    partition: str | None = None
    nodes: int | None = None
    segment: int | Literal["none"] | None = None
    """A segment size, "none" for no segment, None to choose."""
    spread_segments: bool = False
    switches: int | Literal["none"] | None = None
    patience: timedelta | None = timedelta(minutes=30)
    """How much later than the soonest start a larger segment may start; None: however long it takes."""
    unmodelled: tuple[str, ...] = ()
    """sbatch options of the job that narrow its nodes and that a plan does not look at."""


@dataclass(frozen=True, slots=True)
class Note:
    """A warning or an error with its stable code."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Seat:
    """Nodes that a plan takes: of one segment, in one block or under one leaf switch."""

    segment: int
    block: str | None
    switch: str | None
    nodes: tuple[str, ...]
    """In the order of slurmctld's node table."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether and when a request fits: the states of the design, `now` implies `ever` implies `possible`."""

    now: bool
    ever: bool
    possible: bool
    earliest: datetime | None
    seats: tuple[Seat, ...] = ()
    """What it takes at the first moment that it fits; empty when not ever."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One segment size (None: no segment, or nothing to choose on a tree or flat partition)."""

    segment: int | None
    needed: int
    """Segments of that size that the job is made of; 1 where there is no segment."""
    free: int
    """Whole segments that free nodes give now, in all blocks."""
    healthy: int
    """The same with every job gone, on healthy nodes."""
    total: int
    """The same with every node healthy."""
    spare: int
    """Nodes left over in the tightest block that the plan fills: what a failed node can be replaced from."""
    legal: bool
    why: str | None
    """Why it lost, or why it is not legal; None for the one chosen."""
    fit: Fit
    split: int
    """Inner groups that would touch more than one block, in Slurm's own rank order."""


@dataclass(frozen=True, slots=True)
class Census:
    """Nodes of a partition that a job can be placed on."""

    total: int
    healthy: int
    free: int
    coming: int
    """Instances that the groups aim at and Slurm does not know yet."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be asked of Slurm, what it gives, and why."""

    partition: str
    topology: Topology
    census: Census
    nodes: int
    gpus_per_node: int
    workload: Workload
    groups: tuple[Group, ...]
    inner_gpus: int | None
    """The largest group, in GPUs; None where nothing has to be kept whole."""
    inner_nodes: int
    """The unit: a segment must be a multiple of this many nodes to keep every group whole."""
    segment: int | None
    segments: int | None
    switches: int | None
    fit: Fit
    candidates: tuple[Candidate, ...]
    group_count: int
    group_split: int
    sbatch: tuple[str, ...]
    warnings: tuple[Note, ...] = ()
    errors: tuple[Note, ...] = ()

    @property
    def world_size(self) -> int:
        """GPUs, which is ranks, of the whole job."""
        return self.nodes * self.gpus_per_node
