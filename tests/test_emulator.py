"""The devcluster's emulated HyperPod API, by the unmodified boto3.

Every answer that any test here gets through a client is held against botocore's model of the service (`broken`), so
that the emulator cannot drift from it. Clocks are set, not waited for.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError
from botocore.model import ListShape, MapShape, OperationModel, Shape, StringShape, StructureShape
from emulator.answers import CONTINUOUS_ONLY
from emulator.course import Course, play
from emulator.follow import Follower, slurm_nodes
from emulator.reader import FOLDER, find, read
from emulator.requests import OPERATIONS, REQUIRED, ApiError, checked
from emulator.scenario import GroupStatus, ScenarioError
from emulator.server import Server
from emulator.state import Group, InstanceStatus, OperationStatus
from inside.layout import Group as LayoutGroup
from inside.layout import Kind, Layout, Partition, Unit, load
from inside.slurm import SlurmError

DEVCLUSTER = Path(__file__).parents[1] / "contrib" / "devcluster"
LAYOUT = load(DEVCLUSTER / "layout.yaml")
CLUSTER = LAYOUT.cluster
SCENARIOS = sorted(path.stem for path in FOLDER.glob("*.yaml"))
STARTED = 1_795_000_000.0
MINUTE = 60.0
HOUR = 3600.0

SESSION = boto3.Session(aws_access_key_id="any", aws_secret_access_key="any", region_name="us-west-2")  # noqa: S106
MODEL = SESSION._session.get_service_model("sagemaker")


class Clock:
    """Emulated seconds since the start, set by the test."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def course(scenario: str | Path, layout: Layout = LAYOUT) -> Course:
    return play(layout, read(find(str(scenario)), layout))


@contextmanager
def serving(played: Course, clock: Callable[[], float], **config: Any) -> Iterator[Any]:
    """A client of a running emulator, whose every answer is checked."""
    server = Server(played, started=STARTED, now=clock)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    client = SESSION.client(
        "sagemaker",
        endpoint_url=server.url,
        config=Config(**{"retries": {"total_max_attempts": 1}, **config}),
    )
    client.meta.events.register("before-parse.sagemaker", check_answer)
    try:
        yield client
    finally:
        client.close()
        server.shutdown()
        thread.join()
        server.server_close()


# The model


def check_answer(operation_model: OperationModel, response_dict: dict[str, Any], **_: Any) -> None:
    if response_dict["status_code"] == 200:
        answer = json.loads(response_dict["body"])
        assert list(broken(operation_model.output_shape, answer, operation_model.name)) == []


def broken(shape: Shape, value: Any, path: str) -> Iterator[str]:
    """In what a JSON value differs from a shape of the model: members, types, enums, patterns, lengths and ranges."""
    if not is_of(shape.type_name, value):
        yield f"{path}: {value!r} is no {shape.type_name}"
        return
    size = value if shape.type_name == "integer" else len(value) if isinstance(value, str | list | dict) else None
    if size is not None and not shape.metadata.get("min", size) <= size <= shape.metadata.get("max", size):
        yield f"{path}: {value!r} is too small or too large"
    if isinstance(shape, StructureShape):
        yield from broken_structure(shape, value, path)
    elif isinstance(shape, ListShape):
        for index, entry in enumerate(value):
            yield from broken(shape.member, entry, f"{path}[{index}]")
    elif isinstance(shape, MapShape):
        for key, entry in value.items():
            yield from broken(shape.key, key, f"{path}.{key}")
            yield from broken(shape.value, entry, f"{path}.{key}")
    elif isinstance(shape, StringShape):
        if shape.enum and value not in shape.enum:
            yield f"{path}: {value!r} is not in the enum {shape.name}"
        if "pattern" in shape.metadata and not re.fullmatch(shape.metadata["pattern"], value):
            yield f"{path}: {value!r} does not match {shape.metadata['pattern']}"


def is_of(type_name: str, value: Any) -> bool:
    """Whether a JSON value has the type that the protocol gives to a type of the model."""
    kinds: dict[str, type | tuple[type, ...]] = {
        "structure": dict,
        "map": dict,
        "list": list,
        "string": str,
        "boolean": bool,
        "integer": int,
        "timestamp": (int, float),
    }
    return isinstance(value, kinds[type_name]) and (type_name == "boolean" or not isinstance(value, bool))


def broken_structure(shape: StructureShape, value: dict[str, Any], path: str) -> Iterator[str]:
    required = set(shape.required_members)
    if (
        shape.name == "ClusterNodeSummary"
        and "NodeLogicalId" in value
        and value["InstanceStatus"] == {"Status": "Pending"}
    ):
        required.remove("InstanceId")  # the service lists nodes that it still has to find an instance for
    for name in required - value.keys():
        yield f"{path}: {name} is missing"
    for name, member in value.items():
        if name in shape.members:
            yield from broken(shape.members[name], member, f"{path}.{name}")
        else:
            yield f"{path}: {shape.name} has no {name}"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"ClusterArn": "x"}, "ClusterArn: 'x' does not match"),
        ({"ClusterStatus": "Fine"}, "ClusterStatus: 'Fine' is not in the enum"),
        ({"CreationTime": "2026-11-30"}, "CreationTime: '2026-11-30' is no timestamp"),
        ({"InstanceGroups": [{"MinCount": True}]}, r"InstanceGroups[0].MinCount: True is no integer"),
        ({"InstanceGroups": [{"MinCount": -1}]}, r"InstanceGroups[0].MinCount: -1 is too small"),
        ({"InstanceGroups": [{"Minimum": 1}]}, "ClusterInstanceGroupDetails has no Minimum"),
        ({}, "InstanceGroups is missing"),
    ],
)
def test_the_checker_sees_what_differs_from_the_model(answer: dict[str, Any], problem: str) -> None:
    shape = MODEL.operation_model("DescribeCluster").output_shape
    assert any(problem in line for line in broken(shape, answer, "$"))


