"""What requests may say, after the service's own model (sagemaker, 2017-07-24), which the tests compare it with.

Clients check only types and required members before they send, so the rest is refused here, in the service's words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

JSON = Any
"""Whatever a JSON text can hold."""


class ApiError(Exception):
    """An answer that is an error: its code (the `__type` on the wire), message and HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


Check = Callable[[JSON], str | None]
"""Says which constraint a member's value breaks, or None."""


def _whole(least: int, most: int) -> Check:
    def check(value: JSON) -> str | None:
        if not isinstance(value, int) or isinstance(value, bool):
            return "Member must be an integer"
        if value < least:
            return f"Member must have value greater than or equal to {least}"
        return f"Member must have value less than or equal to {most}" if value > most else None

    return check


def _text(pattern: str, least: int, most: int) -> Check:
    compiled = re.compile(pattern)

    def check(value: JSON) -> str | None:
        if not isinstance(value, str):
            return "Member must be a string"
        if len(value) < least:
            return f"Member must have length greater than or equal to {least}"
        if len(value) > most:
            return f"Member must have length less than or equal to {most}"
        return None if compiled.fullmatch(value) else f"Member must satisfy regular expression pattern: {pattern}"

    return check


def _one_of(*values: str) -> Check:
    return lambda value: None if value in values else f"Member must satisfy enum value set: [{', '.join(values)}]"


def _timestamp(value: JSON) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number else "Member must be a timestamp in seconds since the epoch"


def _boolean(value: JSON) -> str | None:
    return None if isinstance(value, bool) else "Member must be a boolean"


_NAME = r"[a-zA-Z0-9](-*[a-zA-Z0-9])*"
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_CLUSTER = r"(arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:cluster/[a-z0-9]{12})|([a-zA-Z0-9](-*[a-zA-Z0-9]){0,62})"
_cluster: dict[str, Check] = {"ClusterName": _text(_CLUSTER, 0, 256)}
_page: dict[str, Check] = {
    "MaxResults": _whole(1, 100),
    "NextToken": _text(r".*", 0, 8192),
    "SortOrder": _one_of("Ascending", "Descending"),
}
_created: dict[str, Check] = {"CreationTimeAfter": _timestamp, "CreationTimeBefore": _timestamp}
_by_time_or_name: dict[str, Check] = {"SortBy": _one_of("CREATION_TIME", "NAME")}
_node_id = _text(r"i-[a-f0-9]{8}(?:[a-f0-9]{9})?", 1, 256)
_uuid = _text(_UUID, 36, 36)

OPERATIONS: Mapping[str, Mapping[str, Check]] = {
    "ListClusters": {
        **_page,
        **_created,
        **_by_time_or_name,
        "NameContains": _text(r"[a-zA-Z0-9\-]+", 0, 63),
        "TrainingPlanArn": _text(r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:training-plan/.*", 50, 2048),
    },
    "DescribeCluster": _cluster,
    "ListClusterNodes": {
        **_cluster,
        **_page,
        **_created,
        **_by_time_or_name,
        "InstanceGroupNameContains": _text(_NAME, 1, 63),
        "IncludeNodeLogicalIds": _boolean,
    },
    "DescribeClusterNode": {
        **_cluster,
        "NodeId": _node_id,
        "NodeLogicalId": _text(r"[a-zA-Z0-9][a-zA-Z0-9\-]*[a-zA-Z0-9]", 1, 128),
    },
    "ListClusterEvents": {
        **_cluster,
        **_page,
        "InstanceGroupName": _text(_NAME, 1, 63),
        "NodeId": _node_id,
        "EventTimeAfter": _timestamp,
        "EventTimeBefore": _timestamp,
        "SortBy": _one_of("EventTime"),
        "ResourceType": _one_of("Cluster", "InstanceGroup", "Instance"),
        "OperationId": _uuid,
    },
    "DescribeClusterEvent": {**_cluster, "EventId": _uuid},
    "ListClusterOperations": {
        **_cluster,
        **_page,
        **_created,
        "Status": _one_of("InProgress", "Superseded", "Done"),
        "Type": _one_of("Scaling", "DeepHealthCheck"),
        "SortBy": _one_of("CreationTime"),
    },
    "DescribeClusterOperation": {**_cluster, "OperationId": _uuid},
}
"""The operations that are emulated -> the members of their requests."""

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "ListClusters": (),
    "DescribeCluster": ("ClusterName",),
    "ListClusterNodes": ("ClusterName",),
    "DescribeClusterNode": ("ClusterName",),
    "ListClusterEvents": ("ClusterName",),
    "DescribeClusterEvent": ("ClusterName", "EventId"),
    "ListClusterOperations": ("ClusterName",),
    "DescribeClusterOperation": ("ClusterName", "OperationId"),
}


def checked(operation: str, request: JSON) -> dict[str, JSON]:
    """The members of a request that the operation knows; others are ignored, as the service does. Raises `ApiError`."""
    if operation not in OPERATIONS:
        raise ApiError("UnknownOperationException", f"The emulated API has no operation {operation!r}.")
    if not isinstance(request, dict):
        raise ApiError("SerializationException", "Start of structure or map found where not expected.")
    members = {name: request[name] for name in OPERATIONS[operation] if request.get(name) is not None}
    broken = [_broken("null", name, "Member must not be null") for name in REQUIRED[operation] if name not in members]
    for name, value in members.items():
        constraint = OPERATIONS[operation][name](value)
        if constraint is not None:
            broken.append(_broken(repr(str(value)), name, constraint))
    if broken:
        count = "1 validation error" if len(broken) == 1 else f"{len(broken)} validation errors"
        raise ApiError("ValidationException", f"{count} detected: {'; '.join(broken)}")
    return members


def _broken(value: str, name: str, constraint: str) -> str:
    return f"Value {value} at '{name[0].lower()}{name[1:]}' failed to satisfy constraint: {constraint}"
