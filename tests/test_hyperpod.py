"""Groups, instances and nodes."""

from dataclasses import replace

import pytest
from factories import block_cluster, group

from hyp_submit.hyperpod import needs_instances, with_partitions, with_ultraservers
from hyp_submit.model import Cluster, Instance, InstanceGroup, Partition


def instance(node: str | None, in_group: str = "w1", server: str | None = None, *, running: bool = True) -> Instance:
    return Instance(in_group, node, server, running)


def test_running_instances_are_counted_by_ultraserver() -> None:
    instances = [
        instance("n1", server="us-2"),
        instance("n2", server="us-1"),
        instance("n3", server="us-1"),
        instance("n4", server="us-1", running=False),
        instance("n5"),
        instance("n6", "w2", "us-3"),
    ]
    groups = with_ultraservers([group(), group(name="w2"), group(name="w3")], instances)
    assert [one.ultraservers for one in groups] == [(("us-1", 2), ("us-2", 1)), (("us-3", 1),), ()]


@pytest.mark.parametrize(
    ("groups", "needed"),
    [([], True), ([group()], False), ([replace(group(), partitions=())], True)],
)
def test_groups_that_name_no_partition_need_their_instances(groups: list[InstanceGroup], needed: bool) -> None:
    assert needs_instances(groups) is needed


def cluster() -> Cluster:
    """Two partitions of four nodes, and the catch-all of all eight."""
    drawn = block_cluster("....", "....")
    names = drawn.partitions[0].nodes
    partitions = (
        Partition("dev", nodes=names, default=True),
        Partition("a", nodes=names[:4]),
        Partition("b", nodes=names[4:]),
    )
    return replace(drawn, partitions=partitions)


def test_a_group_feeds_the_partitions_that_have_its_nodes_but_not_the_catch_all() -> None:
    groups = [replace(group(name=name), partitions=()) for name in ("w1", "w2", "w3", "login")]
    known = [instance("n1"), instance("n2"), instance("n5", "w2"), instance("n4", "w2")]
    unknown = [instance(None, "w3"), instance("x", "login")]
    assert {one.name: one.partitions for one in with_partitions(groups, [*known, *unknown], cluster())} == {
        "w1": ("a",),
        "w2": ("a", "b"),
        "w3": (),
        "login": (),
    }
