"""Foreign text and objects -> the model. Nothing here reads a file or asks a program: it is handed what they said.

Every function raises UsageError (files that a user wrote) or Unreadable (answers of Slurm and AWS) with one line that
names the place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
import yaml

from hyp_submit import nodes as names
from hyp_submit.errors import Unreadable, UsageError
from hyp_submit.model import (
    Block,
    Framework,
    Instance,
    InstanceGroup,
    Job,
    Node,
    Partition,
    Switch,
    Topology,
)
from hyp_submit.workload import SIZES


def _yaml(text: str) -> Any:
    """YAML by the safe loader, the C one where PyYAML has it (ten times faster on a large topology)."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506


# --- node states ---------------------------------------------------------------------------------------------------

BASES = frozenset({"UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE"})
"""node_states of slurm.h (25.11), without NODE_STATE_END."""
_ALIASES = {
    # sinfo's short words for a base.
    "ALLOC": "ALLOCATED",
    "MIX": "MIXED",
    "UNK": "UNKNOWN",
    "FUTR": "FUTURE",
    "ERR": "ERROR",
}
_COMPOUND = {
    # One word for base and flag. The base is what it would be without: slurmctld has it, the word does not tell.
    **dict.fromkeys(("DRAINED", "DRAIN"), ("IDLE", "DRAIN")),
    **dict.fromkeys(("DRAINING", "DRNG"), ("ALLOCATED", "DRAIN")),
    "FAIL": ("IDLE", "FAIL"),
    **dict.fromkeys(("FAILING", "FAILG"), ("ALLOCATED", "FAIL")),
    "MAINT": ("IDLE", "MAINTENANCE"),
    **dict.fromkeys(("COMPLETING", "COMP"), ("IDLE", "COMPLETING")),
    **dict.fromkeys(("RESERVED", "RESV"), ("IDLE", "RESERVED")),
    **dict.fromkeys(("PLANNED", "PLND"), ("IDLE", "PLANNED")),
    **dict.fromkeys(("REBOOT", "BOOT"), ("IDLE", "REBOOT_REQUESTED")),
    **dict.fromkeys(("REBOOT^", "BOOT^"), ("DOWN", "REBOOT_ISSUED")),
    "INVAL": ("UNKNOWN", "INVALID_REG"),
    **dict.fromkeys(("ALLOCATED+", "ALLOC+"), ("ALLOCATED", "COMPLETING")),
}
"""Words of node_state_string() and node_state_string_compact() (slurm_protocol_defs.c), which is what sinfo prints."""
_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
"""The suffixes of sinfo's states (sinfo(1), NODE STATE CODES)."""


def state(words: str | Iterable[str]) -> tuple[str, frozenset[str]]:
    """A node's base state and flags, from the words joined (`IDLE+CLOUD+DRAIN`), one by one, or as sinfo has them.

    pyslurm and scontrol give `BASE+FLAG+...` (node_state_string_complete()), sinfo one word that hides the rest
    (`drained*`, `mix-`). UNKNOWN as the base where no word tells one.
    """
    return _state(tuple(_split(words) if isinstance(words, str) else words))


@lru_cache(4096)  # a cluster has thousands of nodes, and a handful of states
def _state(words: tuple[str, ...]) -> tuple[str, frozenset[str]]:
    base = implied = None
    flags: set[str] = set()
    for raw in words:
        word = raw.strip().upper()
        while word and word[-1] in _SUFFIXES and word not in _COMPOUND:
            flags.add(_SUFFIXES[word[-1]])
            word = word[:-1]
        word = _ALIASES.get(word, word)
        if word in BASES:
            base = word
        elif word in _COMPOUND:
            implied, flag = _COMPOUND[word]
            flags.add(flag)
        elif word:
            flags.add(word)
    return base or implied or "UNKNOWN", frozenset(flags)


def _split(words: str) -> list[str]:
    """The words of a state, of which the one word `ALLOCATED+` has the joint in it."""
    return [words] if words.strip().upper() in _COMPOUND else words.split("+")


def in_table_order(members: Sequence[str], position: Mapping[str, int]) -> tuple[str, ...]:
    """Names in the order of slurmctld's node table; those that it does not have come last."""
    return tuple(sorted(members, key=lambda name: position.get(name, len(position))))


# --- topology ------------------------------------------------------------------------------------------------------


def topologies(text: str, place: str = "topology.yaml") -> tuple[Topology, ...]:
    """The topologies of topology.yaml, as slurmctld prints it back: each entry one of `block`, `tree` or `flat`.

    slurmctld writes a key for every kind into each entry, an empty or null one for a kind that it is not.
    """
    return topology_file(text, place)[0]


def topology_file(text: str, place: str = "topology.yaml") -> tuple[tuple[Topology, ...], str | None]:
    """The topologies, and the name of the one that partitions without a Topology= use; None where there is none at all.

    That is the one with `cluster_default: true`, else the first (topology.yaml(5); slurmctld prints it first).
    """
    try:
        entries = _yaml(text)
    except yaml.YAMLError as error:
        raise Unreadable(f"{place}: not YAML: {' '.join(str(error).split())}") from error
    if entries is None:
        return (), None
    if not isinstance(entries, list):
        raise Unreadable(f"{place}: expected a list of topologies, found {type(entries).__name__}")
    found = tuple(_topology(entry, f"{place}: $[{index}]") for index, entry in enumerate(entries))
    chosen = (topology.name for topology, entry in zip(found, entries, strict=True) if entry.get("cluster_default"))
    return found, next(chosen, found[0].name if found else None)


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
        block_sizes=block_sizes(_list(block, "block_sizes", place), f"{place}.block_sizes"),
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


