"""How an emulated cluster changes: a scenario is played to its end in emulated time, without clock, threads or chance.

The rules of groups are those of continuous provisioning with MinCount
(https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-scaling-slurm.html):

- A group is Creating (Updating, if it existed) until CurrentCount reaches MinCount; then it is InService and goes on
  scaling.
- If that takes more than three hours since MinCount was last set, the group is InService *at once*, with the bounds
  that it was last InService with (0 and 0 for a new group), and its surplus instances are terminated: unhealthy ones
  first, then the newest. CurrentCount stays above TargetCount while they are.
- A later dip under MinCount changes nothing.

Not documented, and so choices of ours: the texts of the two events of MinCount; that a rollback ends the operation as
Done and starts no new one; that CurrentCount includes instances that are shutting down, and none that was never
Running; that a replacement keeps its NodeLogicalId.
"""

from __future__ import annotations

import hashlib
import heapq
import uuid
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, singledispatchmethod
from itertools import count

from inside.layout import Layout

from .scenario import (
    Announce,
    Arrive,
    Bounds,
    CapacityError,
    Create,
    DeepHealthCheck,
    Delete,
    Fail,
    FailNode,
    Fault,
    GroupHappening,
    GroupStart,
    GroupStatus,
    Happening,
    Level,
    Replace,
    Scenario,
    ScenarioError,
    Selection,
    SetBounds,
    SetClusterStatus,
    SetStatus,
    hosts_of,
)
from .state import (
    Counts,
    Event,
    Group,
    Instance,
    InstanceStatus,
    Operation,
    OperationStatus,
    Resource,
    Scaling,
    State,
)

WAITING = (GroupStatus.CREATING, GroupStatus.UPDATING)
"""The statuses of a group whose MinCount has not been met yet."""

ENDED = (GroupStatus.FAILED, GroupStatus.DELETING)
"""The statuses that a group does not come back from."""


@dataclass(frozen=True, slots=True)
class Course:
    """Everything that will happen in a scenario. All times are emulated seconds since the start."""

    layout: Layout
    scenario: Scenario
    times: tuple[float, ...]
    """When something changes, ascending, from 0."""
    states: tuple[State, ...]
    """What the cluster is from each of `times` on."""

    def state_at(self, seconds: float) -> State:
        """What the cluster is at that time; before the start it is as at the start."""
        return self.states[max(bisect_right(self.times, seconds) - 1, 0)]

    def logical_id(self, host: str) -> str:
        """NodeLogicalId of a host's instances, past and future."""
        return _uuid(self.layout, "node", host)

    def fault_at(self, seconds: float, operation: str) -> Fault | None:
        """The error that the operation is to answer with at that time; of several the one that began last."""
        faults = [f for f in self.scenario.faults if f.at <= seconds < f.until and operation in f.operations]
        return max(faults, key=lambda fault: fault.at, default=None)


def play(layout: Layout, scenario: Scenario) -> Course:
    """Work out the whole course of a scenario. Raises `ScenarioError` for a timeline that contradicts itself."""
    return _Play(layout, scenario).run()