def everything(client: Any, refused: frozenset[str]) -> None:
    """Ask for all that there is, for the sake of the checks of the answers; only refused operations may give errors."""

    def ask(method: Callable[..., Any], **request: Any) -> Any:
        try:
            return method(**request)
        except ClientError as error:
            if error.operation_name not in refused:
                raise
            return None

    ask(client.list_clusters)
    ask(client.describe_cluster, ClusterName=CLUSTER)
    for logical in (False, True):
        nodes = ask(client.list_cluster_nodes, ClusterName=CLUSTER, IncludeNodeLogicalIds=logical)
        statuses = {node["InstanceStatus"]["Status"]: node for node in (nodes or {}).get("ClusterNodeSummaries", ())}
        for node in statuses.values():
            ask(client.describe_cluster_node, ClusterName=CLUSTER, **node_key(node))
    events = ask(client.list_cluster_events, ClusterName=CLUSTER)
    kinds = {re.sub(r"i-\w+", "", event["Description"]): event for event in (events or {}).get("Events", ())}
    for event in kinds.values():
        ask(client.describe_cluster_event, ClusterName=CLUSTER, EventId=event["EventId"])
    operations = ask(client.list_cluster_operations, ClusterName=CLUSTER)
    for operation in (operations or {}).get("ClusterOperationSummaries", ()):
        ask(client.describe_cluster_operation, ClusterName=CLUSTER, OperationId=operation["OperationId"])


def node_key(node: dict[str, Any]) -> dict[str, str]:
    return {"NodeId": node["InstanceId"]} if "InstanceId" in node else {"NodeLogicalId": node["NodeLogicalId"]}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_answer_of_every_scenario_is_of_the_models_shape(scenario: str) -> None:
    played = course(scenario)
    clock = Clock()
    legacy = () if played.scenario.continuous else CONTINUOUS_ONLY
    with serving(played, clock) as client:
        for clock.seconds in played.times:
            faulty = [name for name in OPERATIONS if played.fault_at(clock.seconds, name)]
            everything(client, frozenset((*legacy, *faulty)))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_requests_are_checked_as_the_model_says(operation: str) -> None:
    shape = MODEL.operation_model(operation).input_shape
    assert set(OPERATIONS[operation]) == set(shape.members)
    assert set(REQUIRED[operation]) == set(shape.required_members)
    for name, member in shape.members.items():
        check, limits = OPERATIONS[operation][name], member.metadata
        for value in getattr(member, "enum", ()):
            assert check(value) is None
        if getattr(member, "enum", ()):
            assert check("Unheard of") is not None
        if member.type_name == "integer":
            assert [check(limits["min"]), check(limits["max"])] == [None, None]
            assert check(limits["min"] - 1) is not None
            assert check(limits["max"] + 1) is not None
        if member.type_name == "string" and not member.enum:
            assert check("a" * (limits.get("max", 36) + 1)) is not None
            assert (check("!") is None) == bool(re.fullmatch(limits["pattern"], "!"))
        assert check({}) is not None


# Groups and instances


def group_at(played: Course, name: str, seconds: float) -> Group:
    return played.state_at(seconds).groups[name]


def descriptions(played: Course, seconds: float = float("inf")) -> list[str]:
    return [event.description for event in played.state_at(seconds).events]


def first_time(played: Course, holds: Callable[[float], bool]) -> float:
    return next(seconds for seconds in played.times if holds(seconds))


def test_ready_has_every_group_in_service_and_every_node() -> None:
    played = course("ready")
    assert played.times == (0.0,)
    state = played.state_at(0)
    assert list(state.groups) == list(LAYOUT.groups)
    assert all(group.status is GroupStatus.IN_SERVICE for group in state.groups.values())
    assert slurm_nodes(played, state) == LAYOUT.nodes


def test_mincount_met_as_a_client_sees_it() -> None:
    played = course("mincount-met")
    done = first_time(played, lambda t: group_at(played, "gb200-a", t).status is GroupStatus.IN_SERVICE)
    assert 25 <= done / played.scenario.speed <= 30
    clock = Clock()
    with serving(played, clock) as client:
        seen = []
        for clock.seconds in (0, 10 * MINUTE, 15 * MINUTE, done - 1, done):
            groups = {g["InstanceGroupName"]: g for g in client.describe_cluster(ClusterName=CLUSTER)["InstanceGroups"]}
            gb200 = groups["gb200-a"]
            seen.append((gb200["Status"], gb200["CurrentCount"], gb200["MinCount"], gb200.get("ActiveOperations")))
        assert seen == [
            ("Creating", 5, 18, {"Scaling": 1}),
            ("Creating", 9, 18, {"Scaling": 1}),
            ("Creating", 14, 18, {"Scaling": 1}),
            ("Creating", 14, 18, {"Scaling": 1}),
            ("InService", 18, 18, None),
        ]
        assert "gb200-b" not in groups
        assert {name: (g["Status"], g["SlurmConfig"]) for name, g in groups.items() if name != "gb200-a"} == {
            "controller": ("InService", {"NodeType": "Controller"}),
            "login": ("InService", {"NodeType": "Login"}),
            "cpu-a": ("InService", {"NodeType": "Compute", "PartitionNames": ["cpu"]}),
            "p5-a": ("InService", {"NodeType": "Compute", "PartitionNames": ["p5"]}),
        }
        cluster = client.describe_cluster(ClusterName=CLUSTER)
        assert (cluster["NodeProvisioningMode"], cluster["NodeRecovery"], cluster["ClusterStatus"]) == (
            "Continuous",
            "Automatic",
            "InService",
        )
        assert "Slurm" in cluster["Orchestrator"]
        newest = client.list_cluster_events(ClusterName=CLUSTER, MaxResults=1)["Events"][0]
        assert "Minimum capacity reached" in newest["Description"]
        metadata = client.describe_cluster_event(ClusterName=CLUSTER, EventId=newest["EventId"])["EventDetails"]
        scaling = metadata["EventDetails"]["EventMetadata"]["InstanceGroupScaling"]
        assert scaling == {"InstanceCount": 18, "TargetCount": 18, "MinCount": 18}


