"""Foreign text -> the model: snapshots there and back, topologies, node states, HyperPod's answers, profiles."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import pytest
from factories import NOW, block_cluster, flat_cluster, group, minutes, tree_cluster
from hypothesis import given, settings
from strategies import rows

from hyp_submit import decode
from hyp_submit.errors import Unreadable, UsageError
from hyp_submit.model import (
    UNUSABLE_BASES,
    UNUSABLE_FLAGS,
    Block,
    Cluster,
    Framework,
    InstanceGroup,
    Job,
    Node,
    Partition,
    Request,
    Switch,
    Topology,
    Workload,
)
from hyp_submit.plan import plan

HEAD = {"schema": "hyp-submit/cluster/1", "taken_at": "2026-11-30T14:00:00Z"}


def snapshot(fields: Mapping[str, Any]) -> Cluster:
    """The cluster of a snapshot file named `f` with these fields beside the two that must be there."""
    return decode.snapshot(json.dumps({**HEAD, **fields}).encode(), "f")


def refusal(fields: Mapping[str, Any]) -> str:
    """What is said of a snapshot that is refused."""
    with pytest.raises(UsageError) as caught:
        snapshot(fields)
    return str(caught.value)


# --- snapshots there and back --------------------------------------------------------------------------------------


@given(rows)
@settings(deadline=None, max_examples=60)
def test_a_cluster_comes_back_from_its_snapshot(drawn: list[str]) -> None:
    for cluster in (block_cluster(*drawn, scattered=True), tree_cluster(drawn), flat_cluster("".join(drawn))):
        assert decode.snapshot(decode.to_snapshot(cluster), "f") == cluster


def test_every_field_comes_back_from_its_snapshot() -> None:
    cluster = replace(
        block_cluster("..", ".x"),
        slurm_version="25.11.7",
        scheduler_parameters={"max_switch_wait": "300", "bf_continue": "True"},
        jobs=(
            Job(7, "a", "x", "part", "RUNNING", ("n1", "n2"), 2, minutes(-1), minutes(60), 2, 10, "None"),
            Job(8, "b", "y", "part", "PENDING", node_count=4, reason="Resources"),
        ),
        instance_groups=(InstanceGroup("w1", "Updating", 1, 2, 1, "ml.p5.48xlarge", ("part",), "Compute"), group()),
    )
    cluster = replace(cluster, nodes=(replace(cluster.nodes[0], reason="bad", gpus_allocated=1), *cluster.nodes[1:]))
    assert decode.snapshot(decode.to_snapshot(cluster), "f") == cluster


def test_a_snapshot_is_text_that_ends_in_a_newline() -> None:
    text = decode.to_snapshot(block_cluster(".."))
    assert (text[-2:], json.loads(text)["schema"]) == (b"}\n", "hyp-submit/cluster/1")


@pytest.mark.parametrize("name", ["x[1]", "a,b"])
def test_a_strange_name_comes_back_as_it_was(name: str) -> None:
    cluster = Cluster("c", NOW, (Node(name, "IDLE"),), (Partition("p", nodes=(name,)),))
    assert decode.snapshot(decode.to_snapshot(cluster), "f") == cluster


# --- snapshots of others -------------------------------------------------------------------------------------------


def test_the_smallest_snapshot() -> None:
    assert snapshot({}) == Cluster("cluster", NOW)


def test_node_lists_are_hostlists_or_arrays() -> None:
    nodes = [{"name": f"n{number}"} for number in (1, 2, 3)]
    for listed in ("n[1-3]", "n3,n1,n2", ["n2", "n3", "n1"]):
        partition = snapshot({"nodes": nodes, "partitions": [{"name": "p", "nodes": listed}]}).partitions[0]
        assert partition == Partition("p", nodes=("n1", "n2", "n3"))


def test_a_partition_is_in_the_order_of_the_node_table_whatever_that_is() -> None:
    nodes = [{"name": name} for name in ("n9", "n10", "n2")]
    cluster = snapshot({"nodes": nodes, "partitions": [{"name": "p", "nodes": "n[2,9-10],gone"}]})
    assert cluster.partitions[0].nodes == ("n9", "n10", "n2", "gone")


def test_unknown_fields_are_ignored_everywhere() -> None:
    extra = {"news": {"deep": [1]}}
    fields = {
        "partitions": [{"name": "p", **extra}],
        "nodes": [{"name": "n1", **extra}],
        "topologies": [
            {"name": "t", "kind": "block", "block_sizes": [1], "blocks": [{"name": "b", "nodes": "n1", **extra}]},
            {"name": "u", "kind": "tree", "switches": [{"name": "s", "nodes": ["n1"], **extra}], **extra},
        ],
        "jobs": [{"id": 1, **extra}],
        "instance_groups": [{"name": "w", **extra}],
        **extra,
    }
    assert snapshot(fields) == Cluster(
        "cluster",
        NOW,
        nodes=(Node("n1", "UNKNOWN"),),
        partitions=(Partition("p"),),
        topologies=(
            Topology("t", "block", (1,), (Block("b", ("n1",)),)),
            Topology("u", "tree", switches=(Switch("s", nodes=("n1",)),)),
        ),
        jobs=(Job(1, "", "", "", "UNKNOWN"),),
        instance_groups=(InstanceGroup("w", "InService", 0, 0),),
    )


def test_times_are_utc_whatever_the_offset() -> None:
    job = {"id": 1, "end_time": "2026-11-30T17:00:00+02:00", "start_time": "2026-11-30T14:30:00"}
    cluster = snapshot({"taken_at": "2026-11-30T09:00:00-05:00", "jobs": [job]})
    assert (cluster.taken_at, cluster.jobs[0].end_time, cluster.jobs[0].start_time) == (NOW, minutes(60), minutes(30))


def test_a_jobs_node_count_is_that_of_its_nodes_where_it_is_not_said() -> None:
    jobs = [{"id": 1, "nodes": "n[1-3]"}, {"id": 2, "node_count": 5}, {"id": 3}]
    assert [job.node_count for job in snapshot({"jobs": jobs}).jobs] == [3, 5, 0]


def test_scheduler_parameters_are_text() -> None:
    parameters = {"max_switch_wait": 300, "a": "b", "c": True, "d": 1.5}
    assert snapshot({"scheduler_parameters": parameters}).scheduler_parameters == {
        "max_switch_wait": "300",
        "a": "b",
        "c": "True",
        "d": "1.5",
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schema": "x/2"}, "f: not a snapshot: $.schema is 'x/2', this program reads 'hyp-submit/cluster/1'"),
        ({"schema": None}, "f: not a snapshot: Expected `str`, got `null` - at `$.schema`"),
        ({"taken_at": 5}, "f: not a snapshot: Expected `datetime`, got `int` - at `$.taken_at`"),
        ({"nodes": [{"name": "n"}, {}]}, "f: not a snapshot: Object missing required field `name` - at `$.nodes[1]`"),
        ({"nodes": [{"name": 5}]}, "f: not a snapshot: Expected `str`, got `int` - at `$.nodes[0].name`"),
        (
            {"nodes": [{"name": "n", "gpus": "4"}]},
            "f: not a snapshot: Expected `int`, got `str` - at `$.nodes[0].gpus`",
        ),
        ({"nodes": "n[1-3]"}, "f: not a snapshot: Expected `array`, got `str` - at `$.nodes`"),
        (
            {"topologies": [{"name": "t", "kind": "ring"}]},
            "f: not a snapshot: Invalid enum value 'ring' - at `$.topologies[0].kind`",
        ),
        ({"jobs": [{"id": "7"}]}, "f: not a snapshot: Expected `int`, got `str` - at `$.jobs[0].id`"),
    ],
)
def test_a_snapshot_of_wrong_types_is_refused_with_the_place(fields: Mapping[str, Any], message: str) -> None:
    assert refusal(fields) == message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "1.5"])
def test_a_number_that_is_no_count_is_refused(number: str) -> None:
    text = json.dumps({**HEAD, "nodes": [{"name": "n", "gpus": "@"}]}).replace('"@"', number)
    with pytest.raises(UsageError):
        decode.snapshot(text.encode(), "f")


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 10000, b"#!/bin/sh", b'{"a": "\xff"}'])
def test_what_is_no_snapshot_is_a_usage_error(text: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        decode.snapshot(text, "f")
    assert str(caught.value).startswith("f: not a snapshot: ")


def test_deep_objects_are_a_usage_error() -> None:
    with pytest.raises(UsageError):
        decode.snapshot(b'{"a":' * 100000, "f")


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-01:00"])
def test_a_time_out_of_range_is_a_usage_error(time: str) -> None:
    refusal({"taken_at": time})


@pytest.mark.parametrize(
    "fields",
    [
        {"topologies": [{"name": "t", "kind": "block", "block_sizes": [0]}]},
        {"topologies": [{"name": "t", "kind": "block", "block_sizes": [-18]}]},
        {"topologies": [{"name": "t", "kind": "block", "block_sizes": [18, 9]}]},
        {"nodes": [{"name": "n", "gpus": -4}]},
        {"nodes": [{"name": "n"}, {"name": "n"}]},
    ],
)
def test_numbers_and_names_that_cannot_be_are_refused(fields: Mapping[str, Any]) -> None:
    refusal(fields)


def test_a_broken_hostlist_in_a_snapshot_names_its_file() -> None:
    assert refusal({"partitions": [{"name": "p", "nodes": "n[1-"}]}).startswith("f: ")


# --- node states ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "base", "flags"),
    [
        ("IDLE", "IDLE", set()),
        ("IDLE+CLOUD+DRAIN", "IDLE", {"CLOUD", "DRAIN"}),
        (["IDLE", "CLOUD"], "IDLE", {"CLOUD"}),
        ("idle*", "IDLE", {"NOT_RESPONDING"}),
        ("idle~", "IDLE", {"POWERED_DOWN"}),
        ("alloc#", "ALLOCATED", {"POWERING_UP"}),
        ("mix-", "MIXED", {"PLANNED"}),
        ("DOWN*+CLOUD", "DOWN", {"NOT_RESPONDING", "CLOUD"}),
        ("drained", "IDLE", {"DRAIN"}),
        ("draining", "ALLOCATED", {"DRAIN"}),
        ("drained*", "IDLE", {"DRAIN", "NOT_RESPONDING"}),
        ("maint", "IDLE", {"MAINTENANCE"}),
        ("IDLE+COMPLETING", "IDLE", {"COMPLETING"}),
        ("", "UNKNOWN", set()),
        ([], "UNKNOWN", set()),
        ("PERFECTLY_FINE", "UNKNOWN", {"PERFECTLY_FINE"}),
        ("+*+", "UNKNOWN", {"NOT_RESPONDING"}),
    ],
)
def test_state(words: str | list[str], base: str, flags: set[str]) -> None:
    assert decode.state(words) == (base, frozenset(flags))


FLAGS = sorted(
    {"CLOUD", "POWERED_DOWN", "POWERING_UP", "COMPLETING", "RESERVED", "MAINTENANCE", "REBOOT_ISSUED", *UNUSABLE_FLAGS}
)


@pytest.mark.parametrize(("base", "flag"), list(product(sorted(decode.BASES), [None, *FLAGS])))
def test_usable_and_free_over_every_base_and_flag(base: str, flag: str | None) -> None:
    node = Node("n", *decode.state([base, flag] if flag else [base]))
    assert (node.base, node.flags) == (base, frozenset([flag] if flag else []))
    healthy = base in {"IDLE", "ALLOCATED", "MIXED"} and flag not in UNUSABLE_FLAGS
    assert node.healthy == healthy
    assert node.free == (healthy and base == "IDLE" and flag in {None, "CLOUD", "POWERED_DOWN", "POWERING_UP"})


def test_states_are_written_so_that_they_read_back() -> None:
    for base in sorted(decode.BASES):
        for flags in combinations(FLAGS, 2):
            node = Node("n", base, frozenset(flags))
            assert decode.state(node.state) == (node.base, node.flags)
    assert not Node("n", "IDLE", frozenset({"FAIL"})).healthy
    assert frozenset({"DOWN", "ERROR", "FUTURE", "UNKNOWN"}) == UNUSABLE_BASES


# --- topology.yaml -------------------------------------------------------------------------------------------------

TOPOLOGY = """
- topology: gb200
  cluster_default: false
  block:
    block_sizes: [18, 36]
    blocks:
      - {block: us-1, nodes: "n[1-3]"}
      - {block: us-2, nodes: null}
  tree: null
  flat: false
