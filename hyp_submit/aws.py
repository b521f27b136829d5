"""HyperPod's API through boto3: what DescribeCluster and the cluster's events say. The only module that loads boto3."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hyp_submit import decode
from hyp_submit.errors import NoEndpoint, NotAsked, Transient, Unreadable, UsageError
from hyp_submit.model import Event, HyperPod, Instance, InstanceGroup

RESOURCE_CONFIG = "/opt/ml/config/resource_config.json"
"""HyperPod's own description of the cluster on each node; readable by root only on most."""
MIN_BOTOCORE = "1.42.49"
"""Older models drop MinCount and SlurmConfig from the answers without a word."""

_TRANSIENT_CODES = frozenset(
    {
        "ThrottlingException",
        "Throttling",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "InternalFailure",
        "InternalServerError",
        "RequestTimeout",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
    }
)


@dataclass(frozen=True)
class Client:
    """One cluster's API."""

    cluster: str
    api: Any

    def read(self) -> HyperPod:
        """DescribeCluster. Raises Transient where a later look may succeed, NotAsked where it is refused for good."""
        answer = _call(self.api.describe_cluster, f"HyperPod cluster {self.cluster}", ClusterName=self.cluster)
        return HyperPod(
            name=str(answer.get("ClusterName", self.cluster)),
            status=str(answer.get("ClusterStatus", "Unknown")),
            continuous=answer.get("NodeProvisioningMode") == "Continuous",
            groups=_decoded(answer),
            failure=answer.get("FailureMessage"),
        )

    def denied(self) -> tuple[str, ...]:
        """The calls that a hold can do without and that are refused here, each asked once; in the API's own names."""
        calls = {"ListClusterNodes": self.api.list_cluster_nodes, "ListClusterEvents": self.api.list_cluster_events}
        found = []
        for name, method in calls.items():
            try:
                _call(method, name, ClusterName=self.cluster, MaxResults=1)
            except NotAsked as error:
                if "AccessDenied" in str(error):
                    found.append(name)
            except Transient:
                continue
        return tuple(found)

    def instances(self) -> tuple[Instance, ...]:
        """All instances by ListClusterNodes, in its order; () where they cannot be listed, which nobody fails for."""
        found: list[Instance] = []
        token: dict[str, str] = {}
        try:
            while True:
                page = _call(self.api.list_cluster_nodes, "nodes", ClusterName=self.cluster, MaxResults=100, **token)
                found.extend(map(decode.instance, page.get("ClusterNodeSummaries") or ()))
                if not page.get("NextToken"):
                    return tuple(found)
                token = {"NextToken": page["NextToken"]}
        except (Transient, NotAsked):
            return ()

    def events(self, group: str, limit: int = 5) -> tuple[Event, ...]:
        """The newest events of an instance group, newest first; () where they cannot be had: nobody fails for that.

        The reason of a failure is in DescribeClusterEvent only, which is asked for events above Info.
        """
        try:
            listed = _call(
                self.api.list_cluster_events,
                "events",
                ClusterName=self.cluster,
                InstanceGroupName=group,
                SortBy="EventTime",
                SortOrder="Descending",
                MaxResults=limit,
            )
            return tuple(self._event(event) for event in listed.get("Events") or ())
        except (Transient, NotAsked):
            return ()

    def _event(self, event: Mapping[str, Any]) -> Event:
        message = None
        if event.get("EventLevel") in {"Warn", "Error"}:
            detail = _call(
                self.api.describe_cluster_event, "event", ClusterName=self.cluster, EventId=event.get("EventId")
            )
            message = _failure_message(detail)
        return Event(
            at=event["EventTime"],
            level=str(event.get("EventLevel", "Info")),
            text=str(event.get("Description") or ""),
            reason=message,
        )


def _decoded(answer: Mapping[str, Any]) -> tuple[InstanceGroup, ...]:
    try:
        return decode.instance_groups(answer)
    except (AttributeError, TypeError, ValueError) as error:
        raise Transient(f"DescribeCluster's answer cannot be understood: {error}") from error