def test_capacity_is_refused_twice_within_a_second_and_says_why_only_when_described() -> None:
    clock = Clock()
    clock.seconds = HOUR
    with serving(course("mincount-met"), clock) as client:
        events = client.list_cluster_events(ClusterName=CLUSTER, InstanceGroupName="gb200-a")["Events"]
        errors = [event for event in events if event["EventLevel"] == "Error"]
        assert [event["ResourceType"] for event in errors] == ["Instance", "InstanceGroup"]
        assert (errors[0]["EventTime"] - errors[1]["EventTime"]).total_seconds() == 1
        for event in errors:
            assert "capacity" not in event["Description"]
            details = client.describe_cluster_event(ClusterName=CLUSTER, EventId=event["EventId"])["EventDetails"]
            metadata = details["EventDetails"]["EventMetadata"][event["ResourceType"]]
            assert "sufficient capacity to launch new ml.p6e-gb200.36xlarge" in metadata["FailureMessage"]


def test_slurm_lags_behind_the_api() -> None:
    played = course("mincount-met")
    running = first_time(played, lambda t: group_at(played, "gb200-a", t).current == 18)
    lag = played.scenario.durations.slurm
    nodes = LAYOUT.groups["gb200-a"].nodes
    assert [len(set(nodes) & set(slurm_nodes(played, played.state_at(running + s)))) for s in (0, lag - 1, lag)] == [
        14,
        14,
        18,
    ]
    pending = [i for i in group_at(played, "gb200-a", 2 * MINUTE).instances if i.status is InstanceStatus.PENDING]
    assert len(pending) == 4


def test_a_new_group_that_misses_its_minimum_is_in_service_with_nothing() -> None:
    played = course("rollback-new-group")
    before = group_at(played, "gb200-a", 0)
    assert before.deadline == 3 * HOUR - 20 * MINUTE
    assert 10 <= before.deadline / played.scenario.speed <= 17
    assert group_at(played, "gb200-a", before.deadline - 1).status is GroupStatus.CREATING
    clock = Clock()
    with serving(played, clock) as client:
        seen = []
        for clock.seconds in (before.deadline, before.deadline + 15 * MINUTE):
            group = client.describe_cluster(ClusterName=CLUSTER)["InstanceGroups"][-1]
            nodes = client.list_cluster_nodes(ClusterName=CLUSTER, InstanceGroupNameContains="gb200-a")
            seen.append(
                (
                    [group[name] for name in ("Status", "CurrentCount", "MinCount", "TargetCount")],
                    [node["InstanceStatus"]["Status"] for node in nodes["ClusterNodeSummaries"]],
                )
            )
        assert seen == [(["InService", 5, 0, 0], ["ShuttingDown"] * 5), (["InService", 0, 0, 0], [])]
        operations = client.list_cluster_operations(ClusterName=CLUSTER)["ClusterOperationSummaries"]
        assert [operation["Status"] for operation in operations] == ["Done"]
    assert sum("Rollback initiated" in line for line in descriptions(played)) == 1
    assert not any("Minimum capacity reached" in line for line in descriptions(played))


def test_an_existing_group_that_misses_its_minimum_returns_to_what_it_had() -> None:
    played = course("rollback-existing-group")
    group = group_at(played, "gb200-b", HOUR)
    assert (group.status, group.current, group.deadline) == (GroupStatus.UPDATING, 26, 3 * HOUR + 2 * MINUTE)
    rolled_back = group_at(played, "gb200-b", 3 * HOUR + 2 * MINUTE)
    assert (rolled_back.status, rolled_back.current) == (GroupStatus.IN_SERVICE, 26)
    assert (rolled_back.bounds.minimum, rolled_back.bounds.target) == (18, 18)
    left = {instance.host for instance in group_at(played, "gb200-b", 4 * HOUR).instances}
    assert left == set(LAYOUT.groups["gb200-b"].nodes[:18])  # the newest went


def test_a_person_who_lowers_the_bounds_supersedes_the_operation_and_rolls_nothing_back() -> None:
    played = course("target-lowered")
    group = group_at(played, "gb200-a", 8 * MINUTE)
    assert (group.status, group.current, group.bounds.minimum, group.bounds.target) == (GroupStatus.IN_SERVICE, 9, 8, 9)
    assert [operation.status for operation in played.state_at(HOUR).operations] == [
        OperationStatus.SUPERSEDED,
        OperationStatus.DONE,
    ]
    assert not any("Rollback" in line for line in descriptions(played))


def test_a_failed_group_stays_failed_and_an_event_says_why() -> None:
    played = course("group-failed")
    assert group_at(played, "gb200-a", 8 * MINUTE - 1).status is GroupStatus.CREATING
    assert group_at(played, "gb200-a", 24 * HOUR).status is GroupStatus.FAILED
    assert 8 * MINUTE / played.scenario.speed == 8
    error = next(event for event in played.states[-1].events if event.level == "Error")
    assert error.failure is not None
    assert error.failure.startswith("Lifecycle scripts did not run")


def test_a_replaced_node_keeps_its_name_and_gets_a_new_instance() -> None:
    played = course("node-replaced")
    host = "ip-10-1-3-35"

    def look(minutes: float) -> tuple[str, list[str], int, bool]:
        state = played.state_at(minutes * MINUTE)
        group = state.groups["gb200-a"]
        statuses = [str(instance.status) for instance in group.instances if instance.host == host]
        return str(group.status), statuses, group.current, host in slurm_nodes(played, state)

    assert look(1) == ("InService", ["Running"], 18, True)
    assert look(2) == ("Degraded", ["Failure"], 17, True)
    assert look(4) == ("Degraded", ["Failure"], 17, False)
    assert look(6) == ("Degraded", ["ShuttingDown"], 17, False)
    assert look(21) == ("Degraded", ["Pending"], 17, False)
    assert look(26.5) == ("Degraded", ["Running"], 18, False)
    assert look(30) == ("InService", ["Running"], 18, True)
    old, new = (next(i for i in group_at(played, "gb200-a", t).instances if i.host == host) for t in (0, HOUR))
    assert old.id != new.id
    assert old.logical_id == new.logical_id


