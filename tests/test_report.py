"""The plan's JSON, key by key, and the lines that a person reads."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from factories import MEGATRON, NOW, block_cluster, flat_cluster, group, minutes, tree_cluster
from hypothesis import given, settings
from hypothesis import strategies as st

from hyp_submit.model import Cluster, Open, Plan, Request, Workload
from hyp_submit.plan import plan
from hyp_submit.report import (
    Line,
    bar,
    duration,
    error_json,
    group_text,
    plain,
    plan_json,
    plan_lines,
    printable,
    stamp,
    summary,
)


def planned(cluster: Cluster, nodes: int, **sizes: Any) -> Plan:
    """A plan for a Megatron job, or for one without sizes."""
    if not sizes:
        return plan(cluster, Workload(), Request(nodes=nodes))
    sources = dict.fromkeys(sizes, "train.sh:3")
    return plan(cluster, Workload("megatron", sources=sources, **sizes), Request(nodes=nodes), MEGATRON)


def test_the_whole_document_of_a_plan_on_blocks() -> None:
    # b1 holds n1 n3 n5 n7, b2 holds n2 n4 n6 n8; n7 and n8 are busy for 10 and 20 minutes.
    made = planned(block_cluster("...1", "...2", scattered=True), 6, tp=4, ep=4, etp=1)
    assert plan_json(made) == {
        "schema": "hyp-submit/plan/1",
        "partition": "part",
        "topology": {"name": "topo", "kind": "block"},
        "nodes": 6,
        "gpus_per_node": 4,
        "world_size": 24,
        "workload": {
            "framework": "megatron",
            "tp": 4,
            "pp": None,
            "cp": None,
            "ep": 4,
            "etp": 1,
            "dp": 6,
            "shard": None,
            "inner_gpus": 4,
            "inner_nodes": 1,
            "sources": {
                "tp": "train.sh:3",
                "ep": "train.sh:3",
                "etp": "train.sh:3",
                "dp": "world / (TP x CP x PP)",
            },
        },
        "segment": 3,
        "segments": 2,
        "switches": None,
        "fit": {"now": True, "ever": True, "possible": True, "earliest": "2026-11-30T14:00:00Z"},
        "placement": [
            {"segment": 0, "block": "b2", "switch": None, "nodes": ["n2", "n4", "n6"]},
            {"segment": 1, "block": "b1", "switch": None, "nodes": ["n1", "n3", "n5"]},
        ],
        "candidates": [
            {
                "segment": 3,
                "needed": 2,
                "free": 2,
                "healthy": 2,
                "total": 2,
                "spare": 1,
                "earliest": "2026-11-30T14:00:00Z",
                "legal": True,
                "why": None,
            },
            {
                "segment": 2,
                "needed": 3,
                "free": 2,
                "healthy": 4,
                "total": 4,
                "spare": 0,
                "earliest": "2026-11-30T14:10:00Z",
                "legal": True,
                "why": "smaller",
            },
            {
                "segment": 1,
                "needed": 6,
                "free": 6,
                "healthy": 8,
                "total": 8,
                "spare": 1,
                "earliest": "2026-11-30T14:00:00Z",
                "legal": True,
                "why": "smaller",
            },
        ],
        "ranks": {"aligned": False, "groups": 6, "split": 0},
        "sbatch": ["--partition=part", "--nodes=6", "--segment=3"],
        "warnings": [],
        "errors": [],
    }


def test_the_document_of_a_plan_on_a_tree_names_leaves() -> None:
    document = plan_json(planned(tree_cluster(["...", "..."]), 5))
    assert (document["segment"], document["segments"], document["switches"]) == (None, None, 2)
    assert document["placement"] == [
        {"segment": 0, "block": None, "switch": "l1", "nodes": ["n1", "n2", "n3"]},
        {"segment": 0, "block": None, "switch": "l2", "nodes": ["n4", "n5"]},
    ]


def test_the_document_of_a_flat_plan_names_neither() -> None:
    document = plan_json(planned(flat_cluster("...", gpus=0), 2))
    assert document["placement"] == [{"segment": 0, "block": None, "switch": None, "nodes": ["n1", "n2"]}]
    assert (document["world_size"], document["topology"]) == (0, {"name": "topo", "kind": "flat"})
    assert document["workload"] == {
        **dict.fromkeys(("framework", "tp", "pp", "cp", "ep", "etp", "dp", "shard", "inner_gpus")),
        "inner_nodes": 1,
        "sources": {},
    }


def test_a_plan_that_does_not_fit_has_no_placement_and_no_start() -> None:
    document = plan_json(planned(block_cluster("..xx"), 4))
    assert (document["fit"], document["placement"], document["errors"]) == (
        {"now": False, "ever": False, "possible": True, "earliest": None},
        [],
        [],
    )
    assert plan_json(planned(block_cluster("...."), 5))["errors"] == [
        {
            "code": "cannot-fit",
            "message": "5 nodes can never start in part: it has 4, with all that is still to come",
        }
    ]


def test_warnings_have_codes_and_messages() -> None:
    assert plan_json(planned(tree_cluster(["..."]), 2))["warnings"] == [
        {
            "code": "switches-soft",
            "message": "--switches=1 holds for 300 s (max_switch_wait); then Slurm starts the job on more switches",
        }
    ]


def test_the_document_of_an_error() -> None:
    assert error_json("usage", "no") == {
        "schema": "hyp-submit/plan/1",
        "errors": [{"code": "usage", "message": "no"}],
    }


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (planned(block_cluster("....", "...."), 8), "8 nodes in part, segment 4"),
        (planned(block_cluster("....", "...."), 8, tp=8), "8 nodes in part, segment 4, groups whole"),
        (
            planned(block_cluster("....", "....", scattered=True), 8, tp=8),
            "8 nodes in part, segment 4, 4 of 4 groups split",
        ),
        (planned(block_cluster("....", "...."), 5), "5 nodes in part, no segment"),
        (planned(tree_cluster(["....", "...."]), 4), "4 nodes in part, 1 leaf switch"),
        (planned(tree_cluster(["....", "...."]), 6), "6 nodes in part, 2 leaf switches"),
    ],
)
def test_a_plan_in_one_line(made: Plan, line: str) -> None:
    assert summary(made) == line


def test_a_flat_plan_in_one_line_does_not_speak_of_segments() -> None:
    assert "segment" not in summary(planned(flat_cluster("..."), 2))


def lines(made: Plan, script: str | None = None) -> list[str]:
    """The plan for a person, in wide lines."""
    call = ["sbatch", *made.sbatch, *([script] if script else [])]
    return list(plain(plan_lines(made, NOW, script, None, call), 300))


@pytest.mark.parametrize(
    ("drawn", "starts"),
    [
        (("....",), "starts      now"),
        (("...1",), "starts      in 10 min (2026-11-30T14:10:00Z) if nobody is ahead"),
        (("...#",), "starts      behind a job without a known end"),
        (
            ("...x",),
            "starts      not on the nodes that Slurm can use now; possible once the missing ones are there",
        ),
    ],
)
def test_when_a_plan_starts_is_said(drawn: tuple[str, ...], starts: str) -> None:
    assert [line for line in lines(planned(block_cluster(*drawn), 4)) if line.startswith("starts")] == [starts]


def test_open_questions_are_shown_with_the_flag_that_settles_them() -> None:
    question = Open("ep", "train.sh:5 gives $EP, which is not a constant number", "--ep")
    made = plan(block_cluster("...."), Workload("megatron", open=(question,)), Request(nodes=4), MEGATRON)
    assert "open        EP: train.sh:5 gives $EP, which is not a constant number; say --ep" in lines(made)


def test_what_is_asked_of_slurm_can_be_pasted() -> None:
    assert "asks Slurm  sbatch --partition=part --nodes=4 --segment=4 'my job.sh'" in lines(
        planned(block_cluster("...."), 4), "my job.sh"
    )


def test_what_would_steer_a_terminal_is_shown_and_not_done() -> None:
    cluster = block_cluster("....", state="UP")
    made = plan(cluster, Workload("megatron", tp=4, sources={"tp": "a\x1b[2J\u202e:1"}), Request(nodes=4), MEGATRON)
    text = "\n".join(lines(made, "x\x1b]0;title\x07.sh"))
    assert [character for character in text if character in "\x1b\x07\u202e"] == []
    assert "TP 4 (a\\u001b[2J\\u202e:1)" in text


# --- parts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 日本 ½", "plain é 日本 ½"),
        ("a\x1b[31mb", "a\\u001b[31mb"),
        ("a\nb\tc\x7f\x9b", "a\\u000ab\\u0009c\\u007f\\u009b"),
        ("a\u202eb\u200bc", "a\\u202eb\\u200bc"),
        ("\udcff", "\\udcff"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
@settings(deadline=None, max_examples=100)
def test_printable_text_can_be_encoded_and_stays(text: str) -> None:
    shown = printable(text)
    assert shown.encode().decode() == shown
    assert printable(shown) == shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (59, "59 s"),
        (59.6, "1 min"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h 0 min"),
        (4320, "1 h 12 min"),
        (172799, "47 h 59 min"),
        (172800, "2 d 0 h"),
        (273600, "3 d 4 h"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text


def test_stamp() -> None:
    assert (stamp(None), stamp(NOW), stamp(minutes(90))) == (None, "2026-11-30T14:00:00Z", "2026-11-30T15:30:00Z")
    assert stamp(datetime(2026, 11, 30, 14, 0, 0, 999999, tzinfo=UTC)) == "2026-11-30T14:00:00Z"


def test_stamp_of_another_zone_is_utc() -> None:
    assert stamp(NOW.astimezone(timezone(timedelta(hours=2)))) == "2026-11-30T14:00:00Z"


@pytest.mark.parametrize(
    ("current", "target", "drawn"),
    [(0, 8, "--------"), (1, 16, "--------"), (4, 8, "####----"), (8, 8, "########"), (9, 8, "########"), (3, 0, "")],
)
def test_bar(current: int, target: int, drawn: str) -> None:
    assert bar(group(current=current, target=target), 8) == drawn


def test_group_text() -> None:
    assert group_text(group("Creating", 9, 18, 16)) == "w1 Creating ########-------- 9 of 18 (MinCount 16)"
    assert group_text(group("InService", 0, 0)) == "w1 InService 0 of 0 (MinCount 0)"


def test_plain_wraps_under_the_text_and_never_a_table() -> None:
    found = list(plain([Line("label", "one two three four five six"), Line("", "a" * 50, table=True)], 32))
    assert found == ["label       one two three four", "            five six", "a" * 32]


def test_plain_keeps_an_empty_line() -> None:
    assert list(plain([Line("label", "")], 40)) == ["label       "]