def connect(cluster: str | None) -> Client:
    """A client for the cluster named, or for the one that this host belongs to.

    Raises NotAsked with what is missing and how to say it.
    """
    # botocore itself reads AWS_DEFAULT_REGION only; the other SDKs, and many sites, set AWS_REGION.
    name, region = cluster or os.environ.get("HYP_SUBMIT_CLUSTER"), os.environ.get("AWS_REGION")
    if not name:
        name, home = _this_cluster()
        region = region or home
    if not name:
        raise NotAsked("no HyperPod cluster named: say --hyperpod NAME or set HYP_SUBMIT_CLUSTER")
    import boto3  # noqa: PLC0415  0.4 s that only this needs
    from botocore.config import Config  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    settings = Config(connect_timeout=5, read_timeout=15, retries={"mode": "standard", "max_attempts": 3})
    try:
        session = boto3.session.Session(region_name=region)
        if session.get_credentials() is None:
            raise NotAsked(
                "no AWS credentials here: attach the permissions of contrib/iam to the node role, or configure"
            )
        api = session.client("sagemaker", config=settings)
    except (BotoCoreError, ValueError) as error:  # ValueError: an endpoint that is no URL
        raise NotAsked(f"AWS cannot be asked: {error}") from error
    _check_model(api)
    return Client(name, api)


def _this_cluster() -> tuple[str | None, str | None]:
    """Name and region of the cluster that this host is a node of; Nones off HyperPod or where the file is root's."""
    path = os.environ.get("SAGEMAKER_RESOURCE_CONFIG_PATH", RESOURCE_CONFIG)
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            config = json.load(file).get("ClusterConfig") or {}
        arn = str(config.get("ClusterArn", "")).split(":")
        return config.get("ClusterName"), arn[3] if len(arn) > 3 else None
    except (OSError, ValueError, AttributeError):
        return None, None


def _check_model(api: Any) -> None:
    details = api.meta.service_model.shape_for("ClusterInstanceGroupDetails").members
    if "MinCount" not in details or "SlurmConfig" not in details:
        import botocore  # noqa: PLC0415

        raise Unreadable(
            f"botocore {botocore.__version__} drops MinCount from HyperPod's answers: "
            f"pip install 'boto3>={MIN_BOTOCORE}'"
        )


def _call(method: Any, what: str, **parameters: Any) -> dict[str, Any]:
    from botocore.exceptions import (  # noqa: PLC0415
        BotoCoreError,
        ClientError,
        EndpointConnectionError,
        NoCredentialsError,
        NoRegionError,
        PartialCredentialsError,
    )

    try:
        answer: dict[str, Any] = method(**parameters)
    except ClientError as error:
        detail = error.response.get("Error", {})
        code, message = str(detail.get("Code", "Unknown")), " ".join(str(detail.get("Message", "")).split())
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in _TRANSIENT_CODES or status >= 500:
            raise Transient(f"{what}: AWS answers {code}: {message}") from error
        if code == "ResourceNotFound":
            raise UsageError(f"{what} does not exist there: {message}") from error
        raise NotAsked(f"{what}: AWS answers {code}: {message}") from error
    except (NoCredentialsError, PartialCredentialsError, NoRegionError) as error:
        raise NotAsked(f"{what}: {error}") from error
    except EndpointConnectionError as error:
        raise NoEndpoint(f"{what}: {error}") from error
    except (BotoCoreError, OSError) as error:
        raise Transient(f"{what}: {error}") from error
    except (AttributeError, TypeError, ValueError) as error:  # botocore does not check that an answer is an object
        raise Transient(f"{what}: the answer is not AWS's: {error}") from error
    return answer


def _failure_message(value: Any) -> str | None:
    """The first FailureMessage anywhere in an event's details: which subtree holds it depends on the event."""
    if isinstance(value, dict):
        if isinstance(found := value.get("FailureMessage"), str) and found:
            return found
        value = list(value.values())
    if isinstance(value, list):
        return next((found for one in value if (found := _failure_message(one))), None)
    return None