def test_a_group_being_patched_shows_it_on_every_node() -> None:
    clock = Clock()
    with serving(course("system-updating"), clock) as client:
        seen = []
        for clock.seconds in (0, 3 * MINUTE, 40 * MINUTE):
            groups = {g["InstanceGroupName"]: g for g in client.describe_cluster(ClusterName=CLUSTER)["InstanceGroups"]}
            nodes = client.list_cluster_nodes(ClusterName=CLUSTER, InstanceGroupNameContains="gb200-a")
            statuses = {node["InstanceStatus"]["Status"] for node in nodes["ClusterNodeSummaries"]}
            seen.append((groups["gb200-a"]["Status"], groups["gb200-a"].get("SoftwareUpdateStatus"), statuses))
    assert seen == [
        ("InService", None, {"Running"}),
        ("SystemUpdating", "InProgress", {"SystemUpdating"}),
        ("InService", "Succeeded", {"Running"}),
    ]


def test_a_deleted_group_empties_and_vanishes_and_another_goes_on_scaling_after_its_minimum() -> None:
    played = course("group-deleted")
    assert group_at(played, "gb200-a", 6 * MINUTE).status is GroupStatus.DELETING
    assert "gb200-a" not in played.state_at(HOUR).groups
    other = group_at(played, "gb200-b", HOUR)
    assert (other.status, other.current, other.bounds.target) == (GroupStatus.IN_SERVICE, 18, 36)
    assert played.state_at(HOUR).running_operation("gb200-b") is not None


def test_a_legacy_cluster_has_neither_bounds_nor_slurm_configuration_nor_events() -> None:
    with serving(course("legacy"), Clock()) as client:
        cluster = client.describe_cluster(ClusterName=CLUSTER)
        assert "NodeProvisioningMode" not in cluster
        assert not any({"MinCount", "SlurmConfig"} & group.keys() for group in cluster["InstanceGroups"])
        for method in (client.list_cluster_events, client.list_cluster_operations):
            with pytest.raises(ClientError, match=r"ValidationException.*Continuous"):
                method(ClusterName=CLUSTER)


def test_a_legacy_cluster_that_cannot_be_filled_rolls_back_as_a_whole() -> None:
    played = course("cluster-rolling-back")
    assert [str(played.state_at(m * MINUTE).status) for m in (0, 5, 25)] == ["Creating", "RollingBack", "Failed"]
    clock = Clock()
    clock.seconds = HOUR
    with serving(played, clock) as client:
        cluster = client.describe_cluster(ClusterName=CLUSTER)
        assert "sufficient capacity" in cluster["FailureMessage"]
        assert [group["InstanceGroupName"] for group in cluster["InstanceGroups"]] == ["controller", "login"]


def test_instances_in_deep_health_checks_do_not_count_until_they_have_passed() -> None:
    played = course("deep-health-checks")
    checking = group_at(played, "gb200-a", HOUR)
    assert (checking.status, checking.current, len(checking.instances)) == (GroupStatus.CREATING, 14, 18)
    assert sum(i.status is InstanceStatus.DEEP_HEALTH_CHECK for i in checking.instances) == 4
    assert group_at(played, "gb200-a", 128 * MINUTE).status is GroupStatus.IN_SERVICE
    again = group_at(played, "gb200-a", 3 * HOUR)
    assert (again.current, sum(i.status is InstanceStatus.DEEP_HEALTH_CHECK for i in again.instances)) == (18, 2)
    assert len(slurm_nodes(played, played.state_at(3 * HOUR))) == 20


def test_ultraservers_may_be_partly_filled_and_the_list_of_nodes_late() -> None:
    clock = Clock()
    with serving(course("partial-ultraservers"), clock) as client:

        def ultraservers() -> dict[str, int]:
            answer = client.list_cluster_nodes(ClusterName=CLUSTER, InstanceGroupNameContains="gb200-b")
            infos = [node["UltraServerInfo"] for node in answer["ClusterNodeSummaries"]]
            assert {info["Type"] for info in infos} == {"ml.u-p6e-gb200x72"}
            ids = [info["Id"] for info in infos]
            return {block: ids.count(block) for block in sorted(set(ids))}

        assert ultraservers() == {"us-2": 18, "us-3": 17}
        clock.seconds = 7 * MINUTE  # launched 2 minutes ago, the list is 3 behind
        assert ultraservers() == {"us-2": 18, "us-3": 17}
        clock.seconds = 8 * MINUTE
        assert ultraservers() == {"us-2": 18, "us-3": 18}


def test_a_flexible_group_has_no_instance_type_of_its_own() -> None:
    with serving(course("partial-ultraservers"), Clock()) as client:
        groups = {g["InstanceGroupName"]: g for g in client.describe_cluster(ClusterName=CLUSTER)["InstanceGroups"]}
        assert "InstanceType" not in groups["cpu-a"]
        assert [d["CurrentCount"] for d in groups["cpu-a"]["InstanceTypeDetails"]] == [1, 1]


def test_nodes_are_named_by_their_address() -> None:
    with serving(course("ready"), Clock()) as client:
        nodes = client.list_cluster_nodes(ClusterName=CLUSTER)["ClusterNodeSummaries"]
        hosts = [node["PrivateDnsHostname"].split(".")[0] for node in nodes]
        assert set(LAYOUT.nodes) < set(hosts)
        assert len(set(hosts)) == len(LAYOUT.nodes) + 2
        assert all(node["PrivateDnsHostname"].endswith(".us-west-2.compute.internal") for node in nodes)
        node = client.describe_cluster_node(ClusterName=CLUSTER, NodeId=nodes[-1]["InstanceId"])["NodeDetails"]
        assert f"ip-{node['PrivatePrimaryIp'].replace('.', '-')}" == hosts[-1]
        assert "UltraServerInfo" not in node


def write(folder: Path, text: str) -> Path:
    path = folder / "test.yaml"
    path.write_text(text)
    return path


