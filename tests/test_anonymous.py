"""A cluster without its names is the same cluster."""

from dataclasses import replace

import pytest
from factories import MEGATRON, block_cluster
from hypothesis import given, settings
from strategies import rows

from hyp_submit import files, snapshots
from hyp_submit.anonymous import anonymize
from hyp_submit.model import Request, Workload
from hyp_submit.nodes import natural_key
from hyp_submit.plan import plan
from hyp_submit.report import plan_json


def test_no_name_is_left() -> None:
    cluster = files.demo()
    told = snapshots.dump(replace(cluster, scheduler_parameters={"max_switch_wait": "300", "bf_licenses": "matlab"}))
    bare = snapshots.dump(anonymize(snapshots.load(told, "f")))
    secrets = (b"alice", b"moe-72b", b"us-1", b"leaf-1", b"gb200-a", b'"gb200"', b"hyperpod-demo", b"EFA", b"matlab")
    assert [word in told for word in secrets] == [True] * len(secrets)
    assert [word for word in secrets if word in bare] == []


@given(rows)
@settings(deadline=None, max_examples=40)
def test_nodes_keep_their_number_order_states_and_places(drawn: list[str]) -> None:
    cluster = block_cluster(*drawn, scattered=True)
    bare = anonymize(cluster)
    names = [node.name for node in bare.nodes]
    assert names == sorted(set(names), key=natural_key)
    assert [replace(node, name="") for node in bare.nodes] == [replace(node, name="") for node in cluster.nodes]
    assert [[bare.position[name] for name in block.nodes] for block in bare.topologies[0].blocks] == [
        [cluster.position[name] for name in block.nodes] for block in cluster.topologies[0].blocks
    ]


def test_a_plan_on_it_is_the_same_but_for_the_names() -> None:
    demo, bare = files.demo(), anonymize(files.demo())
    sizes = Workload("megatron", tp=4, ep=8, etp=1)
    ours = plan_json(plan(demo, sizes, Request("gb200", 36), MEGATRON))
    theirs = plan_json(plan(bare, sizes, Request("partition-2", 36), MEGATRON))
    for document in (ours, theirs):
        for key in ("partition", "topology", "placement", "sbatch", "warnings"):
            del document[key]
    assert theirs == ours


@pytest.mark.parametrize("reason", ["Action:Replace", "Action:Reboot"])
def test_hyperpods_own_reasons_stay(reason: str) -> None:
    cluster = block_cluster("..")
    cluster = replace(cluster, nodes=(replace(cluster.nodes[0], reason=reason), cluster.nodes[1]))
    assert [node.reason for node in anonymize(cluster).nodes] == [reason, None]


def test_it_is_a_snapshot_like_any_other() -> None:
    bare = anonymize(files.demo())
    assert snapshots.load(snapshots.dump(bare), "f") == bare
