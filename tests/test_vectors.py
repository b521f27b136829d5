"""The planner against 4,502 answers of a real Slurm; see tests/vectors/README.md."""

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hyp_submit.model import Block, Cluster, Job, Node, Partition, Plan, Request, Switch, Topology, Workload
from hyp_submit.plan import plan

FILES = ("mixed", "half", "aggregate", "loose")
NOW = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)
SOON = 5
"""Seconds: a start promised within them is "now"."""


@dataclass(frozen=True)
class Ask:
    """One request, our plan for it, and Slurm's answer."""

    plan: Plan
    slurm: dict[str, Any]
    line: str

    @property
    def now(self) -> bool:
        return "error" not in self.slurm and self.slurm["delay"] < SOON


def _cluster(head: dict[str, Any], state: dict[str, Any]) -> Cluster:
    drained = set(state["drained"])
    busy = {name for job in state["jobs"] for name in job["nodes"]}
    tree = {name for nodes in head["leaves"].values() for name in nodes}
    nodes = tuple(
        Node(
            name,
            "ALLOCATED" if name in busy else "IDLE",
            frozenset({"DRAIN"} if name in drained else ()),
            gpus=8 if name in tree else 4,
        )
        for name in head["node_order"]
    )
    switches = [
        *(Switch(name, nodes=tuple(members)) for name, members in head["leaves"].items()),
        *(Switch(name, children=tuple(children)) for name, children in head["spines"].items()),
        Switch("root", children=tuple(head["spines"])),
    ]
    blocks = tuple(Block(name, tuple(members)) for name, members in head["blocks"].items())
    gb200 = {name for block in blocks for name in block.nodes} | set(head.get("loose", ()))
    return Cluster(
        name="vectors",
        taken_at=NOW,
        nodes=nodes,
        partitions=(
            Partition("gb200", topology="gb200", nodes=tuple(name for name in head["node_order"] if name in gb200)),
            Partition("p5", topology="p5", nodes=tuple(name for name in head["node_order"] if name in tree)),
        ),
        topologies=(
            Topology("gb200", "block", tuple(head["block_sizes"]), blocks),
            Topology("p5", "tree", switches=tuple(switches)),
        ),
        jobs=tuple(
            Job(
                number,
                "user",
                "job",
                job["partition"],
                "RUNNING",
                tuple(job["nodes"]),
                len(job["nodes"]),
                end_time=NOW + timedelta(minutes=job["minutes"]),
            )
            for number, job in enumerate(state["jobs"], start=1)
        ),
    )


def _request(ask: dict[str, Any]) -> Request:
    options = dict((option.partition("=")[::2]) for option in ask["options"])
    segment = options.get("--segment")
    switches = options.get("--switches")
    return Request(
        partition=ask["partition"],
        nodes=ask["nodes"],
        segment=int(segment) if segment else "none",
        spread_segments="--spread-segments" in options,
        switches=int(switches.partition("@")[0]) if switches else "none",
    )


@cache
def _asks(file: str) -> tuple[Ask, ...]:
    path = Path(__file__).parent / "vectors" / f"slurm-25.11-{file}.jsonl.gz"
    with gzip.open(path, "rt") as lines:
        head, *states = map(json.loads, lines)
    found = []
    for number, state in enumerate(states, start=2):
        cluster = _cluster(head, state)
        for ask in state["asks"]:
            line = f"{file}:{number} -N{ask['nodes']} {' '.join(ask['options'])}"
            found.append(Ask(plan(cluster, Workload(), _request(ask)), ask["slurm"], line))
    return tuple(found)


def test_all_answers_are_there() -> None:
    assert sum(len(_asks(file)) for file in FILES) == 4502


@pytest.mark.parametrize("file", FILES)
def test_now_and_ever_are_slurms(file: str) -> None:
    wrong = [
        ask.line for ask in _asks(file) if (ask.plan.fit.now, ask.plan.fit.ever) != (ask.now, "error" not in ask.slurm)
    ]
    assert wrong == []


@pytest.mark.parametrize("file", FILES)
def test_earliest_is_never_later_than_slurms_estimate(file: str) -> None:
    late = [
        ask.line
        for ask in _asks(file)
        if "error" not in ask.slurm
        and not (
            ask.plan.fit.earliest is not None
            and ask.plan.fit.earliest <= NOW + timedelta(seconds=ask.slurm["delay"] + SOON)
        )
    ]
    assert late == []


@pytest.mark.parametrize("file", FILES)
def test_block_jobs_take_the_very_nodes_that_slurm_takes(file: str) -> None:
    wrong = [
        ask.line
        for ask in _asks(file)
        if ask.now
        and ask.plan.topology.kind == "block"
        and {name for seat in ask.plan.fit.seats for name in seat.nodes} != set(ask.slurm["nodes"])
    ]
    assert wrong == []


@pytest.mark.parametrize("file", FILES)
def test_tree_jobs_take_the_leaf_or_the_spine_that_slurm_takes(file: str) -> None:
    wrong = []
    for ask in _asks(file):
        topology = ask.plan.topology
        if not ask.now or topology.kind != "tree":
            continue
        leaf_of = {name: switch.name for switch in topology.switches for name in switch.nodes}
        spine_of = {
            child: switch.name for switch in topology.switches for child in switch.children if switch.name != "root"
        }
        ours: Counter[str] = Counter()
        for seat in ask.plan.fit.seats:
            ours[leaf_of[seat.nodes[0]]] += len(seat.nodes)
        theirs = Counter(leaf_of[name] for name in ask.slurm["nodes"])
        spines = {spine_of[leaf] for leaf in theirs}
        if len(spines) == 1 and ours != theirs:
            wrong.append((ask.line, ours, theirs))
    assert wrong == []