def test_the_three_hours_begin_anew_when_the_minimum_is_set_and_only_then(tmp_path: Path) -> None:
    played = course(
        write(
            tmp_path,
            """
            summary: Bounds change while the group is being created.
            groups: {gb200-a: {status: Creating, min: 18, present: 5}}
            timeline:
              - {at: 1h, group: gb200-a, set: {target: 17, min: 17}}
              - {at: 2h, group: gb200-a, set: {target: 18}}
            """,
        )
    )
    assert [group_at(played, "gb200-a", h * HOUR).deadline for h in (0.5, 1.5, 2.5)] == [3 * HOUR, 4 * HOUR, 4 * HOUR]
    assert group_at(played, "gb200-a", 4 * HOUR).status is GroupStatus.IN_SERVICE


def test_a_group_that_has_once_been_in_service_is_rolled_back_to_that(tmp_path: Path) -> None:
    played = course(
        write(
            tmp_path,
            """
            summary: A new group gets what it needs, then not what more is asked for.
            groups: {}
            timeline:
              - {at: 1m, group: gb200-a, create: {min: 4, target: 6}}
              - {at: 2m, group: gb200-a, arrive: 6}
              - {at: 1h, group: gb200-a, set: {min: 18, target: 18}}
            """,
        )
    )
    assert group_at(played, "gb200-a", HOUR).status is GroupStatus.UPDATING
    group = group_at(played, "gb200-a", 5 * HOUR)
    assert (group.status, group.bounds.minimum, group.bounds.target) == (GroupStatus.IN_SERVICE, 4, 6)
    assert [instance.status for instance in group.instances] == [InstanceStatus.RUNNING] * 6


def test_a_dip_under_the_minimum_changes_no_status_and_unhealthy_instances_go_first(tmp_path: Path) -> None:
    host = LAYOUT.groups["gb200-a"].nodes[2]
    played = course(
        write(
            tmp_path,
            f"""
            summary: A node breaks, then the target is lowered.
            groups: {{gb200-a: {{min: 18}}}}
            timeline:
              - {{at: 1m, fail_node: {host}, message: broken}}
              - {{at: 5m, group: gb200-a, set: {{min: 0, target: 16}}}}
            """,
        )
    )
    assert group_at(played, "gb200-a", 4 * MINUTE).status is GroupStatus.IN_SERVICE
    left = [instance.host for instance in group_at(played, "gb200-a", HOUR).instances]
    assert left == [name for name in LAYOUT.groups["gb200-a"].nodes[:17] if name != host]


# Lists


def large_layout(nodes: int) -> Layout:
    names = tuple(f"ip-10-2-{number // 200}-{number % 200 + 4}" for number in range(nodes))
    return Layout(
        cluster=CLUSTER,
        catch_all="dev",
        partitions={"cpu": Partition("cpu", Kind.FLAT, 0)},
        units={"cpu": Unit("cpu", Kind.FLAT, names)},
        spines={},
        groups={"cpu-a": LayoutGroup("cpu-a", "Compute", "ml.c5.9xlarge", "cpu", nodes, names)},
    )


@pytest.fixture(name="large")
def _large(tmp_path: Path) -> Iterator[tuple[Any, Clock]]:
    """A client of 250 nodes, of which one half came an hour after the other, each with an event."""
    scenario = write(
        tmp_path,
        """
        summary: Many nodes.
        groups: {cpu-a: {present: 125}}
        timeline: [{at: 1h, group: cpu-a, arrive: 125}]
        """,
    )
    clock = Clock()
    clock.seconds = 2 * HOUR
    with serving(course(scenario, large_layout(250)), clock) as client:
        yield client, clock


def test_250_nodes_come_in_three_pages(large: tuple[Any, Clock]) -> None:
    client, _ = large
    pages = [
        page["ClusterNodeSummaries"]
        for page in client.get_paginator("list_cluster_nodes").paginate(ClusterName=CLUSTER)
    ]
    assert [len(page) for page in pages] == [100, 100, 50]
    assert len({node["InstanceId"] for page in pages for node in page}) == 250
    small = client.get_paginator("list_cluster_nodes").paginate(ClusterName=CLUSTER, PaginationConfig={"PageSize": 25})
    assert [node for page in small for node in page["ClusterNodeSummaries"]] == [
        node for page in pages for node in page
    ]


def test_pages_show_the_moment_of_their_first(large: tuple[Any, Clock]) -> None:
    client, clock = large
    clock.seconds = 0
    first = client.list_cluster_nodes(ClusterName=CLUSTER)
    assert len(first["ClusterNodeSummaries"]) == 100
    clock.seconds = 2 * HOUR
    second = client.list_cluster_nodes(ClusterName=CLUSTER, NextToken=first["NextToken"])
    assert len(second["ClusterNodeSummaries"]) == 25
    assert "NextToken" not in second


def test_nodes_are_filtered_and_sorted(large: tuple[Any, Clock]) -> None:
    client, _ = large

    def times(**request: Any) -> list[float]:
        nodes = client.list_cluster_nodes(ClusterName=CLUSTER, **request)["ClusterNodeSummaries"]
        return [node["LaunchTime"].timestamp() - STARTED for node in nodes]

    assert times()[0] < 0
    assert times(SortOrder="Descending")[0] == HOUR
    assert set(times(CreationTimeAfter=STARTED)) == {HOUR}
    assert max(times(CreationTimeBefore=STARTED)) < 0
    assert times(InstanceGroupNameContains="cpu-ab") == []
    assert len(times(InstanceGroupNameContains="pu")) == 100


def test_nodes_are_sorted_by_name_if_wished() -> None:
    with serving(course("ready"), Clock()) as client:
        nodes = client.list_cluster_nodes(ClusterName=CLUSTER, SortBy="NAME")["ClusterNodeSummaries"]
        names = [node["InstanceGroupName"] for node in nodes]
        assert names == sorted(names)


