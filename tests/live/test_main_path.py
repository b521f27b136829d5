"""The whole path on a real Slurm: plan, hold, submit, placed in one block; and each way in which it can end."""

import json
import signal
import time
from collections.abc import Iterator

import pytest
from live.devcluster import EXAMPLE, DevCluster, block_of, devcluster

pytestmark = pytest.mark.slurm

FINISHED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}


@pytest.fixture(scope="module")
def ready() -> Iterator[DevCluster]:
    with devcluster("test-ready") as cluster:
        yield cluster


def _finish(cluster: DevCluster, job: str) -> str:
    """The state in which a job ends."""
    deadline = time.monotonic() + 60
    while (state := cluster.job(job)["JobState"]) not in FINISHED:
        assert time.monotonic() < deadline, f"job {job} is still {state}"
        time.sleep(0.2)
    return state


def test_a_job_is_held_until_mincount_is_met_and_lands_in_one_block() -> None:
    with devcluster("test-mincount", "--scenario", "mincount-met") as cluster:
        before = cluster.run("hyp-submit", "plan", "--json", EXAMPLE)
        submitted = cluster.run("hyp-submit", "submit", "--poll", "0.5s", EXAMPLE)
        job = submitted.stdout.strip()
        state = _finish(cluster, job)
        nodes = cluster.job_nodes(job)
        ranks = cluster.out("cat", f"megatron-moe-{job}.out").splitlines()

    plan = json.loads(before.stdout)
    assert before.returncode == 4
    assert plan["fit"] == {"now": False, "ever": False, "possible": True, "earliest": None}
    assert (plan["segment"], plan["segments"]) == (18, 1)
    assert submitted.returncode == 0, submitted.stderr
    assert submitted.stdout == f"{job}\n"
    assert "18 nodes in gb200, segment 18, groups whole; possible once the missing nodes are there" in submitted.stderr
    assert "gb200-a Creating" in submitted.stderr
    assert "5 of 18 (MinCount 18)" in submitted.stderr
    assert state == "COMPLETED"
    assert len(nodes) == 18
    assert block_of(nodes) == {"us-1"}
    assert ranks[0].split() == ["ranks", "node", "block"]
    assert {line.split()[1] for line in ranks[1:]} == nodes
    assert {line.split()[2] for line in ranks[1:]} == {"us-1"}


def test_a_rollback_ends_the_wait_with_its_reason() -> None:
    with devcluster("test-rollback", "--scenario", "rollback-new-group") as cluster:
        done = cluster.run("hyp-submit", "submit", "--poll", "0.5s", EXAMPLE)
        late = cluster.run("hyp-submit", "submit", "--poll", "0.5s", EXAMPLE)
        queue = cluster.queue()

    assert (done.returncode, done.stdout) == (5, "")
    assert "rolled back" in done.stderr
    assert "MinCount 18 -> 0, TargetCount 18 -> 0" in done.stderr
    assert (late.returncode, late.stdout) == (5, "")
    assert "aim at 0 instances, the job needs 18" in late.stderr
    assert queue == []


def test_a_failed_group_ends_the_wait_with_its_reason() -> None:
    with devcluster("test-failed", "--scenario", "group-failed") as cluster:
        done = cluster.run("hyp-submit", "submit", "--poll", "0.5s", EXAMPLE)
        queue = cluster.queue()

    assert (done.returncode, done.stdout) == (5, "")
    assert "instance group gb200-a Failed" in done.stderr
    assert "last event: " in done.stderr
    assert queue == []


def test_ctrl_c_while_holding_submits_nothing() -> None:
    with devcluster("test-interrupt", "--scenario", "mincount-met") as cluster:
        hold = cluster.start("hyp-submit", "submit", "--poll", "0.5s", EXAMPLE)
        assert hold.stderr is not None
        for line in hold.stderr:
            if line.startswith("holding"):
                break
        hold.send_signal(signal.SIGINT)
        output, errors = hold.communicate(timeout=60)
        queue = cluster.queue()

    assert (hold.returncode, output) == (130, "")
    assert "Traceback" not in errors
    assert queue == []


def test_without_slurmctld_there_is_one_line_and_exit_3() -> None:
    with devcluster("test-dead") as cluster:
        cluster.run("sh", "-c", "kill -9 $(pidof slurmctld)", root=True, check=True)
        done = cluster.run("hyp-submit", "submit", EXAMPLE)

    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error       slurmctld does not answer")


def test_a_ready_partition_costs_no_wait(ready: DevCluster) -> None:
    ask = ["--partition=gb200", "--nodes=2", "--segment=2", "--wrap", "true"]
    done = ready.run("hyp-submit", "submit", "--poll", "10m", *ask)

    assert done.returncode == 0, done.stderr
    assert ready.job(done.stdout.strip())["SegmentSize"] == "2"


def test_the_plan_is_where_slurm_puts_the_job(ready: DevCluster) -> None:
    ask = ["--partition=gb200", "--nodes=12", "--framework=megatron", "--tp=4", "--ep=8", "--etp=1"]
    plan = json.loads(ready.out("hyp-submit", "plan", "--json", *ask))
    job = ready.out("hyp-submit", "submit", *ask, "--wrap", "sleep 60", "--exclusive")
    deadline = time.monotonic() + 30
    while ready.job(job)["JobState"] == "PENDING" and time.monotonic() < deadline:
        time.sleep(0.1)
    nodes = ready.job_nodes(job)
    ready.run("scancel", job, check=True)

    assert plan["fit"]["now"] is True
    assert nodes == {name for seat in plan["placement"] for name in seat["nodes"]}
    assert block_of(nodes) == {seat["block"] for seat in plan["placement"]}


def test_what_slurm_refuses_is_said_in_its_words(ready: DevCluster) -> None:
    done = ready.run("hyp-submit", "submit", "-p", "gb200", "-N", "2", "--wrap", "true", "--dependency=afterok:999999")

    assert (done.returncode, done.stdout) == (7, "")
    assert "Job dependency problem" in done.stderr


def test_off_hyperpod_slurm_alone_is_asked_and_that_is_said(ready: DevCluster) -> None:
    done = ready.run(
        *("env", "-u", "HYP_SUBMIT_CLUSTER", "hyp-submit", "submit", "-p", "gb200", "-N", "1", "--wrap", "true")
    )

    assert done.returncode == 0, done.stderr
    assert "HyperPod is not asked" in done.stderr
    assert "--hyperpod" in done.stderr