class _Play:
    """A scenario being played: the present state, and the agenda of what is still to come."""

    def __init__(self, layout: Layout, scenario: Scenario) -> None:
        self.layout = layout
        self.scenario = scenario
        self.hosts = hosts_of(layout)
        self.now = 0.0
        self.state = State(scenario.cluster_status, None, {}, (), ())
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._serial = count()

    def run(self) -> Course:
        for start in self.scenario.groups.values():
            self._start(start)
        for happening in self.scenario.timeline:
            self._at(happening.at, partial(self._happen, happening))
        self._settle()
        times, states = [0.0], [self.state]
        while self._agenda:
            self.now, _, action = heapq.heappop(self._agenda)
            action()
            self._settle()
            if self.now == times[-1]:
                states[-1] = self.state
            elif self.state != states[-1]:
                times.append(self.now)
                states.append(self.state)
        return Course(self.layout, self.scenario, tuple(times), tuple(states))

    # The start

    def _start(self, start: GroupStart) -> None:
        since = -start.age
        group = Group(
            name=start.name,
            status=start.status,
            bounds=start.bounds,
            last_good=start.before,
            instances=tuple(
                replace(self._new_instance(host, since), status=InstanceStatus.RUNNING, counted=True, registered=True)
                for host in start.present
            ),
            created=since,
            software_update="InProgress" if start.status is GroupStatus.SYSTEM_UPDATING else None,
            flexible=start.flexible,
        )
        self._put(group)
        if start.status in WAITING:
            before = 0 if start.status is GroupStatus.CREATING else min(group.current, start.before.target)
            self._begin_scaling(group, Counts(before, start.before), since)
            self._await_minimum(start.name, since)
            deadline = self.state.groups[start.name].deadline
            if deadline is not None and deadline <= 0:
                raise self._error(f"{start.path}.age", "the deadline of the group would be over before the start")
        if start.status is GroupStatus.DELETING:
            self._remove(start.name)

    # What the timeline says

    @singledispatchmethod
    def _happen(self, happening: Happening) -> None:
        raise AssertionError(f"not a happening of the timeline: {happening}")

    @_happen.register
    def _arrive(self, happening: Arrive) -> None:
        group = self._existing(happening)
        missing = group.missing(self.hosts[group.name])
        arriving = self._selected(happening, missing, happening.selection, "not there yet")
        if len(group.staying) + len(arriving) > group.bounds.target:
            raise self._error(
                happening.path, f"{group.name} would have more instances than its target ({group.bounds.target})"
            )
        for host in arriving:
            self._launch(group.name, host, happening.checks)

    @_happen.register
    def _refuse_capacity(self, happening: CapacityError) -> None:
        group = self._existing(happening)
        kind = (group.flexible or (self.layout.groups[group.name].instance_type,))[0]
        failure = happening.message or (
            f"We currently do not have sufficient capacity to launch new {kind} instances. Please try again."
        )
        operation = self._operation_id(group.name)
        missing = group.missing(self.hosts[group.name])
        logical_id = _uuid(self.layout, "node", missing[0]) if missing else None
        self._tell(
            Level.ERROR,
            f"Failed to provision EC2 Instance for Instance Group {group.name} in Cluster {self.layout.cluster}",
            group.name,
            operation=operation,
            failure=failure,
        )
        # The service tells one fault twice, about a second apart: of the group and of the instance.
        self._after(
            1,
            lambda: self._tell(
                Level.ERROR,
                f"Instance creation in Cluster {self.layout.cluster} and InstanceGroup {group.name} failed",
                group.name,
                resource=Resource.INSTANCE,
                logical_id=logical_id,
                operation=operation,
                failure=failure,
            ),
        )

    @_happen.register
    def _set_bounds(self, happening: SetBounds) -> None:
        group = self._existing(happening)
        old = group.bounds
        new = Bounds(
            old.minimum if happening.minimum is None else happening.minimum,
            old.target if happening.target is None else happening.target,
        )
        if not new.minimum <= new.target <= len(self.hosts[group.name]):
            raise self._error(
                happening.path, f"min {new.minimum} <= target {new.target} <= instances in the layout is not so"
            )
        before = Counts(group.current, old)
        group = replace(group, bounds=new)
        if group.status not in WAITING and new.minimum != old.minimum and group.current < new.minimum:
            group = replace(group, status=GroupStatus.UPDATING)
        self._put(group)
        self._begin_scaling(group, before, self.now)
        if group.status in WAITING and (new.minimum != old.minimum or group.deadline is None):
            self._await_minimum(group.name, self.now)
        self._trim(group.name)

    @_happen.register
    def _create(self, happening: Create) -> None:
        if happening.group in self.state.groups:
            raise self._error(happening.path, f"{happening.group} exists already")
        group = Group(happening.group, GroupStatus.CREATING, happening.bounds, Bounds(0, 0), (), self.now)
        self._put(group)
        self._begin_scaling(group, Counts(0, Bounds(0, 0)), self.now)
        self._await_minimum(group.name, self.now)

    @_happen.register
    def _fail(self, happening: Fail) -> None:
        group = self._existing(happening)
        operation = self._operation_id(group.name)
        self._end_scaling(group.name, OperationStatus.DONE)
        self._put(replace(group, status=GroupStatus.FAILED, deadline=None))
        self._tell(
            Level.ERROR,
            f"Instance Group {group.name} creation in Cluster {self.layout.cluster} failed",
            group.name,
            operation=operation,
            failure=happening.message,
        )

    @_happen.register
    def _set_status(self, happening: SetStatus) -> None:
        group = self._existing(happening)
        if group.status in WAITING:
            raise self._error(happening.path, f"{group.name} is still {group.status}")
        update = group.software_update
        if happening.status is GroupStatus.SYSTEM_UPDATING:
            update = "InProgress"
        elif group.status is GroupStatus.SYSTEM_UPDATING:
            update = "Succeeded"
        self._put(replace(group, status=happening.status, software_update=update))

    @_happen.register
    def _check_health(self, happening: DeepHealthCheck) -> None:
        group = self._existing(happening)
        running = [instance.host for instance in group.instances if instance.status is InstanceStatus.RUNNING]
        hosts = self._selected(happening, running, happening.selection, "running")
        checked = [instance for instance in group.instances if instance.host in hosts and not instance.leaving]
        operation = Operation(
            _uuid(self.layout, "operation", str(len(self.state.operations))),
            group.name,
            self.now,
            OperationStatus.IN_PROGRESS,
            checked=tuple(instance.id for instance in checked),
        )
        self.state = replace(self.state, operations=(*self.state.operations, operation))
        for instance in checked:
            self._change(instance, status=InstanceStatus.DEEP_HEALTH_CHECK)
            self._after(happening.seconds, partial(self._pass_checks, instance))
        self._after(happening.seconds, lambda: self._end(operation, OperationStatus.DONE))

    @_happen.register
    def _delete(self, happening: Delete) -> None:
        group = self._existing(happening)
        self._end_scaling(group.name, OperationStatus.SUPERSEDED)
        self._put(replace(group, status=GroupStatus.DELETING, deadline=None))
        self._remove(group.name)

    @_happen.register
    def _fail_node(self, happening: FailNode) -> None:
        group, instance = self._instance(happening, happening.host)
        self._change(instance, status=InstanceStatus.FAILURE, message=happening.message, counted=False)
        self._after(self.scenario.durations.slurm, lambda: self._change(instance, registered=False))
        self._tell(
            Level.ERROR,
            f"Instance {instance.id} in Cluster {self.layout.cluster} and InstanceGroup {group.name} failed",
            group.name,
            resource=Resource.INSTANCE,
            instance=instance,
            failure=happening.message,
        )

    @_happen.register
    def _replace(self, happening: Replace) -> None:
        group, instance = self._instance(happening, happening.host)
        self._dismiss(instance)
        self._tell(
            Level.INFO,
            f"Instance replacement in Cluster {self.layout.cluster} and InstanceGroup {group.name} started",
            group.name,
            resource=Resource.INSTANCE,
            instance=instance,
        )
        self._after(self.scenario.durations.terminate, lambda: self._launch(group.name, instance.host, 0))

    @_happen.register
    def _set_cluster_status(self, happening: SetClusterStatus) -> None:
        self.state = replace(self.state, status=happening.status, failure=happening.message)
        level = Level.ERROR if happening.message else Level.INFO
        self._tell(level, f"Cluster {self.layout.cluster} is {happening.status}", failure=happening.message)

    @_happen.register
    def _announce(self, happening: Announce) -> None:
        self._tell(happening.level, happening.description, happening.group, failure=happening.message)

    # What follows by itself

    def _settle(self) -> None:
        """Draw the conclusions from the counts: a MinCount that is met, an operation that has reached its target."""
        for group in tuple(self.state.groups.values()):
            if group.status in WAITING and group.current >= group.bounds.minimum:
                self._put(replace(group, status=GroupStatus.IN_SERVICE, deadline=None))
                self._tell(
                    Level.INFO,
                    f"Minimum capacity reached for Instance Group {group.name} in Cluster {self.layout.cluster}",
                    group.name,
                    operation=self._operation_id(group.name),
                    counts=Counts(group.current, group.bounds),
                )
        for group in tuple(self.state.groups.values()):
            if group.status is GroupStatus.IN_SERVICE:
                self._put(replace(group, last_good=group.bounds))
            if group.status not in WAITING and group.current == group.bounds.target:
                self._end_scaling(group.name, OperationStatus.DONE)

    def _await_minimum(self, name: str, since: float) -> None:
        if not self.scenario.continuous:
            return  # it waits, or fails, as the timeline says
        deadline = since + self.scenario.durations.deadline
        self._put(replace(self.state.groups[name], deadline=deadline))
        self._at(deadline, lambda: self._roll_back(name, deadline))

    def _roll_back(self, name: str, deadline: float) -> None:
        group = self.state.groups.get(name)
        if group is None or group.deadline != deadline:
            return  # MinCount was met or set anew in time
        wanted = group.bounds
        operation = self._operation_id(name)
        self._put(replace(group, status=GroupStatus.IN_SERVICE, bounds=group.last_good, deadline=None))
        self._tell(
            Level.WARN,
            f"Rollback initiated for Instance Group {name} in Cluster {self.layout.cluster}",
            name,
            operation=operation,
            failure=f"MinCount {wanted.minimum} was not reached in time: {group.current} instances were there.",
            counts=Counts(group.current, group.last_good),
        )
        self._end_scaling(name, OperationStatus.DONE)
        self._trim(name)

    def _trim(self, name: str) -> None:
        """Terminate what a group has above its target: unhealthy instances first, then the newest."""
        group = self.state.groups[name]
        victims = sorted(group.staying, key=lambda there: (there.status is InstanceStatus.RUNNING, -there.serial))
        for instance in victims[: max(len(group.staying) - group.bounds.target, 0)]:
            self._dismiss(instance)

    def _launch(self, name: str, host: str, checks: float) -> None:
        group = self.state.groups.get(name)
        if group is None or group.status in ENDED or len(group.staying) >= group.bounds.target:
            return  # a replacement whose group does not want it any more
        instance = self._new_instance(host, self.now)
        self._put(replace(group, instances=(*group.instances, instance)))
        self._after(self.scenario.durations.boot, lambda: self._boot(instance, checks))

    def _boot(self, instance: Instance, checks: float) -> None:
        if self._status(instance) is not InstanceStatus.PENDING:
            return
        if checks:
            self._change(instance, status=InstanceStatus.DEEP_HEALTH_CHECK)
            self._after(checks, lambda: self._pass_checks(instance))
        else:
            self._enter_service(instance)

    def _pass_checks(self, instance: Instance) -> None:
        if self._status(instance) is InstanceStatus.DEEP_HEALTH_CHECK:
            self._enter_service(instance)

    def _enter_service(self, instance: Instance) -> None:
        new = not instance.counted
        self._change(instance, status=InstanceStatus.RUNNING, counted=True)
        if new:
            self._after(self.scenario.durations.slurm, lambda: self._register(instance))
            group = next(group for group, there in self.state.instances() if there.id == instance.id)
            self._tell(
                Level.INFO,
                f"Instance creation in Cluster {self.layout.cluster} and InstanceGroup {group.name} succeeded",
                group.name,
                resource=Resource.INSTANCE,
                instance=instance,
                operation=self._operation_id(group.name),
            )

    def _register(self, instance: Instance) -> None:
        if self._status(instance) in (InstanceStatus.RUNNING, InstanceStatus.DEEP_HEALTH_CHECK):
            self._change(instance, registered=True)

    def _dismiss(self, instance: Instance) -> None:
        self._change(instance, status=InstanceStatus.SHUTTING_DOWN)
        self._after(self.scenario.durations.slurm, lambda: self._change(instance, registered=False))
        self._after(self.scenario.durations.terminate, lambda: self._gone(instance))

    def _gone(self, instance: Instance) -> None:
        for group in tuple(self.state.groups.values()):
            staying = tuple(there for there in group.instances if there.id != instance.id)
            if len(staying) < len(group.instances):
                self._put(replace(group, instances=staying))

    def _remove(self, name: str) -> None:
        for instance in self.state.groups[name].staying:
            self._dismiss(instance)
        self._after(self.scenario.durations.terminate, lambda: self._vanish(name))

    def _vanish(self, name: str) -> None:
        self.state = replace(self.state, groups={key: group for key, group in self.state.groups.items() if key != name})
        self._tell(Level.INFO, f"Instance Group {name} deletion in Cluster {self.layout.cluster} succeeded", name)

    # Operations

    def _begin_scaling(self, group: Group, before: Counts, since: float) -> None:
        self._end_scaling(group.name, OperationStatus.SUPERSEDED)
        operation = Operation(
            _uuid(self.layout, "operation", str(len(self.state.operations))),
            group.name,
            since,
            OperationStatus.IN_PROGRESS,
            scaling=Scaling(before, group.bounds),
        )
        self.state = replace(self.state, operations=(*self.state.operations, operation))
        self._tell(
            Level.INFO,
            f"Instance Group {group.name} scaling in Cluster {self.layout.cluster} started",
            group.name,
            operation=operation.id,
            counts=Counts(before.current, group.bounds),
            at=since,
        )

    def _end_scaling(self, name: str, status: OperationStatus) -> None:
        operation = self.state.running_operation(name)
        if operation is not None:
            self._end(operation, status)

    def _end(self, operation: Operation, status: OperationStatus) -> None:
        operations = tuple(
            replace(other, status=status) if other.id == operation.id else other for other in self.state.operations
        )
        self.state = replace(self.state, operations=operations)

    def _operation_id(self, name: str) -> str | None:
        operation = self.state.running_operation(name)
        return None if operation is None else operation.id

    # The parts of the state

    def _put(self, group: Group) -> None:
        self.state = replace(self.state, groups={**self.state.groups, group.name: group})

    def _new_instance(self, host: str, launched: float) -> Instance:
        serial = next(self._serial)
        digest = hashlib.sha256(f"{self.layout.cluster}/{host}/{serial}".encode()).hexdigest()
        return Instance(host, f"i-{digest[:17]}", _uuid(self.layout, "node", host), launched, serial)

    def _status(self, instance: Instance) -> InstanceStatus | None:
        """The present status of an instance that may be gone."""
        return next((there.status for _, there in self.state.instances() if there.id == instance.id), None)

    def _change(
        self,
        instance: Instance,
        *,
        status: InstanceStatus | None = None,
        message: str | None = None,
        counted: bool | None = None,
        registered: bool | None = None,
    ) -> None:
        """Change what is given of an instance, wherever it is now; one that is gone stays gone."""
        for group in tuple(self.state.groups.values()):
            changed = tuple(
                replace(
                    there,
                    status=there.status if status is None else status,
                    message=there.message if message is None else message,
                    counted=there.counted if counted is None else counted,
                    registered=there.registered if registered is None else registered,
                )
                if there.id == instance.id
                else there
                for there in group.instances
            )
            if changed != group.instances:
                self._put(replace(group, instances=changed))

    def _tell(
        self,
        level: Level,
        description: str,
        group: str | None = None,
        *,
        resource: Resource | None = None,
        instance: Instance | None = None,
        logical_id: str | None = None,
        operation: str | None = None,
        failure: str | None = None,
        counts: Counts | None = None,
        at: float | None = None,
    ) -> None:
        event = Event(
            id=_uuid(self.layout, "event", str(len(self.state.events))),
            at=self.now if at is None else at,
            level=level,
            resource=resource or (Resource.CLUSTER if group is None else Resource.GROUP),
            description=description,
            group=group,
            instance=None if instance is None else instance.id,
            logical_id=logical_id if instance is None else instance.logical_id,
            operation=operation,
            failure=failure,
            counts=counts,
        )
        self.state = replace(self.state, events=(*self.state.events, event))

    # The agenda, and what a timeline may refer to

    def _at(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (seconds, next(self._order), action))

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._at(self.now + seconds, action)

    def _existing(self, happening: GroupHappening) -> Group:
        group = self.state.groups.get(happening.group)
        if group is None:
            raise self._error(happening.path, f"{happening.group} does not exist at that time; create it first")
        if group.status in ENDED:
            raise self._error(happening.path, f"{group.name} is {group.status} at that time")
        return group

    def _instance(self, happening: Happening, host: str) -> tuple[Group, Instance]:
        found = self.state.instance_on(host)
        if found is None:
            raise self._error(happening.path, f"{host} has no instance at that time")
        return found

    def _selected(self, happening: Happening, hosts: list[str], selection: Selection, which: str) -> list[str]:
        if selection is None:
            return hosts
        if isinstance(selection, int):
            if selection > len(hosts):
                raise self._error(
                    happening.path, f"{selection} instances, but only {len(hosts)} are {which} at that time"
                )
            return hosts[:selection]
        for host in selection:
            if host not in hosts:
                raise self._error(happening.path, f"{host} is not among those {which} at that time")
        return list(selection)

    def _error(self, path: str, problem: str) -> ScenarioError:
        return ScenarioError(f"{self.scenario.source}: {path}: {problem}")


def _uuid(layout: Layout, kind: str, key: str) -> str:
    """An id that is the same each time that a scenario is played."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{kind}.{key}.{layout.cluster}"))
