"""Snapshot files, there and back."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from factories import NOW, block_cluster, flat_cluster, group, minutes, tree_cluster
from hypothesis import given, settings
from strategies import rows

from hyp_submit import snapshots
from hyp_submit.errors import UsageError
from hyp_submit.model import (
    Block,
    Cluster,
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
    return snapshots.load(json.dumps({**HEAD, **fields}).encode(), "f")


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
        assert snapshots.load(snapshots.dump(cluster), "f") == cluster


def test_every_field_comes_back_from_its_snapshot() -> None:
    cluster = replace(
        block_cluster("..", ".x"),
        slurm_version="25.11.7",
        scheduler_parameters={"max_switch_wait": "300", "bf_continue": "True"},
        jobs=(
            Job(7, "a", "x", "part", "RUNNING", ("n1", "n2"), 2, minutes(-1), minutes(60), 2, 10, "None"),
            Job(8, "b", "y", "part", "PENDING", node_count=4, reason="Resources", array=8, task="0-3%2"),
            Job(9, "b", "y", "part", "PENDING", node_count=4, het=9, het_offset=0),
        ),
        instance_groups=(InstanceGroup("w1", "Updating", 1, 2, 1, "ml.p5.48xlarge", ("part",), "Compute"), group()),
    )
    cluster = replace(cluster, nodes=(replace(cluster.nodes[0], reason="bad", gpus_allocated=1), *cluster.nodes[1:]))
    assert snapshots.load(snapshots.dump(cluster), "f") == cluster


def test_a_snapshot_is_text_that_ends_in_a_newline() -> None:
    text = snapshots.dump(block_cluster(".."))
    assert (text[-2:], json.loads(text)["schema"]) == (b"}\n", "hyp-submit/cluster/1")


@pytest.mark.parametrize("name", ["x[1]", "a,b"])
def test_a_strange_name_comes_back_as_it_was(name: str) -> None:
    cluster = Cluster("c", NOW, (Node(name, "IDLE"),), (Partition("p", nodes=(name,)),))
    assert snapshots.load(snapshots.dump(cluster), "f") == cluster


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
        snapshots.load(text.encode(), "f")


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 10000, b"#!/bin/sh", b'{"a": "\xff"}'])
def test_what_is_no_snapshot_is_a_usage_error(text: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        snapshots.load(text, "f")
    assert str(caught.value).startswith("f: not a snapshot: ")


def test_deep_objects_are_a_usage_error() -> None:
    with pytest.raises(UsageError):
        snapshots.load(b'{"a":' * 100000, "f")


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


def test_a_plan_on_a_snapshot_is_that_on_the_cluster_itself() -> None:
    cluster = block_cluster("..1#", "....", scattered=True)
    asked = (Workload(), Request(partition="part", nodes=6))
    assert plan(snapshots.load(snapshots.dump(cluster), "f"), *asked) == plan(cluster, *asked)
