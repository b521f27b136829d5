"""Whether a partition is ready for a job: look(observation, latch) -> (Ready | Wait | Failed, latch). No clock here.

Why a latch: a MinCount that is not met within three hours is rolled back, and the group is InService the moment that
happens, with MinCount and TargetCount back at what they were before (0/0 for a new group; AWS, "Continuous provisioning
for Slurm", and DescribeCluster has no reason field). So what the counts were at first sight is kept, and a later
decrease is a rollback, or a person; either way what counts is whether the groups still aim at enough nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from hyp_submit.model import Fit, InstanceGroup

Require = Literal["all", "target"]
"""all: every group of the partition InService, with MinCount met; target: all at TargetCount."""

LOOKS_IN_A_ROW = 2
"""After any wait: the API and Slurm disagree for minutes after a change, so one good look may be a lucky one."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one look found."""

    at: datetime
    nodes: int
    """Nodes that the job needs."""
    partition: str
    partition_state: str | None
    """Slurm's state of the partition; None where Slurm does not know it (yet)."""
    registered: int = 0
    """Nodes of the partition that Slurm knows."""
    usable: int = 0
    """Those of them that are healthy."""
    fit: Fit | None = None
    """The plan's fit; None where there is no partition to plan on."""
    groups: tuple[InstanceGroup, ...] | None = None
    """The groups that feed the partition; None where HyperPod is not asked."""
    cluster_status: str | None = None


@dataclass(frozen=True, slots=True)
class Latch:
    """What earlier looks saw. A fresh one stands for no look at all."""

    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The highest MinCount and TargetCount seen of each group."""
    waited: bool = False
    good: int = 0
    """Good looks in a row."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The job can be submitted."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet; each reason one short phrase, the first the one that matters most."""

    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """It will not become ready by waiting."""

    why: str


Decision = Ready | Wait | Failed


def look(seen: Observation, latch: Latch, require: Require = "all") -> tuple[Decision, Latch]:
    """Judge one look in the light of the earlier ones. Ready at once only if the first look finds all well."""
    latch, rolled_back = _latched(seen, latch)
    failure = _failure(seen, latch, rolled_back)
    if failure is not None:
        return Failed(failure), latch
    waits = [*_slurm_waits(seen), *_group_waits(seen, require)]
    if waits:
        return Wait(tuple(waits)), replace(latch, waited=True, good=0)
    good = latch.good + 1
    latch = replace(latch, good=good)
    if latch.waited and good < LOOKS_IN_A_ROW:
        return Wait(("ready; one more look to be sure",)), latch
    return Ready(), latch


def _latched(seen: Observation, latch: Latch) -> tuple[Latch, list[str]]:
    """The latch with this look's counts, and each decrease in words."""
    counts = dict(latch.counts)
    falls = []
    for group in seen.groups or ():
        before = counts.get(group.name)
        if before is not None and (group.min < before[0] or group.target < before[1]):
            falls.append(
                f"instance group {group.name} was rolled back (or lowered by a person): MinCount {before[0]} -> "
                f"{group.min}, TargetCount {before[1]} -> {group.target}; it is {group.status} with {group.current} "
                "instances"
            )
        low = before or (0, 0)
        counts[group.name] = (max(low[0], group.min), max(low[1], group.target))
    return replace(latch, counts=counts), falls


def _failure(seen: Observation, latch: Latch, rolled_back: Sequence[str]) -> str | None:
    """Why waiting is of no use, or None."""
    if seen.groups is None:
        return None
    history = "".join(f"; {fall}" for fall in rolled_back)
    gone = sorted(set(latch.counts) - {group.name for group in seen.groups})
    lost = [group for group in seen.groups if group.status in {"Failed", "Deleting"}]
    aim = sum(group.target for group in seen.groups)
    if seen.cluster_status in {"Failed", "Deleting"}:
        return f"the HyperPod cluster is {seen.cluster_status}"
    if lost:
        return "; ".join(f"instance group {_counts(group)}" for group in lost)
    if gone:
        return f"instance group {', '.join(gone)} is gone from the cluster"
    if seen.groups and aim < seen.nodes:
        return f"the instance groups of {seen.partition} aim at {aim} instances, the job needs {seen.nodes}{history}"
    if seen.fit is not None and not seen.fit.possible:
        return f"{seen.partition} can no longer hold the job, even complete{history}"
    return None


def _slurm_waits(seen: Observation) -> list[str]:
    """What Slurm's side still lacks."""
    if seen.partition_state is None:
        return [f"Slurm has no partition {seen.partition} yet"]
    if seen.partition_state != "UP":
        return [f"Slurm's partition {seen.partition} is {seen.partition_state}"]
    if seen.usable < seen.nodes:
        return [f"Slurm has {seen.usable} of the {seen.nodes} nodes"]
    if seen.fit is not None and not seen.fit.ever:
        return [f"{seen.usable} usable nodes, but not where the plan needs them"]
    return []


def _group_waits(seen: Observation, require: Require) -> list[str]:
    """What the instance groups still lack.

    An InService group has met its MinCount; a later dip under it, or Degraded, holds back only a job that lacks its
    nodes, which Slurm's side tells.
    """
    if seen.groups is None:
        return []
    if seen.cluster_status == "RollingBack":
        # The mode before continuous provisioning: a group that cannot be filled takes the whole update back.
        return ["the HyperPod cluster is RollingBack"]
    steady = [group for group in seen.groups if group.status in {"InService", "Degraded"}]
    waits = [_counts(group) for group in seen.groups if group not in steady]
    # The surplus of a rollback, or of a person's decrease, is terminated: a job that lands on it is lost with it.
    waits += [f"{_counts(group)}, scaling down" for group in steady if group.current > group.target]
    if require == "target":
        waits += [_counts(group) for group in steady if group.current < group.target]
    return waits


def _counts(group: InstanceGroup) -> str:
    return f"{group.name} {group.status}, {group.current} of {group.target} (MinCount {group.min})"
