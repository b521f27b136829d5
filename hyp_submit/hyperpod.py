"""HyperPod's instances against its groups and Slurm's nodes: UltraServers, and which partition a group feeds.

An instance's name in Slurm is the first label of its PrivateDnsHostname (`ip-10-1-2-3`); a replacement keeps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hyp_submit.model import Cluster, Instance, InstanceGroup


def with_ultraservers(groups: Iterable[InstanceGroup], instances: Sequence[Instance]) -> tuple[InstanceGroup, ...]:
    """The groups with their UltraServers and the running instances of each, in order of id; () for a group of none."""
    counts = Counter((one.group, one.ultraserver) for one in instances if one.running and one.ultraserver)
    return tuple(
        replace(
            group,
            ultraservers=tuple(
                sorted((server, count) for (name, server), count in counts.items() if name == group.name and server)
            ),
        )
        for group in groups
    )


def needs_instances(groups: Iterable[InstanceGroup]) -> bool:
    """Whether the groups do not say which partitions they feed: clusters from before SlurmConfig."""
    return not any(group.partitions for group in groups)


def with_partitions(
    groups: Iterable[InstanceGroup], instances: Sequence[Instance], cluster: Cluster
) -> tuple[InstanceGroup, ...]:
    """The groups, each with the partitions that have nodes of its instances; default partitions, the catch-all, do not
    count. A group whose instances Slurm does not know feeds none.
    """
    nodes_of: dict[str, set[str]] = {}
    for one in instances:
        if one.node is not None:
            nodes_of.setdefault(one.group, set()).add(one.node)
    return tuple(
        replace(
            group,
            partitions=tuple(
                partition.name
                for partition in cluster.partitions
                if not partition.default and nodes_of.get(group.name, set()).intersection(partition.nodes)
            ),
        )
        for group in groups
    )
