"""What an emulated cluster is at one moment. Everything here is frozen; times are emulated seconds since the start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from .scenario import Bounds, ClusterStatus, GroupStatus, Level


class InstanceStatus(StrEnum):
    """ClusterInstanceStatus of the API, as far as the emulator uses it."""

    PENDING = "Pending"
    RUNNING = "Running"
    FAILURE = "Failure"
    SHUTTING_DOWN = "ShuttingDown"
    SYSTEM_UPDATING = "SystemUpdating"
    DEEP_HEALTH_CHECK = "DeepHealthCheckInProgress"


class OperationStatus(StrEnum):
    """ClusterOperationStatus of the API: there is none for a failure."""

    IN_PROGRESS = "InProgress"
    SUPERSEDED = "Superseded"
    DONE = "Done"


class Resource(StrEnum):
    """ClusterEventResourceType of the API."""

    CLUSTER = "Cluster"
    GROUP = "InstanceGroup"
    INSTANCE = "Instance"


@dataclass(frozen=True, slots=True)
class Instance:
    """One EC2 instance; a replacement on the same host is another one."""

    host: str
    id: str
    logical_id: str
    launched: float
    serial: int
    """Counts the launches in the cluster: what is newer has the higher one."""
    status: InstanceStatus = InstanceStatus.PENDING
    message: str | None = None
    counted: bool = False
    """Whether CurrentCount includes it: from when it is first Running until it breaks or is gone."""
    registered: bool = False
    """Whether Slurm knows its node."""

    @property
    def leaving(self) -> bool:
        """Whether it is being terminated."""
        return self.status is InstanceStatus.SHUTTING_DOWN


@dataclass(frozen=True, slots=True)
class Group:
    """An instance group that exists."""

    name: str
    status: GroupStatus
    bounds: Bounds
    last_good: Bounds
    """The bounds that it was last InService with: what a rollback returns to."""
    instances: tuple[Instance, ...]
    """In the order of their launch."""
    created: float
    deadline: float | None = None
    """When it is rolled back unless MinCount has been met; None while nothing is awaited."""
    software_update: str | None = None
    """SoftwareUpdateStatus of the API; None if there was no update."""
    flexible: tuple[str, ...] = ()

    @property
    def current(self) -> int:
        """CurrentCount of the API."""
        return sum(instance.counted for instance in self.instances)

    @property
    def staying(self) -> tuple[Instance, ...]:
        """The instances that are not being terminated, oldest first."""
        return tuple(instance for instance in self.instances if not instance.leaving)

    def missing(self, hosts: tuple[str, ...]) -> list[str]:
        """Those of the group's hosts that have no instance, not even one that is being terminated."""
        there = {instance.host for instance in self.instances}
        return [host for host in hosts if host not in there]


@dataclass(frozen=True, slots=True)
class Counts:
    """A group's size and its bounds at one time."""

    current: int
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Scaling:
    """What a Scaling operation was asked for."""

    original: Counts
    desired: Bounds


@dataclass(frozen=True, slots=True)
class Operation:
    """A Scaling operation, or (with `checked` instances instead) one of type DeepHealthCheck."""

    id: str
    group: str
    created: float
    status: OperationStatus
    scaling: Scaling | None = None
    checked: tuple[str, ...] = ()
    """Ids of the instances in deep health checks."""


@dataclass(frozen=True, slots=True)
class Event:
    """One cluster event. `failure` is the FailureMessage, which only DescribeClusterEvent tells."""

    id: str
    at: float
    level: Level
    resource: Resource
    description: str
    group: str | None = None
    instance: str | None = None
    """Instance id."""
    logical_id: str | None = None
    operation: str | None = None
    failure: str | None = None
    counts: Counts | None = None
    """For events of a group about its size."""


@dataclass(frozen=True, slots=True)
class State:
    """The whole cluster."""

    status: ClusterStatus
    failure: str | None
    groups: Mapping[str, Group]
    operations: tuple[Operation, ...]
    """In the order in which they began, save that those from before the start come first, group by group."""
    events: tuple[Event, ...]
    """Likewise."""

    def instances(self) -> Iterator[tuple[Group, Instance]]:
        """Every instance with its group."""
        for group in self.groups.values():
            for instance in group.instances:
                yield group, instance

    def instance_on(self, host: str) -> tuple[Group, Instance] | None:
        """The instance that a host has and is not about to lose."""
        return next(((g, i) for g, i in self.instances() if i.host == host and not i.leaving), None)

    def running_operation(self, group: str) -> Operation | None:
        """The Scaling operation of a group that is in progress: there is at most one."""
        return next(
            (o for o in self.operations if o.group == group and o.scaling and o.status is OperationStatus.IN_PROGRESS),
            None,
        )

    def registered(self) -> frozenset[str]:
        """The hosts that Slurm should know as nodes by now; controllers and login nodes are counted in."""
        return frozenset(instance.host for _, instance in self.instances() if instance.registered)