def test_nodes_without_an_instance_are_listed_by_logical_id_only() -> None:
    with serving(course("mincount-met"), Clock()) as client:
        request = {"ClusterName": CLUSTER, "InstanceGroupNameContains": "gb200-a"}
        assert len(client.list_cluster_nodes(**request)["ClusterNodeSummaries"]) == 5
        nodes = client.list_cluster_nodes(**request, IncludeNodeLogicalIds=True)["ClusterNodeSummaries"]
        assert [len(nodes), sum("InstanceId" in node for node in nodes)] == [18, 5]
        awaited = next(node for node in nodes if "InstanceId" not in node)
        node = client.describe_cluster_node(ClusterName=CLUSTER, NodeLogicalId=awaited["NodeLogicalId"])["NodeDetails"]
        assert node["InstanceStatus"]["Status"] == "Pending"


def test_events_are_filtered_and_sorted_newest_first(large: tuple[Any, Clock]) -> None:
    client, _ = large
    pages = list(client.get_paginator("list_cluster_events").paginate(ClusterName=CLUSTER))
    assert [len(page["Events"]) for page in pages] == [100, 25]

    def events(**request: Any) -> list[Any]:
        return list(client.list_cluster_events(ClusterName=CLUSTER, **request)["Events"])

    assert events(SortOrder="Ascending", MaxResults=100) != events(MaxResults=100)
    one = events()[0]
    assert events(NodeId=one["InstanceId"]) == [one]
    assert events(ResourceType="Cluster") == []
    assert events(EventTimeAfter=one["EventTime"]) == []
    assert events(InstanceGroupName="cpu") == []


def test_only_the_newest_500_events_are_shown(tmp_path: Path) -> None:
    scenario = write(
        tmp_path,
        """
        summary: Very many nodes.
        groups: {cpu-a: {present: 0}}
        timeline:
          - {at: 1m, group: cpu-a, event: the first}
          - {at: 1h, group: cpu-a, arrive: 500}
        """,
    )
    clock = Clock()
    with serving(course(scenario, large_layout(500)), clock) as client:

        def shown() -> list[str]:
            pages = client.get_paginator("list_cluster_events").paginate(ClusterName=CLUSTER)
            return [event["Description"] for page in pages for event in page["Events"]]

        clock.seconds = 10 * MINUTE
        assert shown() == ["the first"]
        clock.seconds = 2 * HOUR
        assert len(shown()) == 500
        assert "the first" not in shown()


def test_operations_tell_what_was_asked_for() -> None:
    clock = Clock()
    clock.seconds = HOUR
    with serving(course("target-lowered"), clock) as client:

        def operations(**request: Any) -> list[Any]:
            return list(client.list_cluster_operations(ClusterName=CLUSTER, **request)["ClusterOperationSummaries"])

        newest, oldest = operations()
        assert operations(SortOrder="Ascending") == [oldest, newest]
        assert operations(Status="Superseded") == [oldest]
        assert operations(Type="DeepHealthCheck") == []
        assert operations(CreationTimeAfter=STARTED) == [newest]
        answer = client.describe_cluster_operation(ClusterName=CLUSTER, OperationId=newest["OperationId"])
        assert answer["ScalingDetails"] == [
            {
                "InstanceGroupName": "gb200-a",
                "Status": "Done",
                "Original": {"CurrentCount": 9, "TargetCount": 18, "MinCount": 18},
                "Desired": {"TargetCount": 9, "MinCount": 8},
            }
        ]


def test_clusters_are_found_by_name_and_arn() -> None:
    with serving(course("ready"), Clock()) as client:
        (cluster,) = client.list_clusters(NameContains="hyperpod")["ClusterSummaries"]
        assert re.fullmatch(r"arn:aws:sagemaker:us-west-2:\d{12}:cluster/[a-z0-9]{12}", cluster["ClusterArn"])
        assert client.describe_cluster(ClusterName=cluster["ClusterArn"])["ClusterName"] == CLUSTER
        assert client.list_clusters(NameContains="other")["ClusterSummaries"] == []
        assert client.list_clusters(CreationTimeAfter=STARTED)["ClusterSummaries"] == []


# Errors


UUID = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("method", "request_", "code", "message"),
    [
        ("describe_cluster", {"ClusterName": "other"}, "ResourceNotFound", "other"),
        ("describe_cluster", {"ClusterName": "-"}, "ValidationException", "clusterName"),
        ("list_cluster_nodes", {"ClusterName": CLUSTER, "MaxResults": 101}, "ValidationException", "maxResults"),
        ("list_cluster_nodes", {"ClusterName": CLUSTER, "SortBy": "AGE"}, "ValidationException", "CREATION_TIME, NAME"),
        ("list_cluster_nodes", {"ClusterName": CLUSTER, "NextToken": "abc"}, "ValidationException", "NextToken"),
        ("describe_cluster_node", {"ClusterName": CLUSTER}, "ValidationException", "NodeLogicalId"),
        ("describe_cluster_node", {"ClusterName": CLUSTER, "NodeId": "i-01234567"}, "ResourceNotFound", "i-01234567"),
        ("describe_cluster_event", {"ClusterName": CLUSTER, "EventId": UUID}, "ResourceNotFound", UUID),
        ("describe_cluster_operation", {"ClusterName": CLUSTER, "OperationId": UUID}, "ResourceNotFound", UUID),
        ("list_domains", {}, "UnknownOperationException", "ListDomains"),
    ],
)
def test_bad_requests_are_refused(method: str, request_: dict[str, Any], code: str, message: str) -> None:
    with serving(course("ready"), Clock()) as client, pytest.raises(ClientError, match=message) as caught:
        getattr(client, method)(**request_)
    assert caught.value.response["Error"]["Code"] == code
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert isinstance(caught.value, client.exceptions.ResourceNotFound) == (code == "ResourceNotFound")


def test_a_token_serves_only_its_own_list(large: tuple[Any, Clock]) -> None:
    client, _ = large
    token = client.list_cluster_nodes(ClusterName=CLUSTER, MaxResults=10)["NextToken"]
    with pytest.raises(ClientError, match=r"ValidationException.*another request"):
        client.list_cluster_nodes(ClusterName=CLUSTER, SortBy="NAME", NextToken=token)
    with pytest.raises(ClientError, match=r"ValidationException.*another request"):
        client.list_cluster_events(ClusterName=CLUSTER, NextToken=token)


