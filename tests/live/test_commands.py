"""What the read commands and the first minute of a hold say on a real Slurm."""

import json
from collections.abc import Iterator

import pytest
from live.devcluster import DevCluster, devcluster

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    with devcluster("test-commands", "--scenario", "partial-ultraservers") as found:
        yield found


def test_blocks_counts_what_slurm_has(cluster: DevCluster) -> None:
    cluster.out("scontrol", "update", "nodename=ip-10-1-3-94", "state=drain", "reason=EFA: bad", root=True)
    try:
        document = json.loads(cluster.out("hyp-submit", "blocks", "gb200", "--json"))
        text = cluster.out("hyp-submit", "blocks", "gb200")
    finally:
        cluster.out("scontrol", "update", "nodename=ip-10-1-3-94", "state=resume", root=True)
    (partition,) = document["partitions"]
    assert {place["name"]: (place["total"], place["healthy"]) for place in partition["places"]} == {
        "us-1": (18, 17),
        "us-2": (18, 18),
        "us-3": (17, 17),
    }
    assert next(one for one in partition["segments"] if one["size"] == 18) == {
        "size": 18,
        "free": 1,
        "healthy": 1,
        "total": 2,
    }
    assert "1 drained: EFA: bad" in text


def test_status_shows_groups_and_ultraservers(cluster: DevCluster) -> None:
    document = json.loads(cluster.out("hyp-submit", "status", "gb200", "--json"))
    groups = {group["name"]: group["ultraservers"] for group in document["partitions"][0]["instance_groups"]}
    assert groups == {"gb200-a": {"us-1": 18}, "gb200-b": {"us-2": 18, "us-3": 17}}


def test_jobs_are_folded_and_found_by_state(cluster: DevCluster) -> None:
    ask = ("--partition=cpu", "--array=1-9%1", "--output=/dev/null", "--wrap", "sleep 60")
    array = cluster.out("sbatch", "--parsable", *ask)
    try:
        document = json.loads(cluster.out("hyp-submit", "jobs", "--mine", "--state", "pending", "--json"))
    finally:
        cluster.out("scancel", array)
    assert [job["array"] for job in document["jobs"]] == [int(array)]
    assert document["jobs"][0]["label"].endswith("-9%1]")


def test_doctor_finds_nothing_that_fails(cluster: DevCluster) -> None:
    document = json.loads(cluster.out("hyp-submit", "doctor", "--json"))
    levels = {(check["about"], check["level"]) for check in document["checks"]}
    assert document["ok"] is True
    assert {("reader", "ok"), ("partition gb200", "ok"), ("HyperPod", "ok"), ("EnforcePartLimits", "warn")} <= levels


def test_a_snapshot_of_it_plans_the_same_anywhere(cluster: DevCluster) -> None:
    ask = ("plan", "--json", "--partition=gb200", "--nodes=18", "--framework=megatron", "--tp=4", "--ep=18")
    live = json.loads(cluster.out("hyp-submit", *ask))
    cluster.out("sh", "-c", "hyp-submit snapshot > cluster.json")
    kept = json.loads(cluster.out("hyp-submit", *ask, "--snapshot", "cluster.json"))
    for document in (live, kept):
        document["fit"]["earliest"] = document["candidates"] = None
    assert kept == live


def test_a_mistyped_option_does_not_cost_a_hold() -> None:
    with devcluster("test-mistake", "--scenario", "mincount-met") as found:
        done = found.run("hyp-submit", "submit", "-p", "gb200", "-N18", "--time", "5x", "--wrap", "true")
    assert (done.returncode, done.stdout) == (7, "")
    assert done.stderr.splitlines()[-1] == "error       Invalid --time specification"


def test_a_cluster_that_names_no_partitions_is_read_by_its_nodes() -> None:
    with devcluster("test-legacy", "--scenario", "legacy") as found:
        document = json.loads(found.out("hyp-submit", "status", "--json"))
        submitted = found.run("hyp-submit", "submit", "-p", "gb200", "-N2", "--poll", "1s", "--wrap", "true")
    fed = {one["name"]: [group["name"] for group in one["instance_groups"]] for one in document["partitions"]}
    assert fed == {"gb200": ["gb200-a"], "p5": ["p5-a"], "cpu": ["cpu-a"], "dev": []}
    assert (submitted.returncode, "gb200-a InService" in submitted.stderr) == (0, True), submitted.stderr
