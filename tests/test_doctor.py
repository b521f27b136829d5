"""What the doctor says of clusters with one thing wrong."""

from dataclasses import replace

import pytest
from factories import block_cluster, flat_cluster, group, tree_cluster

from hyp_submit.doctor import Check, Facts, document, examine, healthy, rows
from hyp_submit.model import Cluster, HyperPod, Partition, Topology

WELL = replace(block_cluster("....", "...."), slurm_version="25.11.4", scheduler_parameters={"max_switch_wait": "600"})
FACTS = Facts(
    reader="pyslurm",
    reader_why="built for this Slurm",
    cluster=WELL,
    settings={"EnforcePartLimits": "ALL"},
    hyperpod=HyperPod("pod", "InService", continuous=True, groups=(group(),)),
)


def said(facts: Facts, level: str) -> list[tuple[str, str]]:
    return [(check.about, check.found) for check in examine(facts) if check.level == level]


def test_where_all_is_well_nothing_is_wrong() -> None:
    assert (said(FACTS, "warn"), said(FACTS, "fail"), healthy(examine(FACTS))) == ([], [], True)


def test_a_slurm_that_cannot_be_read_is_a_failure() -> None:
    facts = Facts(slurm_error="no Slurm on this host", hyperpod_error="no AWS credentials here")
    assert said(facts, "fail") == [("Slurm", "no Slurm on this host")]
    assert not healthy(examine(facts))


def on(cluster: Cluster) -> Facts:
    return replace(FACTS, cluster=replace(cluster, slurm_version=cluster.slurm_version or "25.11.4"))


@pytest.mark.parametrize(
    ("version", "traps"),
    [
        ("25.11.4", 0),
        ("26.05.5", 0),
        ("25.11.2", 1),
        ("25.11.1", 2),
        ("25.11.0", 2),
        ("24.11.5", 1),
        ("odd", 1),
    ],
)
def test_versions_with_known_traps(version: str, traps: int) -> None:
    found = said(on(replace(WELL, slurm_version=version)), "warn")
    assert [about for about, _ in found] == ["version"] * traps


def test_nodes_in_no_block_are_named() -> None:
    topology = replace(WELL.topologies[0], blocks=WELL.topologies[0].blocks[:1])
    assert said(on(replace(WELL, topologies=(topology,))), "warn") == [
        ("partition part", "4 of its nodes are in no block, and get no job: n[5-8]")
    ]


def test_a_topology_that_is_empty_or_does_not_exist_is_said() -> None:
    empty = replace(WELL, topologies=(Topology(WELL.topologies[0].name, "block", (4,)),))
    assert said(on(empty), "warn") == [("partition part", "its block topology topo is empty")]
    missing = replace(WELL, topologies=())
    assert said(on(missing), "warn") == [
        ("partition part", "its topology topo does not exist: Slurm places its jobs as if there were none")
    ]


def test_gpus_without_a_topology_are_said_and_the_catch_all_is_not_blamed() -> None:
    assert [about for about, _ in said(on(flat_cluster("..", gpus=8)), "warn")] == ["partition part"]
    assert said(on(flat_cluster("..")), "warn") == []
    nodes = tuple(replace(node, gpus=at * 4) for at, node in enumerate(flat_cluster("..").nodes))
    assert said(on(replace(flat_cluster(".."), nodes=nodes)), "warn") == []


def test_a_tree_whose_nodes_all_have_a_switch_is_well() -> None:
    assert said(on(tree_cluster(["....", "...."])), "warn") == []


def test_settings_that_let_jobs_wait_for_ever_are_said() -> None:
    facts = replace(FACTS, settings={"EnforcePartLimits": "NO"})
    assert [about for about, _ in said(facts, "warn")] == ["EnforcePartLimits"]


def test_the_text_reader_is_a_warning_with_its_reason() -> None:
    facts = replace(FACTS, reader="text", reader_why="pyslurm is not installed", notes=("jobs of others are hidden",))
    assert said(facts, "warn") == [
        ("reader", "text of scontrol and squeue: pyslurm is not installed"),
        ("reader", "jobs of others are hidden"),
    ]


def test_what_hyperpod_lacks_is_said() -> None:
    without = replace(FACTS, hyperpod=None, hyperpod_error="no AWS credentials here")
    assert said(without, "warn") == [("HyperPod", "no AWS credentials here")]
    old = replace(FACTS, hyperpod=HyperPod("pod", "InService", continuous=False, groups=(group(),)))
    assert [about for about, _ in said(old, "warn")] == ["provisioning"]
    denied = replace(FACTS, denied=("ListClusterEvents",))
    assert said(denied, "warn") == [("permission", "sagemaker:ListClusterEvents is refused")]


def test_a_partition_that_no_group_feeds_is_said_but_not_the_catch_all() -> None:
    partitions = (*WELL.partitions, Partition("extra", topology="topo", nodes=WELL.partitions[0].nodes))
    partitions = (replace(partitions[0], default=True), partitions[1])
    assert said(on(replace(WELL, partitions=partitions)), "warn") == [("partition extra", "no instance group feeds it")]


@pytest.mark.parametrize(
    ("environment", "about"),
    [
        ({"SBATCH_SEGMENT_SIZE": "2"}, ["environment"]),
        ({"SLURM_JOB_ID": "7", "SLURM_CPU_BIND": "x"}, ["environment"]),
        ({"SLURM_CONF": "/x"}, []),
        ({"AWS_ENDPOINT_URL_SAGEMAKER": "http://127.0.0.1:8000"}, []),
        ({"AWS_ENDPOINT_URL_SAGEMAKER": "https://example.com"}, []),
        ({"AWS_ENDPOINT_URL_SAGEMAKER": "http://example.com"}, ["endpoint"]),
        ({"AWS_ENDPOINT_URL_SAGEMAKER": "http://127.0.0.1.example.com"}, ["endpoint"]),
    ],
)
def test_the_environment(environment: dict[str, str], about: list[str]) -> None:
    assert [one for one, _ in said(replace(FACTS, environment=environment), "warn")] == about


def test_rows_and_json_say_the_same() -> None:
    checks = (Check("ok", "a", "b"), Check("fail", "c\x1b", "d", "e"))
    assert ["".join(text for text, _ in row) for row in rows(checks)] == ["ok    a: b", "fail  c\\u001b: d", "      e"]
    assert document(checks) == {
        "schema": "hyp-submit/doctor/1",
        "ok": False,
        "checks": [
            {"level": "ok", "about": "a", "found": "b", "remedy": None},
            {"level": "fail", "about": "c\x1b", "found": "d", "remedy": "e"},
        ],
    }
