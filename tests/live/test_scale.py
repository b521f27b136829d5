"""The large cluster of the devcluster: as many nodes as it says, fewer jobs than it can have, to be quick."""

import json
from collections import Counter
from collections.abc import Iterator

import pytest
from inside import scale
from live.devcluster import DevCluster, devcluster

JOBS = 120
"""Three rounds of its mix."""

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def large() -> Iterator[DevCluster]:
    with devcluster("test-scale", "--scale", str(JOBS)) as cluster:
        yield cluster


def test_every_node_is_there_every_job_has_its_nodes_and_a_plan_fits(large: DevCluster) -> None:
    wanted = Counter[str]()
    for batch in scale.batches(JOBS):
        wanted[batch.partition] += batch.tasks * batch.nodes
    states = {
        (partition, state.rstrip("~#")): int(count)
        for partition, state, count in map(str.split, large.out("sinfo", "-h", "--format=%R %T %D").splitlines())
    }
    users = Counter(large.out("squeue", "-h", "--states=CONFIGURING", "--array", "--format=%u").split())
    plan = json.loads(large.out("hyp-submit", "plan", "--json", "--partition=gb200", "--nodes=36"))

    assert states == {
        ("gb200", "allocated"): wanted["gb200"], ("gb200", "idle"): 6750 - wanted["gb200"],
        ("p5", "allocated"): wanted["p5"], ("p5", "idle"): 2048 - wanted["p5"],
        ("dev", "allocated"): wanted.total(), ("dev", "idle"): 8798 - wanted.total(),
    }  # fmt: skip
    assert set(users) == {"alice", "bob"}
    assert users.total() == JOBS
    assert plan["fit"]["now"] is True