- topology: p5
  block: null
  tree:
    switches:
      - {switch: leaf-1, children: null, nodes: "m[1-2]"}
      - {switch: spine, children: "leaf-[1-2]", nodes: null}
- topology: default
  cluster_default: true
  flat: true
"""


def test_topologies() -> None:
    assert decode.topologies(TOPOLOGY) == (
        Topology("gb200", "block", (18, 36), (Block("us-1", ("n1", "n2", "n3")), Block("us-2", ()))),
        Topology("p5", "tree", switches=(Switch("leaf-1", nodes=("m1", "m2")), Switch("spine", ("leaf-1", "leaf-2")))),
        Topology("default", "flat"),
    )


def test_no_topologies() -> None:
    assert (decode.topologies(""), decode.topologies("null"), decode.topologies("[]")) == ((), (), ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "topology.yaml: expected a list of topologies, found int"),
        ("- 5", "topology.yaml: $[0]: expected a mapping, found int"),
        ("- block: 5", "topology.yaml: $[0].block: expected a mapping, found int"),
        ("- block: {blocks: [5]}", "topology.yaml: $[0].block.blocks[0]: expected a mapping, found int"),
        ("- tree: {switches: [[]]}", "topology.yaml: $[0].tree.switches[0]: expected a mapping, found list"),
    ],
)
def test_a_topology_of_wrong_types_is_unreadable_with_the_place(text: str, message: str) -> None:
    with pytest.raises(Unreadable) as caught:
        decode.topologies(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["a: [", "!!python/object/apply:os.system [x]", "[" * 5000])
def test_what_is_no_yaml_is_unreadable_in_one_line(text: str) -> None:
    with pytest.raises(Unreadable) as caught:
        decode.topologies(text)
    assert str(caught.value).startswith("topology.yaml: not YAML: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "- block: {block_sizes: [x]}",
        "- block: {block_sizes: [null]}",
        "- block: {block_sizes: [.nan]}",
        "- block: {block_sizes: [.inf]}",
        "- block: {block_sizes: [1.5]}",
        "- block: {block_sizes: 18}",
        '- block: {block_sizes: [1], blocks: [{block: b, nodes: "n[1-"}]}',
    ],
)
def test_a_topology_of_wrong_values_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        decode.topologies(text)


# --- scontrol, pyslurm, HyperPod -----------------------------------------------------------------------------------


def test_oneline_records() -> None:
    text = "PartitionName=a Topology=t Nodes=n[1-2] Reason=not so good x=1\n\nPartitionName=b   State=UP\n"
    assert decode.oneline_records(text) == [
        {"PartitionName": "a", "Topology": "t", "Nodes": "n[1-2]", "Reason": "not so good", "x": "1"},
        {"PartitionName": "b", "State": "UP"},
    ]


def test_a_pyslurm_job_without_a_time_limit_has_no_end() -> None:
    seconds = int(NOW.timestamp())
    fields = {
        "id": 7,
        "user_name": "a",
        "name": None,
        "partition": "p",
        "state": "RUNNING",
        "allocated_nodes": "n[1-2]",
        "num_nodes": 2,
        "start_time": seconds,
        "end_time": seconds + 3600,
        "segment_size": 0,
        "priority": 1,
        "state_reason": "None",
    }
    limited, endless = decode.pyslurm_jobs(
        [SimpleNamespace(**fields, time_limit=60), SimpleNamespace(**fields, time_limit=None)]
    )
    assert limited == Job(7, "a", "", "p", "RUNNING", ("n1", "n2"), 2, NOW, minutes(60), None, 1, None)
    assert endless == replace(limited, end_time=None)


def test_instance_groups_of_an_answer() -> None:
    answer = {
        "InstanceGroups": [
            {
                "InstanceGroupName": "w1",
                "Status": "Creating",
                "CurrentCount": 4,
                "TargetCount": 18,
                "MinCount": 16,
                "InstanceType": "ml.p6e-gb200.36xlarge",
                "SlurmConfig": {"NodeType": "Compute", "PartitionNames": ["gb200"]},
                "ActiveOperations": {"Scaling": 1},
            },
            {"InstanceGroupName": "controller", "Status": "InService", "SlurmConfig": None},
            {},
        ]
    }
    assert decode.instance_groups(answer) == (
        InstanceGroup("w1", "Creating", 4, 18, 16, "ml.p6e-gb200.36xlarge", ("gb200",), "Compute"),
        InstanceGroup("controller", "InService", 0, 0),
        InstanceGroup("", "Unknown", 0, 0),
    )
    assert (decode.instance_groups({}), decode.instance_groups({"InstanceGroups": None})) == ((), ())


# --- profiles ------------------------------------------------------------------------------------------------------


def test_a_framework_profile() -> None:
    text = "name: x\ntitle: X\ngroups: [[tp, cp]]\nflags: {tp: [--tp, -t]}\ndefaults: {etp: tp}\n"
    assert decode.framework(text, "x.yaml") == Framework(
        "x", "X", (("tp", "cp"),), defaults={"etp": "tp"}, flags={"tp": ("--tp", "-t")}
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.yaml: Expected `object`, got `null`"),
        ("name: x", "x.yaml: Object missing required field `title`"),
        ("name: x\ntitle: X\ngroups: []\nflag: {}", "x.yaml: Object contains unknown field `flag`"),
        ("name: x\ntitle: X\ngroups: tp", "x.yaml: Expected `array`, got `str` - at `$.groups`"),
    ],
)
def test_a_broken_profile_is_a_usage_error_with_the_place(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        decode.framework(text, "x.yaml")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "line", ["groups: [[tpp]]", "groups: []\ndefaults: {etp: tpp}", "groups: []\nflags: {tpp: [--x]}"]
)
def test_a_size_that_does_not_exist_in_a_profile_is_a_usage_error(line: str) -> None:
    with pytest.raises(UsageError):
        decode.framework(f"name: x\ntitle: X\n{line}\n", "x.yaml")


def test_a_plan_on_a_snapshot_is_that_on_the_cluster_itself() -> None:
    cluster = block_cluster("..1#", "....", scattered=True)
    asked = (Workload(), Request(partition="part", nodes=6))
    assert plan(decode.snapshot(decode.to_snapshot(cluster), "f"), *asked) == plan(cluster, *asked)