def block_sizes(sizes: Sequence[object], place: str) -> tuple[int, ...]:
    """Block sizes as topology/block has them: the base size first, then its doubles. Raises UsageError."""
    found = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0]
    ratios = [size / found[0] for size in found]
    if len(found) < len(sizes) or any(ratio not in {2.0**level for level in range(32)} for ratio in ratios):
        raise UsageError(f"{place}: {list(sizes)} is not a base size and its multiples by 2, 4, 8, ...")
    return tuple(found)


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


# --- pyslurm -------------------------------------------------------------------------------------------------------


def pyslurm_nodes(nodes: Iterable[Any]) -> tuple[Node, ...]:
    """pyslurm's nodes, in the order given, which is slurmctld's."""
    return tuple(
        Node(
            node.name,
            *state(node.state or ""),
            gpus=_gpus(node.configured_gres),
            gpus_allocated=_gpus(node.allocated_gres),
            reason=_text(node, "reason") or None,
        )
        for node in nodes
    )


def _text(thing: Any, attribute: str) -> str:
    """Text of a pyslurm object; "" for none. pyslurm raises for what is not UTF-8: such bytes are replaced here."""
    try:
        return str(getattr(thing, attribute) or "")
    except UnicodeDecodeError as error:
        return bytes(error.object).decode("utf-8", "replace")


def _gpus(gres: Mapping[str, Any] | None) -> int:
    """The GPUs of a GRES mapping: `{"gpu:h100": 8}`, or of what is allocated `{"gpu": 8, "gpu:h100": 8}`.

    Where a plain count stands beside typed ones, it has them in it (TRES of both kinds in AccountingStorageTRES).
    """
    counts = {name: int(count) for name, count in (gres or {}).items() if name.partition(":")[0] == "gpu"}
    return counts["gpu"] if "gpu" in counts else sum(counts.values())


def pyslurm_partitions(
    partitions: Iterable[Any], topology_of: Mapping[str, str], table: Sequence[str], default: str | None = None
) -> tuple[Partition, ...]:
    """pyslurm's partitions; `topology_of` says which topology each names, `table` is the order of the node table.

    `default` is the cluster's default topology (None: it has none), which partitions that name none use.
    """
    position = {name: place for place, name in enumerate(table)}
    return tuple(
        Partition(
            one.name,
            str(one.state or "UNKNOWN"),
            topology_of.get(one.name) or default,
            in_table_order(names.expand(one.nodes or ""), position),
            bool(one.is_default),
        )
        for one in partitions
    )


NO_LIMIT = 365 * 24 * 60
"""Minutes: the limit that slurmctld writes for a running job that has none (seen on 26.05.5)."""


def pyslurm_jobs(jobs: Iterable[Any]) -> tuple[Job, ...]:
    """pyslurm's jobs, in the order of their ids. A job without a time limit has no end: Slurm writes one of a year."""
    return tuple(sorted(map(_job, jobs), key=lambda job: job.id))


def _job(job: Any) -> Job:
    reason = _text(job, "state_reason")
    return Job(
        id=int(job.id),
        user=_text(job, "user_name"),
        name=_text(job, "name"),
        partition=_text(job, "partition"),
        state=_text(job, "state") or "UNKNOWN",
        nodes=names.expand(job.allocated_nodes or ""),
        node_count=int(job.num_nodes or 0),
        start_time=_moment(job.start_time),
        end_time=_moment(job.end_time) if 0 < (job.time_limit or 0) < NO_LIMIT else None,
        segment_size=job.segment_size or None,
        priority=job.priority,
        reason=None if reason in {"", "None"} else reason,
        array=job.array_id or None,
        task=_task(job),
        het=job.heterogeneous_id or None,
        het_offset=(job.heterogeneous_offset or 0) if job.heterogeneous_id else None,
    )


def _task(job: Any) -> str | None:
    """The task's number, or the tasks of the array that still wait; None where the job is in no array.

    pyslurm takes the number 0 for no number: a job of an array with neither number nor tasks to come is its task 0.
    """
    if not job.array_id:
        return None
    if not job.array_tasks_waiting:
        return str(job.array_task_id or 0)
    limit = f"%{job.array_tasks_parallel}" if job.array_tasks_parallel else ""
    return f"{job.array_tasks_waiting}{limit}"


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


def instance(summary: Mapping[str, Any]) -> Instance:
    """One of ListClusterNodes' summaries; fields that are missing take their defaults."""
    host = str(summary.get("PrivateDnsHostname") or "").partition(".")[0]
    return Instance(
        group=str(summary.get("InstanceGroupName", "")),
        node=host or None,
        ultraserver=(summary.get("UltraServerInfo") or {}).get("Id"),
        running=(summary.get("InstanceStatus") or {}).get("Status") == "Running",
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
