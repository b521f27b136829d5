"""Scenarios: what an emulated cluster is at the start, and what happens to it then.

A scenario is a YAML file. It names the groups of the layout that exist, and a timeline. What follows from a happening
is not said by the file: when a group turns InService, what is rolled back and which operations end is up to `course`.

    summary: One sentence.
    speed: 60                # emulated seconds in a real one (default 60)
    durations:               # all optional
      boot: 6m               # from an instance's launch to Running
      slurm: 90s             # how far Slurm lags behind the API, when nodes come and when they go
      listing: 0s            # how far ListClusterNodes lags behind DescribeCluster
      terminate: 15m         # from ShuttingDown until an instance is gone
      deadline: 3h           # how long a group may stay under its MinCount before it is rolled back
    cluster: {status: InService, continuous: true, age: 2d}
    groups:                  # those that exist at the start; what stands under each may be left out
      gb200-a:
        status: Creating     # default InService
        min: 18              # default 1 for Controller and Login groups, else 0
        target: 18           # default: every instance of the layout
        present: 5           # Running instances: a number (in the layout's order), `all` (default) or a list of hosts
        age: 20m             # how long it has had that status; default the cluster's age, 0s if Creating or Updating
        before: {min: 4, target: 4}   # what a rollback returns to; default 0 and 0 if Creating, else min and target
        flexible: [ml.a, ml.b]        # a group of several instance types, whose answers have no InstanceType
    timeline:                # in any order; `at` counts from the start of the emulator
      - {at: 2m, group: gb200-a, arrive: 4}         # or hosts; `checks: 2h` adds deep health checks after the boot
      - {at: 9m, group: gb200-a, capacity_error: true}        # or its message; HyperPod tries again by itself
      - {at: 9m, group: gb200-a, set: {min: 4, target: 6}}    # a person updates the cluster
      - {at: 9m, group: gb200-b, create: {min: 36, target: 36}}   # the same, a group that does not exist yet
      - {at: 9m, group: gb200-a, fail: "why"}                 # the group, for good
      - {at: 9m, group: gb200-a, status: Degraded}            # or SystemUpdating, and InService again
      - {at: 9m, group: gb200-a, deep_health_check: 4, for: 2h}   # of running instances: a number, `all` or hosts
      - {at: 9m, group: gb200-a, delete: true}
      - {at: 9m, fail_node: ip-10-1-3-94, message: "why"}
      - {at: 9m, replace: ip-10-1-3-94}                       # same host, new instance
      - {at: 9m, cluster: Failed, message: "why"}             # the status of the cluster itself
      - {at: 9m, event: "text", level: Warn, message: "why", group: gb200-a}   # an event and nothing else
      - {at: 9m, api_error: ThrottlingException, for: 2m, operations: [DescribeCluster], message: "text"}
                             # without `for` to the end, without `operations` all; `hang` answers nothing

Durations are numbers with units, as in 90s, 6m, 1h30m, 2d. All of them are kept in emulated seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from inside.layout import Layout

FAULTS = (
    "AccessDeniedException",
    "ExpiredTokenException",
    "InternalFailure",
    "ServiceUnavailable",
    "ThrottlingException",
    "hang",
)
"""The errors that a timeline may have the API answer with."""


class ScenarioError(Exception):
    """A scenario that cannot be read or played; the message is one line and names the file and the place in it."""


class GroupStatus(StrEnum):
    """InstanceGroupStatus of the API."""

    IN_SERVICE = "InService"
    CREATING = "Creating"
    UPDATING = "Updating"
    FAILED = "Failed"
    DEGRADED = "Degraded"
    SYSTEM_UPDATING = "SystemUpdating"
    DELETING = "Deleting"


class ClusterStatus(StrEnum):
    """ClusterStatus of the API."""

    CREATING = "Creating"
    DELETING = "Deleting"
    FAILED = "Failed"
    IN_SERVICE = "InService"
    ROLLING_BACK = "RollingBack"
    SYSTEM_UPDATING = "SystemUpdating"
    UPDATING = "Updating"


class Level(StrEnum):
    """ClusterEventLevel of the API."""

    INFO = "Info"
    WARN = "Warn"
    ERROR = "Error"


Selection = int | tuple[str, ...] | None
"""Some instances of a group: the first so many of those in question, the named ones, or (None) all."""


@dataclass(frozen=True, slots=True)
class Durations:
    """How long things take, in emulated seconds; `scenario`'s docstring says what each is."""

    boot: float
    slurm: float
    listing: float
    terminate: float
    deadline: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """MinCount and TargetCount of a group."""

    minimum: int
    target: int


