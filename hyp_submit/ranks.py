"""Node order of a job against its blocks: which groups of ranks are split over NVLink domains.

Slurm numbers a job's nodes in the order of its node table, natural order of names, whatever block they are in.
HyperPod's names are addresses, scattered over the blocks, so that ranks of one group land in several of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def count_split(order: Sequence[str], block_of: Mapping[str, str], gpus_per_node: int, group_gpus: int) -> int:
    """How many groups of `group_gpus` consecutive ranks touch more than one block.

    `order` is the job's nodes in rank order; a node that is in no block counts as one of its own. A last group that is
    not full counts like any other; 0 where there are no groups.
    """
    if group_gpus <= 0 or gpus_per_node <= 0:
        return 0
    blocks = [block_of.get(name, name) for name in order]
    world = len(order) * gpus_per_node
    split = 0
    for start in range(0, world, group_gpus):
        last = min(start + group_gpus, world) - 1
        split += len(set(blocks[start // gpus_per_node : last // gpus_per_node + 1])) > 1
    return split
