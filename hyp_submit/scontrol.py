"""What `scontrol show ...` and `squeue` print -> the model: the second way to read a cluster, where pyslurm cannot.

Text only: the JSON forms of the same commands take many times longer and gigabytes on a large cluster. What is returned
equals what `decode` makes of pyslurm's objects for the same cluster.

Each function that reads records gives them in the order printed, with notes: a record that cannot be understood is left
out, and one line says how many were and why the first was. Fields that are missing take the model's defaults. None
raises anything but what its docstring says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeVar

from hyp_submit import nodes as names
from hyp_submit.decode import NO_LIMIT, in_table_order, state
from hyp_submit.errors import Unreadable, UsageError
from hyp_submit.model import Block, Job, Node, Partition, Switch, Topology

Notes = tuple[str, ...]
_T = TypeVar("_T")
_R = TypeVar("_R")
_STATE = lru_cache(maxsize=512)(state)
"""Thousands of nodes share a handful of states."""


def oneline_records(text: str) -> list[dict[str, str]]:
    """`scontrol show ... --oneliner`: a record a line of `Key=value`; a word without `=` goes on the last value."""
    records = []
    for line in text.split("\n"):
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


def _rows(what: str, records: Iterable[_R], parse: Callable[[_R], _T]) -> tuple[tuple[_T, ...], Notes]:
    """Every record that `parse` understands, and a note on the others."""
    found = []
    faults = []
    for record in records:
        try:
            found.append(parse(record))
        except (ValueError, OverflowError, OSError, UsageError) as error:  # int() and fromtimestamp() raise the former
            faults.append(f"{error}")
    if not faults:
        return tuple(found), ()
    return tuple(found), (f"{len(faults)} of {len(faults) + len(found)} {what} left out: {faults[0]}",)


# --- nodes ---------------------------------------------------------------------------------------------------------

_SIGNED = re.compile(r"(.*?) \[[^\[\]@ ]+@[^\[\] ]*\]( {8}.*?)?(?= Comment=| Extra=|$)")
_UNSIGNED = re.compile(r"(.*?)()(?= Comment=| Extra=|$)")
_NEXT_LINE = " " * 8
"""What --oneliner writes for a line break inside a reason."""


def nodes(text: str) -> tuple[tuple[Node, ...], Notes]:
    """`scontrol show nodes --oneliner`, in slurmctld's own order, which is that of its node table."""
    found, notes = _rows("nodes", _lines(text, "NodeName="), _node)
    unique = {node.name: node for node in reversed(found)}
    return tuple(node for node in found if unique[node.name] is node), notes


def _lines(text: str, start: str) -> list[str]:
    """The lines that begin a record; other words of scontrol's ("No nodes in the system") are none."""
    return [line.rstrip(" ") for line in text.split("\n") if line.startswith(start)]


def _node(line: str) -> Node:
    """One node. Its own words (reason, comment, extra) come last, so the first place of every other key is its own."""
    name = _value(line, "NodeName")
    if not name:
        raise ValueError("a node without a name")
    return Node(
        name,
        *_STATE(_value(line, "State")),
        gpus=gpus(_value(line, "Gres")),
        gpus_allocated=allocated_gpus(_value(line, "AllocTRES")),
        reason=_reason(line),
    )


def _value(line: str, key: str) -> str:
    """The value of the first `Key=`, up to the next space; "" where there is none."""
    _, found, rest = f" {line}".partition(f" {key}=")
    return rest.partition(" ")[0] if found else ""


def _reason(line: str) -> str | None:
    """The reason without who gave it and when (` [root@2026-11-30T17:19:03]`), which stands behind its first line.

    A comment and the extra field come behind the reason, and may say `Reason=` too.
    """
    before, _, rest = line.partition(" Reason=")
    if not rest or " Comment=" in before or " Extra=" in before:
        return None
    match = _SIGNED.match(rest) or _UNSIGNED.match(rest)
    return match and (match[1] + (match[2] or "").replace(_NEXT_LINE, "\n") or None)


_GRES = re.compile(r"(?:gres[:/])?gpu(?::[^:,()]+)??(?::(\d+)([KMGTP]?))?(?:\([^)]*\))?")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


def gpus(gres: str) -> int:
    """The GPUs of a node's Gres (`gpu:h100:8(S:0-1),mps:400`); one where no count is written."""
    items = re.split(r",(?![^()]*\))", gres)
    return sum(_count(match) for item in items if (match := _GRES.fullmatch(item)))


