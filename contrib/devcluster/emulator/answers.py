"""The API's answers: the state of a moment in the shapes of the service's model (sagemaker, 2017-07-24).

Timestamps are emulated time in seconds since the epoch. What the model marks as required is always there, with one
exception that the service makes too: with IncludeNodeLogicalIds, nodes still awaited are listed without InstanceId.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from . import pages
from .course import Course
from .requests import JSON, ApiError, checked
from .scenario import Bounds, GroupStatus, hosts_of
from .state import Counts, Event, Group, Instance, InstanceStatus, Operation, State

Answer = dict[str, Any]

REGION = "us-west-2"
ACCOUNT = "123456789012"
ULTRASERVERS = {"ml.p6e-gb200.36xlarge": "ml.u-p6e-gb200x72"}
"""Instance types that come in UltraServers -> UltraServerInfo.Type."""

CONTINUOUS_ONLY = ("ListClusterEvents", "DescribeClusterEvent", "ListClusterOperations", "DescribeClusterOperation")
"""Operations that other clusters refuse. Of the last two that is our guess."""

NEWEST_EVENTS = 500
"""ListClusterEvents shows no more than these, as has been observed on the service."""

LIFECYCLE = {"SourceS3Uri": "s3://sagemaker-hyperpod-scripts/lifecycle", "OnCreate": "on_create.sh"}
IMAGE = {
    "CurrentImageId": "ami-0c2f3a9d417be5608",
    "DesiredImageId": "ami-0c2f3a9d417be5608",
    "CurrentImageReleaseVersion": "1.7.0",
    "DesiredImageReleaseVersion": "1.7.0",
    "ImageVersionStatus": "UpToDate",
}


class Api:
    """Answers the operations.

    `started` is the start of the emulator in seconds since the epoch, `now` says how many emulated seconds ago it was.
    """

    def __init__(self, course: Course, started: float, now: Callable[[], float]) -> None:
        self._course = course
        self._scenario = course.scenario
        self._layout = course.layout
        self._hosts = hosts_of(course.layout)
        self._started = started
        self._now = now
        self._answers: dict[str, Callable[[Answer], Answer]] = {
            "ListClusters": self._list_clusters,
            "DescribeCluster": self._describe_cluster,
            "ListClusterNodes": self._list_nodes,
            "DescribeClusterNode": self._describe_node,
            "ListClusterEvents": self._list_events,
            "DescribeClusterEvent": self._describe_event,
            "ListClusterOperations": self._list_operations,
            "DescribeClusterOperation": self._describe_operation,
        }
        cluster_id = hashlib.sha256(self._layout.cluster.encode()).hexdigest()[:12]
        self.arn = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:cluster/{cluster_id}"

    def answer(self, operation: str, request: JSON) -> Answer:
        """Answer one request. Raises `ApiError` for those that the service would refuse."""
        members = checked(operation, request)
        if "ClusterName" in members and members["ClusterName"] not in (self._layout.cluster, self.arn):
            raise ApiError("ResourceNotFound", f"Cluster {members['ClusterName']} not found.")
        if operation in CONTINUOUS_ONLY and not self._scenario.continuous:
            raise ApiError(
                "ValidationException", f"{operation} is only supported when NodeProvisioningMode is set to Continuous."
            )
        return self._answers[operation](members)

    # The cluster

    def _list_clusters(self, request: Answer) -> Answer:
        page = pages.requested("ListClusters", request, self._now())
        state = self._course.state_at(page.at)
        summary = {
            "ClusterArn": self.arn,
            "ClusterName": self._layout.cluster,
            "CreationTime": self._time(-self._scenario.age),
            "ClusterStatus": state.status,
        }
        listed = (
            request.get("NameContains", "") in self._layout.cluster
            and "TrainingPlanArn" not in request
            and self._within(-self._scenario.age, request, "CreationTime")
        )
        return page.of("ClusterSummaries", [summary] if listed else [])

    def _describe_cluster(self, _: Answer) -> Answer:
        state = self._course.state_at(self._now())
        answer: Answer = {
            "ClusterArn": self.arn,
            "ClusterName": self._layout.cluster,
            "ClusterStatus": state.status,
            "CreationTime": self._time(-self._scenario.age),
            "InstanceGroups": [self._group(state, group) for group in state.groups.values()],
            "VpcConfig": {"SecurityGroupIds": ["sg-0a41c7d2e95b36f80"], "Subnets": ["subnet-04d9be17f3826ac5e"]},
            "NodeRecovery": "Automatic",
        }
        if self._scenario.continuous:
            answer |= {"NodeProvisioningMode": "Continuous", "Orchestrator": {"Slurm": {}}}
        if state.failure is not None:
            answer["FailureMessage"] = state.failure
        return answer

    def _group(self, state: State, group: Group) -> Answer:
        layout = self._layout.groups[group.name]
        answer: Answer = {
            "InstanceGroupName": group.name,
            "Status": group.status,
            "CurrentCount": group.current,
            "TargetCount": group.bounds.target,
            "TargetStateCount": group.current,
            "LifeCycleConfig": LIFECYCLE,
            "ExecutionRole": f"arn:aws:iam::{ACCOUNT}:role/HyperPodExecutionRole",
            "ThreadsPerCore": 2,
            **IMAGE,
        }
        if group.flexible:
            kinds = list(group.flexible)
            answer["InstanceRequirements"] = {"CurrentInstanceTypes": kinds, "DesiredInstanceTypes": kinds}
            answer["InstanceTypeDetails"] = [
                {
                    "InstanceType": kind,
                    "CurrentCount": sum(i.counted and self._instance_type(group, i) == kind for i in group.instances),
                    "ThreadsPerCore": 2,
                }
                for kind in kinds
            ]
        else:
            answer["InstanceType"] = layout.instance_type
        if group.software_update is not None:
            answer["SoftwareUpdateStatus"] = group.software_update
        if self._scenario.continuous:
            answer["MinCount"] = group.bounds.minimum
            partitions = {} if layout.partition is None else {"PartitionNames": [layout.partition]}
            answer["SlurmConfig"] = {"NodeType": layout.node_type, **partitions}
            scaling_down = group.status is not GroupStatus.DELETING and group.current > group.bounds.target
            if scaling_down or state.running_operation(group.name) is not None:
                answer["ActiveOperations"] = {"Scaling": 1}
        return answer

    # Nodes

    def _list_nodes(self, request: Answer) -> Answer:
        wanted = request.get("InstanceGroupNameContains", "")
        logical = request.get("IncludeNodeLogicalIds", False)
        page = pages.requested("ListClusterNodes", request, self._now() - self._scenario.durations.listing)
        state = self._course.state_at(page.at)
        rows: list[tuple[float, str, Answer]] = []
        for group in state.groups.values():
            if wanted not in group.name:
                continue
            summaries = [(i.launched, self._node_summary(group, i, logical)) for i in group.instances]
            if logical:
                summaries += self._awaited(state, group)
            rows += [(since, group.name, summary) for since, summary in summaries]
        rows = [row for row in rows if self._within(row[0], request, "CreationTime")]
        by_name = request.get("SortBy") == "NAME"
        rows.sort(key=(lambda row: (row[1], row[0])) if by_name else (lambda row: (row[0], row[1])))
        if request.get("SortOrder") == "Descending":
            rows.reverse()
        return page.of("ClusterNodeSummaries", [summary for _, _, summary in rows])

    def _node_summary(self, group: Group, instance: Instance, logical: bool) -> Answer:
        summary: Answer = {
            "InstanceGroupName": group.name,
            "InstanceId": instance.id,
            "InstanceType": self._instance_type(group, instance),
            "LaunchTime": self._time(instance.launched),
            "LastSoftwareUpdateTime": self._time(instance.launched),
            "InstanceStatus": self._instance_status(group, instance),
            "PrivateDnsHostname": f"{instance.host}.{REGION}.compute.internal",
            "CurrentImageReleaseVersion": IMAGE["CurrentImageReleaseVersion"],
            "ImageVersionStatus": IMAGE["ImageVersionStatus"],
            **self._ultraserver(instance),
        }
        if logical:
            summary["NodeLogicalId"] = instance.logical_id
        return summary

    def _awaited(self, state: State, group: Group) -> list[tuple[float, Answer]]:
        """The nodes of a group that have no instance yet, each with the time since when it is awaited."""
        if group.status in (GroupStatus.FAILED, GroupStatus.DELETING):
            return []
        missing = group.missing(self._hosts[group.name])
        operation = state.running_operation(group.name)
        since = group.created if operation is None else operation.created
        kind = (group.flexible or (self._layout.groups[group.name].instance_type,))[0]
        return [
            (
                since,
                {
                    "InstanceGroupName": group.name,
                    "NodeLogicalId": self._course.logical_id(host),
                    "InstanceType": kind,
                    "LaunchTime": self._time(since),
                    "InstanceStatus": {"Status": InstanceStatus.PENDING},
                },
            )
            for host in missing[: max(group.bounds.target - len(group.staying), 0)]
        ]

    def _describe_node(self, request: Answer) -> Answer:
        if ("NodeId" in request) == ("NodeLogicalId" in request):
            raise ApiError("ValidationException", "Exactly one of NodeId and NodeLogicalId must be given.")
        state = self._course.state_at(self._now())
        for group in state.groups.values():
            for instance in reversed(group.instances):
                if request.get("NodeId") == instance.id or request.get("NodeLogicalId") == instance.logical_id:
                    return {"NodeDetails": self._node(group, instance)}
            for _, awaited in self._awaited(state, group):
                if request.get("NodeLogicalId") == awaited["NodeLogicalId"]:
                    return {"NodeDetails": awaited}
        raise ApiError("ResourceNotFound", f"Node {request.get('NodeId') or request['NodeLogicalId']} not found.")

    def _node(self, group: Group, instance: Instance) -> Answer:
        return {
            **self._node_summary(group, instance, logical=True),
            "LifeCycleConfig": LIFECYCLE,
            "ThreadsPerCore": 2,
            "PrivatePrimaryIp": instance.host.removeprefix("ip-").replace("-", "."),
            "Placement": {"AvailabilityZone": f"{REGION}a", "AvailabilityZoneId": "usw2-az1"},
            "CapacityType": "OnDemand",
            **IMAGE,
        }

    def _instance_type(self, group: Group, instance: Instance) -> str:
        """A flexible group's instances take its types in turn."""
        if not group.flexible:
            return self._layout.groups[group.name].instance_type
        return group.flexible[self._hosts[group.name].index(instance.host) % len(group.flexible)]

    def _instance_status(self, group: Group, instance: Instance) -> Answer:
        running = instance.status is InstanceStatus.RUNNING
        updating = running and group.status is GroupStatus.SYSTEM_UPDATING
        status = InstanceStatus.SYSTEM_UPDATING if updating else instance.status
        return {"Status": status} if instance.message is None else {"Status": status, "Message": instance.message}

    def _ultraserver(self, instance: Instance) -> Answer:
        try:
            kind = ULTRASERVERS.get(self._layout.group_of(instance.host).instance_type)
            block = self._layout.unit_of(instance.host)
        except KeyError:  # a controller or login node
            return {}
        return {} if kind is None else {"UltraServerInfo": {"Id": block.name, "Type": kind}}

    # Events

    def _list_events(self, request: Answer) -> Answer:
        page = pages.requested("ListClusterEvents", request, self._now())
        filters: dict[str, Callable[[Event], str | None]] = {
            "InstanceGroupName": lambda event: event.group,
            "NodeId": lambda event: event.instance,
            "ResourceType": lambda event: event.resource,
            "OperationId": lambda event: event.operation,
        }
        events = [
            event
            for event in self._course.state_at(page.at).events[-NEWEST_EVENTS:]
            if all(name not in request or field(event) == request[name] for name, field in filters.items())
            and self._within(event.at, request, "EventTime")
        ]
        events.sort(key=lambda event: event.at)
        if request.get("SortOrder", "Descending") == "Descending":
            events.reverse()
        return page.of("Events", [self._event(event) for event in events])

    def _event(self, event: Event) -> Answer:
        summary: Answer = {
            "EventId": event.id,
            "ClusterArn": self.arn,
            "ClusterName": self._layout.cluster,
            "ResourceType": event.resource,
            "EventTime": self._time(event.at),
            "Description": event.description,
            "EventLevel": event.level,
        }
        optional = {"InstanceGroupName": event.group, "InstanceId": event.instance, "OperationId": event.operation}
        return summary | {name: value for name, value in optional.items() if value is not None}

    def _describe_event(self, request: Answer) -> Answer:
        events = self._course.state_at(self._now()).events
        event = next((event for event in events if event.id == request["EventId"]), None)
        if event is None:
            raise ApiError("ResourceNotFound", f"Event {request['EventId']} not found.")
        subject: Answer = {} if event.failure is None else {"FailureMessage": event.failure}
        if event.logical_id is not None:
            subject["NodeLogicalId"] = event.logical_id
        kind: str = event.resource
        if event.counts is not None:
            kind = "InstanceGroupScaling"
            subject["InstanceCount"] = event.counts.current
            subject |= _bounds(event.counts.bounds)
        details = {"EventDetails": {"EventMetadata": {kind: subject}}} if subject else {}
        return {"EventDetails": {**self._event(event), **details}}

    # Operations

    def _list_operations(self, request: Answer) -> Answer:
        page = pages.requested("ListClusterOperations", request, self._now())
        operations = [
            operation
            for operation in self._course.state_at(page.at).operations
            if request.get("Status", operation.status) == operation.status
            and request.get("Type", _type(operation)) == _type(operation)
            and self._within(operation.created, request, "CreationTime")
        ]
        operations.sort(key=lambda operation: operation.created)
        if request.get("SortOrder", "Descending") == "Descending":
            operations.reverse()
        return page.of("ClusterOperationSummaries", [self._operation(operation) for operation in operations])

    def _operation(self, operation: Operation) -> Answer:
        return {
            "OperationId": operation.id,
            "ClusterArn": self.arn,
            "Type": _type(operation),
            "Status": operation.status,
            "CreationTime": self._time(operation.created),
        }

    def _describe_operation(self, request: Answer) -> Answer:
        operations = self._course.state_at(self._now()).operations
        operation = next((operation for operation in operations if operation.id == request["OperationId"]), None)
        if operation is None:
            raise ApiError("ResourceNotFound", f"Operation {request['OperationId']} not found.")
        answer = self._operation(operation)
        if operation.scaling is None:
            answer["DeepHealthCheckDetails"] = [
                {
                    "InstanceGroupName": operation.group,
                    "InstanceIds": list(operation.checked),
                    "DeepHealthChecks": ["InstanceStress", "InstanceConnectivity"],
                }
            ]
        else:
            answer["ScalingDetails"] = [
                {
                    "InstanceGroupName": operation.group,
                    "Status": operation.status,
                    "Original": _counts(operation.scaling.original),
                    "Desired": _bounds(operation.scaling.desired),
                }
            ]
        return answer

    # Time

    def _time(self, seconds: float) -> float:
        return round(self._started + seconds, 3)

    def _within(self, seconds: float, request: Answer, field: str) -> bool:
        after = request.get(f"{field}After", float("-inf"))
        before = request.get(f"{field}Before", float("inf"))
        return bool(after < self._time(seconds) < before)


def _type(operation: Operation) -> str:
    return "DeepHealthCheck" if operation.scaling is None else "Scaling"


def _bounds(bounds: Bounds) -> Answer:
    return {"TargetCount": bounds.target, "MinCount": bounds.minimum}


def _counts(counts: Counts) -> Answer:
    return {"CurrentCount": counts.current, **_bounds(counts.bounds)}
