"""A cluster of the size that hyp-submit is made for, and the jobs on it. Pure, and the same each time.

6,750 GB200 nodes in 375 blocks, 2,048 p5 nodes under 128 leaf switches: too many for a slurmd each, so it is slurmctld
alone that has them (`slurmds: false`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

BLOCKS, BLOCK_SIZE = 375, 18
LEAVES, LEAF_SIZE = 128, 16
SPINES = 8
_GB200_GROUPS, _P5_GROUPS = 15, 4

_GB200_ADDRESSES = range(0x0A01_0000, 0x0A01_4000)
_P5_ADDRESSES = range(0x0A01_4000, 0x0A01_6000)
"""10.1.0.0/18 and 10.1.64.0/19."""
_RESERVED = 4
"""Addresses at the start of a subnet that AWS keeps; it keeps the last one, too."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs to submit with one call: an array of `tasks`, or a single job where that is 1."""

    user: str
    partition: str
    nodes: int
    segment: int | None = None
    minutes: int | None = None
    """Time limit; None for the partition's, which has none."""
    tasks: int = 1

    def options(self) -> list[str]:
        """For sbatch."""
        return [
            f"--partition={self.partition}",
            f"--nodes={self.nodes}",
            "--exclusive",
            *([f"--segment={self.segment}"] if self.segment else []),
            *([f"--time={self.minutes}"] if self.minutes else []),
            *([f"--array=0-{self.tasks - 1}"] if self.tasks > 1 else []),
        ]


_ROUND = (
    Batch("alice", "gb200", nodes=18, segment=18, minutes=2880),
    Batch("bob", "gb200", nodes=1, minutes=240, tasks=12),
    Batch("alice", "p5", nodes=2, minutes=720, tasks=6),
    Batch("bob", "gb200", nodes=16, segment=4, minutes=1440),
    Batch("alice", "gb200", nodes=12, segment=6, minutes=1440),
    Batch("bob", "p5", nodes=8, minutes=1440),
    Batch("alice", "gb200", nodes=10),
    Batch("bob", "gb200", nodes=9, segment=9),
    Batch("alice", "gb200", nodes=2, segment=1, minutes=90, tasks=6),
    Batch("bob", "gb200", nodes=9, segment=9, minutes=2880),
    Batch("alice", "p5", nodes=4),
    Batch("bob", "p5", nodes=1, tasks=6),
    Batch("alice", "gb200", nodes=4),
    Batch("bob", "gb200", nodes=6, segment=2, minutes=480),
)
"""40 jobs on 108 GB200 and 30 p5 nodes: fifty rounds leave a fifth of the nodes free, in pieces."""


def layout() -> dict[str, Any]:
    """What layout.yaml is to the usual devcluster."""
    blocks = {
        f"us-{number}": nodes
        for number, nodes in enumerate(_pieces(_names(_GB200_ADDRESSES), BLOCK_SIZE, BLOCKS), start=1)
    }
    leaves = {
        f"leaf-{number}": nodes
        for number, nodes in enumerate(_pieces(_names(_P5_ADDRESSES), LEAF_SIZE, LEAVES), start=1)
    }
    spines = {
        f"spine-{number}": {"switches": below}
        for number, below in enumerate(_pieces(list(leaves), LEAVES // SPINES, SPINES), start=1)
    }
    return {
        "cluster": "hyperpod-scale",
        "slurmds": False,
        "partitions": {
            "gb200": {"topology": "block", "block_sizes": [BLOCK_SIZE], "gpus": 4},
            "p5": {"topology": "tree", "gpus": 8},
        },
        "catch_all": "dev",
        "blocks": blocks,
        "switches": {
            **spines,
            "core": {"switches": list(spines)},
            **{name: {"nodes": nodes} for name, nodes in leaves.items()},
        },
        "groups": {
            "controller": {"node_type": "Controller", "instance_type": "ml.m5.4xlarge", "count": 1},
            "login": {"node_type": "Login", "instance_type": "ml.m5.4xlarge", "count": 1},
            **_groups("gb200", "ml.p6e-gb200.36xlarge", list(blocks), _GB200_GROUPS),
            **_groups("p5", "ml.p5.48xlarge", list(leaves), _P5_GROUPS),
        },
    }


def scenario() -> dict[str, Any]:
    """For the emulated API: every group is InService and complete, and stays so."""
    return {
        "summary": "Every group of the large cluster is InService and complete.",
        "groups": dict.fromkeys(layout()["groups"]),
    }


def batches(jobs: int) -> Iterator[Batch]:
    """What to submit for so many jobs. Time limits differ from round to round, so that jobs do not end all at once."""
    left = jobs
    for number in count():
        for batch in _ROUND:
            if not left:
                return
            tasks = min(batch.tasks, left)
            left -= tasks
            yield replace(batch, tasks=tasks, minutes=batch.minutes and batch.minutes + 7 * number)


def _names(addresses: range) -> Iterator[str]:
    """Host names as HyperPod makes them of addresses, in an order that has nothing to do with these.

    By a digest rather than `random`, which promises no order from one Python to the next.
    """
    usable = addresses[_RESERVED:-1]
    for address in sorted(usable, key=lambda number: hashlib.sha256(number.to_bytes(4)).digest()):
        yield "ip-" + "-".join(map(str, address.to_bytes(4)))


def _pieces(names: Iterable[str], size: int, pieces: int) -> Iterator[list[str]]:
    supply = iter(names)
    for _ in range(pieces):
        yield list(islice(supply, size))


def _groups(partition: str, instance_type: str, units: list[str], groups: int) -> dict[str, Any]:
    return {
        f"{partition}-{number}": {
            "node_type": "Compute",
            "partition": partition,
            "instance_type": instance_type,
            "units": below,
        }
        for number, below in enumerate(_pieces(units, len(units) // groups, groups), start=1)
    }