def test_what_is_missing_or_no_json_object_is_refused_too() -> None:
    with pytest.raises(ApiError, match="Value null at 'clusterName'"):
        checked("DescribeCluster", {})
    with pytest.raises(ApiError) as caught:
        checked("DescribeCluster", [])
    assert caught.value.code == "SerializationException"


@pytest.mark.parametrize(
    ("minutes", "code", "status"),
    [
        (4, "ThrottlingException", 400),
        (10, "ServiceUnavailable", 503),
        (19, "ExpiredTokenException", 400),
    ],
)
def test_the_api_has_the_troubles_of_the_timeline(minutes: float, code: str, status: int) -> None:
    clock = Clock()
    clock.seconds = minutes * MINUTE
    with serving(course("api-troubles"), clock) as client:
        with pytest.raises(ClientError) as caught:
            client.describe_cluster(ClusterName=CLUSTER)
        assert caught.value.response["Error"]["Code"] == code
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
        clock.seconds = HOUR
        assert client.describe_cluster(ClusterName=CLUSTER)["ClusterStatus"] == "InService"


def test_a_hanging_request_gets_no_answer_and_hinders_no_other() -> None:
    clock = Clock()
    clock.seconds = 15 * MINUTE
    with serving(course("api-troubles"), clock, read_timeout=0.2) as client:
        with pytest.raises(ReadTimeoutError):
            client.describe_cluster(ClusterName=CLUSTER)
        assert client.list_cluster_nodes(ClusterName=CLUSTER)["ClusterNodeSummaries"]


def test_optional_calls_can_be_denied() -> None:
    with serving(course("access-denied"), Clock()) as client:
        assert client.describe_cluster(ClusterName=CLUSTER)["ClusterStatus"] == "InService"
        with pytest.raises(
            ClientError, match=r"AccessDeniedException.*sagemaker:ListClusterEvents on resource: arn:aws"
        ):
            client.list_cluster_events(ClusterName=CLUSTER)


# Scenario files


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenarios_say_what_they_are_in_a_sentence(scenario: str) -> None:
    assert course(scenario).scenario.summary.endswith(".")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "cannot be read: "),
        ("a list", "$: expected a mapping, found 'a list'"),
        ("groups: {}", "$: summary is missing"),
        ("summary: x\ngroups: {}\nsped: 3", "$.sped: unknown; did you mean speed?"),
        ("summary: x\ngroups: {}\nspeed: 0", "$.speed: expected a number above 0"),
        (
            "summary: x\ngroups: {}\ndurations: {boot: 6}",
            "$.durations.boot: expected a duration such as 90s, 6m or 1h30m",
        ),
        ("summary: x\ngroups: {gb200-x: }", "$.groups.gb200-x: not a group of the layout; did you mean gb200-"),
        ("summary: x\ngroups: {gb200-a: {status: Ready}}", "$.groups.gb200-a.status: unknown value 'Ready'; known are"),
        ("summary: x\ngroups: {gb200-a: {target: 19}}", "$.groups.gb200-a: target is 19, but the layout has only 18"),
        ("summary: x\ngroups: {gb200-a: {min: 9, target: 8}}", "$.groups.gb200-a: min (9) is above target (8)"),
        (
            "summary: x\ngroups: {gb200-a: {present: 19}}",
            "$.groups.gb200-a.present: 19 instances are more than the target",
        ),
        ("summary: x\ngroups: {gb200-a: {present: [n1]}}", "$.groups.gb200-a.present[0]: unknown value 'n1'"),
        (
            "summary: x\ngroups: {gb200-a: {status: Creating}}",
            "$.groups.gb200-a.status: a group with 18 instances and min 0",
        ),
        (
            "summary: x\ngroups: {gb200-a: {status: Updating, min: 18, present: 4}}",
            "$.groups.gb200-a: before is missing",
        ),
        (
            "summary: x\ngroups: {gb200-a: {status: Creating, min: 18, present: 4, age: 4h}}",
            "$.groups.gb200-a.age: the deadline of the group would be over before the start",
        ),
    ],
)
def test_bad_scenarios_are_refused_in_one_line(tmp_path: Path, text: str, problem: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ScenarioError) as caught:
        course(path)
    assert str(caught.value).startswith(f"{path}: {problem}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{at: 1m, group: gb200-a}", "$.timeline[1]: expected exactly one of arrive, "),
        ("{at: 1m, group: gb200-a, arrive: 1, fail: x}", "$.timeline[1]: expected exactly one of arrive, "),
        ("{group: gb200-a, arrive: 1}", "$.timeline[1]: at is missing"),
        ("{at: 1m, arrive: 1}", "$.timeline[1]: group is missing"),
        (
            "{at: 1m, group: gb200-a, arrive: few}",
            "$.timeline[1].arrive: expected a number of instances, 'all' or a list",
        ),
        ("{at: 1m, group: gb200-a, arrive: 14}", "$.timeline[1].arrive: 14 instances, but only 13 are not there yet"),
        ("{at: 1m, group: gb200-a, arrive: 1, whne: 3}", "$.timeline[1].whne: unknown; known are "),
        ("{at: 1m, group: gb200-b, arrive: 1}", "$.timeline[1].arrive: gb200-b does not exist at that time; create it"),
        ("{at: 1m, group: gb200-a, create: {}}", "$.timeline[1].create: gb200-a exists already"),
        ("{at: 1m, group: gb200-a, set: {}}", "$.timeline[1].set: expected min, target or both"),
        ("{at: 1m, group: gb200-a, set: {target: 3}}", "$.timeline[1].set: min 18 <= target 3"),
        ("{at: 1m, group: gb200-a, status: Failed}", "$.timeline[1].status: unknown value 'Failed'"),
        ("{at: 1m, group: gb200-a, status: Degraded}", "$.timeline[1].status: gb200-a is still Creating"),
        ("{at: 1m, group: gb200-a, delete: false}", "$.timeline[1].delete: expected true"),
        ("{at: 1m, replace: ip-10-1-3-31}", "$.timeline[1].replace: ip-10-1-3-31 has no instance at that time"),
        ("{at: 1m, api_error: Trouble}", "$.timeline[1].api_error: unknown value 'Trouble'; known are Access"),
        ("{at: 2h, group: cpu-a, fail: x}", "$.timeline[1].fail: cpu-a is Failed at that time"),
    ],
)
def test_bad_timelines_are_refused_in_one_line(tmp_path: Path, entry: str, problem: str) -> None:
    path = write(
        tmp_path,
        f"""
        summary: x
        groups: {{cpu-a: , gb200-a: {{status: Creating, min: 18, present: 5}}}}
        timeline:
          - {{at: 1h, group: cpu-a, fail: x}}
          - {entry}
        """,
    )
    with pytest.raises(ScenarioError) as caught:
        course(path)
    assert str(caught.value).startswith(f"{path}: {problem}")
    assert "\n" not in str(caught.value)