def _count(match: re.Match[str]) -> int:
    return int(match[1]) * _UNITS[match[2]] if match[1] else 1


def allocated_gpus(tres: str) -> int:
    """The GPUs of AllocTRES (`cpu=64,gres/gpu=8,gres/gpu:h100=8`): the plain count has every type's in it.

    Slurm counts GPUs there only where AccountingStorageTRES has gres/gpu.
    """
    counts = dict(item.split("=", 1) for item in tres.split(",") if item.startswith("gres/gpu") and "=" in item)
    if "gres/gpu" in counts:
        return int(counts["gres/gpu"])
    return sum(int(count) for name, count in counts.items() if name.startswith("gres/gpu:"))


# --- partitions ----------------------------------------------------------------------------------------------------


def partitions(text: str, table: Sequence[str], default: str | None) -> tuple[tuple[Partition, ...], Notes]:
    """`scontrol show partition --oneliner`; `table` is the order of the node table.

    `default` is the cluster's default topology (None: it has none), which partitions without a Topology= use.
    """
    position = {name: place for place, name in enumerate(table)}

    def parse(record: Mapping[str, str]) -> Partition:
        return Partition(
            record["PartitionName"],
            record.get("State") or "UNKNOWN",
            record.get("Topology") or default,
            in_table_order(names.expand(record.get("Nodes", "")), position),
            record.get("Default") == "YES",
        )

    return _rows("partitions", [record for record in oneline_records(text) if record.get("PartitionName")], parse)


def partition_topologies(text: str) -> Mapping[str, str]:
    """Partition -> the topology that it names, from `scontrol show partition --oneliner`; nothing for the others."""
    return {
        record["PartitionName"]: record["Topology"]
        for record in oneline_records(text)
        if record.get("PartitionName") and record.get("Topology")
    }


# --- topology ------------------------------------------------------------------------------------------------------

CLUSTER_WIDE = "default"
"""The name that the one topology of a topology.conf gets: it has none."""


def cluster_topology(text: str) -> Topology | None:
    """The one topology of `scontrol show topology`, as Slurm has it that is set up by a topology.conf.

    None where it says that there is none, which is the flat one. `AggregatedBlock` lines are levels above the blocks.
    Raises Unreadable with the faulty text.
    """
    records = oneline_records(text)
    try:
        if switches := [record for record in records if "SwitchName" in record]:
            return Topology(CLUSTER_WIDE, "tree", switches=tuple(map(_switch, switches)))
        if any("BlockName" in record for record in records):
            return _blocks(records)
    except (ValueError, UsageError) as error:
        raise Unreadable(f"scontrol show topology: {error}") from error
    return None


def _switch(record: Mapping[str, str]) -> Switch:
    """A switch. Those with children print the nodes below them, too, which are their leaves' own."""
    children = names.expand(record.get("Switches", ""))
    return Switch(record["SwitchName"], children, () if children else names.expand(record.get("Nodes", "")))


def _blocks(records: Iterable[Mapping[str, str]]) -> Topology:
    """Blocks in the order of BlockIndex, and the sizes of all levels; before 24.11 no size is printed.

    The base size is then that of the smallest block, Slurm's own default (topology.conf(5), BlockSizes).
    """
    blocks = [record for record in records if "BlockName" in record]
    blocks.sort(key=lambda record: int(record.get("BlockIndex", 0)))
    found = tuple(Block(record["BlockName"], names.expand(record.get("Nodes", ""))) for record in blocks)
    sizes = {int(record["BlockSize"]) for record in records if record.get("BlockSize")}
    smallest = min((len(block.nodes) for block in found if block.nodes), default=0)
    return Topology(
        CLUSTER_WIDE,
        "block",
        block_sizes=tuple(sorted(size for size in sizes or {smallest} if size > 0)),
        blocks=found,
    )


# --- configuration -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """What matters here of Slurm's configuration."""

    cluster: str = "slurm"
    version: str | None = None
    scheduler_parameters: Mapping[str, str] = field(default_factory=dict)
    """SchedulerParameters, as `parameters` reads it."""
    private: frozenset[str] = frozenset()
    """PrivateData: what slurmctld tells only those whom it concerns."""