@dataclass(frozen=True, slots=True)
class GroupStart:
    """An instance group as it is when the emulator starts."""

    name: str
    path: str
    status: GroupStatus
    bounds: Bounds
    before: Bounds
    """What a rollback returns to: the bounds that the group was last InService with."""
    present: tuple[str, ...]
    """Hosts whose instances are Running, in the layout's order."""
    age: float
    flexible: tuple[str, ...]
    """The instance types of a flexible group, empty for an ordinary one."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One entry of the timeline; `path` is where the file says it."""

    at: float
    path: str


@dataclass(frozen=True, slots=True)
class GroupHappening(Happening):
    """A happening to one group of the layout."""

    group: str


@dataclass(frozen=True, slots=True)
class Arrive(GroupHappening):
    """Instances are launched; after `checks` seconds of deep health checks (0: none) they are in service."""

    selection: Selection
    checks: float


@dataclass(frozen=True, slots=True)
class CapacityError(GroupHappening):
    """An attempt to launch instances is refused; without a message EC2's own wording is used."""

    message: str | None


@dataclass(frozen=True, slots=True)
class SetBounds(GroupHappening):
    """A person changes MinCount, TargetCount or both (None: as it is)."""

    minimum: int | None
    target: int | None


@dataclass(frozen=True, slots=True)
class Create(GroupHappening):
    """A person adds a group that does not exist."""

    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Fail(GroupHappening):
    """The group fails and stays failed."""

    message: str


@dataclass(frozen=True, slots=True)
class SetStatus(GroupHappening):
    """The group turns Degraded or SystemUpdating, or InService again."""

    status: GroupStatus


@dataclass(frozen=True, slots=True)
class DeepHealthCheck(GroupHappening):
    """Running instances are taken into deep health checks for some time."""

    selection: Selection
    seconds: float


@dataclass(frozen=True, slots=True)
class Delete(GroupHappening):
    """The group is deleted: its instances terminate, then it vanishes."""


@dataclass(frozen=True, slots=True)
class FailNode(Happening):
    """The instance of one host breaks."""

    host: str
    message: str


@dataclass(frozen=True, slots=True)
class Replace(Happening):
    """The instance of one host is replaced by a new one under the same host name."""

    host: str


@dataclass(frozen=True, slots=True)
class SetClusterStatus(Happening):
    """The status of the cluster itself."""

    status: ClusterStatus
    message: str | None


@dataclass(frozen=True, slots=True)
class Announce(Happening):
    """An event that changes nothing."""

    description: str
    level: Level
    group: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Fault(Happening):
    """From `at` until `until` the named operations answer with an error instead."""

    error: str
    operations: frozenset[str]
    until: float
    message: str | None


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole scenario file, checked against a layout."""

    name: str
    source: Path
    summary: str
    speed: float
    durations: Durations
    continuous: bool
    """Whether NodeProvisioningMode is Continuous. Without it there is no SlurmConfig, MinCount, event or operation."""
    cluster_status: ClusterStatus
    age: float
    groups: Mapping[str, GroupStart]
    timeline: tuple[Happening, ...]
    faults: tuple[Fault, ...]


def hosts_of(layout: Layout) -> dict[str, tuple[str, ...]]:
    """The host names of each group's instances, in the layout's order.

    Controllers and login nodes have no names in the layout, being no Slurm nodes of ours; they get their own addresses.
    """
    taken = set(layout.nodes)
    free = (name for name in (f"ip-10-1-{c}-{d}" for c in range(64, 256) for d in range(4, 255)) if name not in taken)
    return {
        group.name: group.nodes if group.partition is not None else tuple(next(free) for _ in range(group.count))
        for group in layout.groups.values()
    }