def test_an_unknown_scenario_is_answered_with_the_known() -> None:
    with pytest.raises(ScenarioError, match=r"no scenario 'redy'; there are .*mincount-met.*ready"):
        find("redy")


# Slurm


class Nodes:
    """Stands for a Slurm: keeps the names, and does what `trouble` does before each change."""

    def __init__(self, names: Iterable[str], trouble: Callable[[], None] = lambda: None) -> None:
        self.names = list(names)
        self.calls: list[tuple[str, int]] = []
        self.trouble = trouble

    def present(self) -> tuple[str, ...]:
        return tuple(self.names)

    def arrive(self, names: Iterable[str]) -> None:
        self.trouble()
        self.calls.append(("arrive", len(list(names))))
        self.names += names

    def leave(self, names: Iterable[str]) -> None:
        self.trouble()
        self.calls.append(("leave", len(list(names))))
        self.names = [name for name in self.names if name not in set(names)]


def test_slurm_follows_the_instances() -> None:
    played = course("mincount-met")
    clock = Clock()
    nodes = Nodes([*slurm_nodes(played, played.state_at(0)), "not-ours"])
    said: list[str] = []
    follower = Follower(played, clock, nodes, said.append)
    for clock.seconds in played.times:
        follower.step()
    assert nodes.calls == [("arrive", 4), ("arrive", 5), ("arrive", 4)]
    assert "not-ours" in nodes.names
    assert said[-1] == "0:27:00 gb200-a: InService, 18 of 18 instances, min 18"


def test_nodes_of_a_rolled_back_group_leave_slurm() -> None:
    played = course("rollback-new-group")
    clock = Clock()
    nodes = Nodes(slurm_nodes(played, played.state_at(0)))
    follower = Follower(played, clock, nodes, lambda _: None)
    for clock.seconds in (0, 24 * HOUR):
        follower.step()
    assert nodes.calls == [("leave", 5)]
    assert nodes.names == [*LAYOUT.groups["p5-a"].nodes, *LAYOUT.groups["cpu-a"].nodes]


def test_a_slurm_in_trouble_is_tried_again() -> None:
    played = course("ready")
    troubles = [SlurmError("scontrol reconfigure failed"), OSError("no space")]

    def trouble() -> None:
        if troubles:
            raise troubles.pop(0)

    nodes = Nodes([], trouble)
    said: list[str] = []
    follower = Follower(played, Clock(), nodes, said.append)
    for _ in range(4):
        follower.step()
    assert nodes.calls == [("arrive", len(LAYOUT.nodes))]
    assert [line for line in said if "tried again" in line] == [
        f"Slurm could not be brought to {len(LAYOUT.nodes)} nodes, will be tried again: {why}"
        for why in ("scontrol reconfigure failed", "no space")
    ]


def test_a_slow_slurm_delays_no_answer() -> None:
    played = course("ready")
    clock = Clock()
    at_work, release = threading.Event(), threading.Event()

    def slow() -> None:
        at_work.set()
        release.wait()

    follower = Follower(played, clock, Nodes([], slow), lambda _: None)
    with serving(played, clock) as client:
        follower.start()
        assert at_work.wait(10)
        assert client.describe_cluster(ClusterName=CLUSTER)["ClusterStatus"] == "InService"
        follower.stop()
        release.set()
        follower.join()


# The command


@contextmanager
def emulator(*options: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "emulator", "--layout", str(DEVCLUSTER / "layout.yaml"), *options],
        env={**os.environ, "PYTHONPATH": str(DEVCLUSTER)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_command_serves_until_it_is_told_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulator("--scenario", "mincount-met", "--port", "0", "--speed", "100000") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(
            r"listening on (http://127\.0\.0\.1:\d+), scenario mincount-met at 100000 x real time\n", line
        )
        assert match is not None
        monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", match[1])
        client = SESSION.client("sagemaker")
        deadline = time.monotonic() + 30
        while client.describe_cluster(ClusterName=CLUSTER)["InstanceGroups"][-1]["Status"] != "InService":
            assert time.monotonic() < deadline
        client.close()
        process.send_signal(signal.SIGTERM)
        output, narration = process.communicate(timeout=30)
    assert (process.returncode, output) == (0, "")
    assert "gb200-a: " in narration


def test_the_command_tells_the_nodes_of_the_start() -> None:
    with emulator("--scenario", "mincount-met", "--initial-nodes") as process:
        output, _ = process.communicate(timeout=30)
    groups = LAYOUT.groups
    expected = [*groups["gb200-a"].nodes[:5], *groups["p5-a"].nodes, *groups["cpu-a"].nodes]
    assert (process.returncode, output.splitlines()) == (0, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scenario", "redy"], "emulator: no scenario 'redy'; there are"),
        (["--scenario", "./missing.yaml"], "emulator: missing.yaml: cannot be read: "),
        (["--scenario", "ready", "--speed", "-1"], "expected a number above 0, found '-1'"),
    ],
)
def test_the_command_refuses_what_it_cannot_use(options: list[str], message: str) -> None:
    with emulator(*options) as process:
        _, narration = process.communicate(timeout=30)
    assert process.returncode == 2
    assert message in narration.splitlines()[-1]
