"""What `blocks` and `status` say of small clusters, and of the bundled one."""

from dataclasses import replace

import pytest
from factories import block_cluster, flat_cluster, group, tree_cluster

from hyp_submit import files, overview
from hyp_submit.model import Cluster, InstanceGroup, Node
from hyp_submit.overview import Problem, Segments
from hyp_submit.report import Spans
from hyp_submit.views import Condition, picture


def text(rows: list[Spans]) -> list[str]:
    """Rows without their tones."""
    return ["".join(piece for piece, _ in spans).rstrip() for spans in rows]


def blocks(cluster: Cluster, width: int = 80) -> list[str]:
    return text(list(overview.blocks(picture(cluster).partitions, width)))


def status(cluster: Cluster, width: int = 80) -> list[str]:
    drawn = picture(cluster)
    return text(list(overview.status(drawn, drawn.partitions, width)))


def test_whole_segments_of_each_size_that_a_block_can_hold() -> None:
    # Six nodes a block: 4 free, and 6 free but for one drained.
    (view,) = picture(block_cluster("....##", ".....x")).partitions
    assert overview.segments(view) == (
        Segments(1, 9, 11, 12),
        Segments(2, 4, 5, 6),
        Segments(4, 2, 2, 2),
        Segments(6, 0, 1, 2),
    )


@pytest.mark.parametrize("cluster", [tree_cluster(["....", "...."]), flat_cluster("....")])
def test_without_blocks_there_are_no_segments(cluster: Cluster) -> None:
    assert [overview.segments(view) for view in picture(cluster).partitions] == [()]


def test_blocks_draws_a_cell_a_node_and_the_table_of_segments() -> None:
    assert blocks(block_cluster("..##", "...x")) == [
        "part   2 blocks, block size 4   7 of 8 nodes healthy, 5 free",
        "  b1      4/4     2 free  ..##",
        "  b2      3/4     3 free  ...D  1 drained",
        "",
        "  segment size           1   2   4",
        "  whole ones free now    5   2   0",
        "  once jobs have ended   7   3   1",
        "  healthy nodes lost     0   1   3",
    ]


def test_cells_that_do_not_fit_the_width_go_on_in_the_next_line() -> None:
    assert blocks(flat_cluster("." * 25), 40)[1:] == [
        "  nodes    25/25    25 free  ...........",
        "                             ...........",
        "                             ...",
    ]


def test_a_partition_without_nodes_says_so() -> None:
    cluster = block_cluster("....")
    empty = replace(cluster, partitions=(replace(cluster.partitions[0], nodes=()),))
    assert blocks(empty) == []


def test_the_tones_are_those_of_the_conditions() -> None:
    rows = list(overview.blocks(picture(block_cluster(".#x!")).partitions, 80))
    assert rows[1][2:5] == ((".", "good"), ("#", "busy"), ("DX", "bad"))


def test_blocks_json_of_a_block() -> None:
    drawn = picture(block_cluster(".1", "x."))
    (partition,) = overview.blocks_json(drawn, drawn.partitions)["partitions"]
    assert partition["nodes"] == {"total": 4, "healthy": 3, "free": 2}
    assert partition["places"][0] == {
        "name": "b1",
        "kind": "block",
        "depth": 0,
        "total": 2,
        "healthy": 2,
        "free": 1,
        "nodes": [
            {"name": "n1", "state": "IDLE", "condition": "idle", "reason": None, "jobs": []},
            {"name": "n2", "state": "ALLOCATED", "condition": "allocated", "reason": None, "jobs": [2]},
        ],
    }
    assert partition["segments"] == [
        {"size": 1, "free": 2, "healthy": 3, "total": 4},
        {"size": 2, "free": 0, "healthy": 1, "total": 2},
    ]


def test_problems_are_grouped_by_reason_whoever_set_it_and_when() -> None:
    cluster = block_cluster("....", "....")
    drained = {
        "n1": "EFA [root@2026-11-30T13:12:40]",
        "n2": "disk [alice@2026-11-30T13:12:40]",
        "n6": "EFA [root@2026-11-30T14:00:00]",
    }
    nodes = tuple(
        replace(node, flags=frozenset({"DRAIN"}), reason=drained[node.name]) if node.name in drained else node
        for node in cluster.nodes
    )
    drawn = picture(replace(cluster, nodes=nodes))
    assert overview.problems(drawn, drawn.partitions[0]) == (
        Problem(Condition.DRAINED, "EFA", ("n1", "n6")),
        Problem(Condition.DRAINED, "disk", ("n2",)),
    )


def test_status_shows_what_is_out_of_use_and_what_feeds_the_partition() -> None:
    servers = InstanceGroup("w1", "Creating", 5, 8, 8, "ml.x", ("part",), "Compute", (("us-1", 4), ("us-2", 1)))
    assert status(replace(block_cluster("..##", "...x"), instance_groups=(servers,))) == [
        "part  UP       8 nodes     5 free     2 in use    1 out   2 blocks, block size 4, the default",
        "  1 drained  n8",
        "  w1 Creating ##########------ 5 of 8 (MinCount 8)   ml.x",
        "    UltraServers: us-1 4, us-2 1",
    ]


def test_the_catch_all_partition_is_shown_for_what_it_is() -> None:
    lines = text(list(overview.status(drawn := picture(files.demo()), overview.partitions_of(drawn, "dev"), 100)))
    assert lines[0].endswith("no topology, the default")
    assert lines[1] == "  all kinds in one: 16 of 8 GPUs, 63 of 4 GPUs, 4 of 0 GPUs"


def test_the_bundled_cluster_has_what_a_demonstration_needs() -> None:
    blocks = {row.name: row.tally for row in picture(files.demo()).partitions[0].rows}
    assert {name: (tally.total, tally.healthy, tally.free) for name, tally in blocks.items()} == {
        "us-1": (18, 16, 16),  # two nodes drained
        "us-2": (18, 18, 18),  # wholly free
        "us-3": (18, 18, 9),  # half used
        "us-4": (9, 9, 9),  # an UltraServer of 9
    }
    kinds = {partition.name: files.demo().topology_of(partition).kind for partition in files.demo().partitions}
    assert kinds == {"dev": "flat", "gb200": "block", "p5": "tree", "cpu": "flat"}
    assert {group.name for group in files.demo().groups_of("gb200")} == {"gb200-a", "gb200-b"}


def test_status_json() -> None:
    cluster = replace(block_cluster("..##", "...x"), instance_groups=(group("InService", 8, 8, 4),))
    drawn = picture(cluster)
    (partition,) = overview.status_json(drawn, drawn.partitions)["partitions"]
    assert partition["nodes"] == {"total": 8, "healthy": 7, "free": 5, "in_use": 2}
    assert partition["problems"] == [{"condition": "drained", "reason": None, "nodes": ["n8"]}]
    assert [(one["name"], one["current"], one["target"], one["min"]) for one in partition["instance_groups"]] == [
        ("w1", 8, 8, 4)
    ]


def test_hostile_names_reach_no_terminal_raw() -> None:
    cluster = block_cluster("..")
    bad = "x\x1b[2J\u202e"
    nodes = (replace(cluster.nodes[0], flags=frozenset({"DRAIN"}), reason=bad), Node("n2", "IDLE"))
    topology = replace(cluster.topologies[0], blocks=(replace(cluster.topologies[0].blocks[0], name=bad),))
    hostile = replace(cluster, nodes=nodes, topologies=(topology,))
    shown = "".join(blocks(hostile) + status(hostile))
    assert ("\x1b" in shown, "\u202e" in shown) == (False, False)