def values(text: str) -> Mapping[str, str]:
    """`scontrol show config`: `Key = value` lines; `(null)` and a missing line are no value."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        key, equals, value = line.partition("=")
        if equals and value.strip() != "(null)":
            found.setdefault(key.strip(), value.strip())
    return found


def settings(text: str) -> Settings:
    """What matters of `scontrol show config`."""
    found = values(text)
    return Settings(
        cluster=found.get("ClusterName") or "slurm",
        version=found.get("SLURM_VERSION"),
        scheduler_parameters=parameters(found.get("SchedulerParameters", "")),
        private=frozenset(found.get("PrivateData", "none").split(",")) - {"none", ""},
    )


def parameters(text: str) -> Mapping[str, str]:
    """SchedulerParameters: `a=1,b` is {"a": "1", "b": "True"}; numbers without leading zeros, as pyslurm has them."""
    pairs = (item.partition("=") for item in text.split(",") if item)
    return {
        key: (str(int(value)) if value.isdecimal() else value) if equals else "True" for key, equals, value in pairs
    }


# --- jobs ----------------------------------------------------------------------------------------------------------

JOB_FIELDS = (
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "HetJobOffset",
    "UserName",
    "Partition",
    "State",
    "NodeList",
    "NumNodes",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "PriorityLong",
    "Reason",
    "Name",
)
SEGMENT_FIELD = "SegmentSize"
"""A field that older releases of squeue do not have."""
_NOTHING = frozenset({"", "N/A", "NONE", "None", "Unknown", "(null)"})


def queue_format(fields: Sequence[str], mark: str) -> str:
    """The argument of `squeue --Format` by which `jobs` can tell the fields apart, whatever a job is called.

    Each field ends in the mark, which nobody who named a job could know: take a new random one for every call, of
    letters and digits. Width 0 is "as long as it is"; a width has to be given for the suffix to be read.
    """
    return ",".join(f"{field}:0|{mark}|" for field in fields)


def jobs(text: str, fields: Sequence[str], mark: str) -> tuple[tuple[Job, ...], Notes]:
    """`squeue --noheader --Format` as `queue_format` has it, in the order of job ids.

    Times are seconds since 1970 (SLURM_TIME_FORMAT=%s). A job without a time limit has no end. squeue folds all waiting
    tasks of an array into the array's record, those too that slurmctld has as jobs of their own, because they were
    held, changed or requeued one by one: these are the only jobs that pyslurm shows and this reader does not.
    """
    pieces = text.split(f"|{mark}|")[:-1]
    width = len(fields)
    # The line break behind a record stands at the head of the next one's first field, a number.
    records = [pieces[at : at + width] for at in range(0, len(pieces), width)]
    found, notes = _rows("jobs", records, lambda values: _job(dict(zip(fields, values, strict=True))))
    return tuple(sorted(found, key=lambda job: job.id)), notes


def _job(record: Mapping[str, str]) -> Job:
    array = _number(record["ArrayJobID"]) if record["ArrayTaskID"] not in _NOTHING else None
    het = _number(record["HetJobID"]) or None
    return Job(
        id=int(record["JobID"]),
        user=record["UserName"],
        name=record["Name"],
        partition=record["Partition"],
        state=record["State"] or "UNKNOWN",
        nodes=names.expand(record["NodeList"]),
        node_count=_number(record["NumNodes"]) or 0,
        start_time=_moment(record["StartTime"]),
        end_time=_moment(record["EndTime"]) if 0 < _minutes(record["TimeLimit"]) < NO_LIMIT else None,
        segment_size=_number(record.get(SEGMENT_FIELD, "")) or None,
        priority=_number(record["PriorityLong"]),
        reason=None if record["Reason"] in _NOTHING else record["Reason"],
        array=array,
        task=record["ArrayTaskID"] if array is not None else None,
        het=het,
        het_offset=None if het is None else _number(record["HetJobOffset"]) or 0,
    )


def _number(text: str) -> int | None:
    return None if text in _NOTHING else int(text)


def _moment(text: str) -> datetime | None:
    """A time in seconds since 1970; 0 and words are no time."""
    return datetime.fromtimestamp(int(text), UTC) if text.isdecimal() and int(text) else None


_LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


def _minutes(text: str) -> int:
    """A time limit (`5:00`, `1-00:00:00`) in whole minutes; 0 for words, which are no limit (UNLIMITED, NOT_SET)."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        return 0
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes


# --- what is hidden ------------------------------------------------------------------------------------------------


def hidden(private: Iterable[str]) -> Notes:
    """What slurmctld may be keeping from this user, and what follows from it: one note for PrivateData=jobs.

    With `nodes` or `partitions` among them slurmctld refuses to answer at all (seen on 26.05), so nothing is read.
    """
    if "jobs" not in private:
        return ()
    return ("PrivateData=jobs: jobs of others may be missing here, and with them when their nodes come free",)
