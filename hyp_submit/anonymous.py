"""A cluster without its names, for a bug report: what is left is structure, states, counts and times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from hyp_submit.model import Block, Cluster, Switch
from hyp_submit.nodes import natural_key

_PER_SUBNET = 250


def anonymize(cluster: Cluster) -> Cluster:
    """The same cluster with every name replaced, the same name by the same one everywhere.

    Node names keep their natural order, which slurmctld's node table and so the rank order depend on, and stay in the
    form of HyperPod's addresses. Reasons become `reason 1`, ...; HyperPod's own `Action:...` stay, since they mean
    something. Of the scheduler's parameters those with numbers stay.
    """
    node = _nodes(cluster)
    partition = _renamer("partition-", (one.name for one in cluster.partitions))
    topology = _renamer("topology-", (one.name for one in cluster.topologies if one.name != "default"), keep="default")
    block = _renamer("block-", (block.name for one in cluster.topologies for block in one.blocks))
    switch = _renamer("switch-", (switch.name for one in cluster.topologies for switch in one.switches))
    user = _renamer("user-", (job.user for job in cluster.jobs))
    job_name = _renamer("job-", (job.name for job in cluster.jobs))
    group = _renamer("group-", (one.name for one in cluster.instance_groups))
    reason = _renamer("reason ", (one.reason for one in cluster.nodes if one.reason))

    def members(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(node, names))

    return replace(
        cluster,
        name="cluster",
        scheduler_parameters={name: value for name, value in cluster.scheduler_parameters.items() if value.isdecimal()},
        nodes=tuple(
            replace(
                one,
                name=node(one.name),
                reason=one.reason if one.reason is None or one.reason.startswith("Action:") else reason(one.reason),
            )
            for one in cluster.nodes
        ),
        partitions=tuple(
            replace(
                one,
                name=partition(one.name),
                topology=one.topology and topology(one.topology),
                nodes=members(one.nodes),
            )
            for one in cluster.partitions
        ),
        topologies=tuple(
            replace(
                one,
                name=topology(one.name),
                blocks=tuple(Block(block(each.name), members(each.nodes)) for each in one.blocks),
                switches=tuple(
                    Switch(switch(each.name), tuple(map(switch, each.children)), members(each.nodes))
                    for each in one.switches
                ),
            )
            for one in cluster.topologies
        ),
        jobs=tuple(
            replace(
                job,
                user=user(job.user),
                name=job_name(job.name),
                partition=",".join(map(partition, job.partition.split(","))),
                nodes=members(job.nodes),
            )
            for job in cluster.jobs
        ),
        instance_groups=tuple(
            replace(
                one,
                name=group(one.name),
                partitions=tuple(map(partition, one.partitions)),
                ultraservers=tuple((f"ultraserver-{at}", count) for at, (_, count) in enumerate(one.ultraservers, 1)),
            )
            for one in cluster.instance_groups
        ),
    )


def _renamer(prefix: str, names: Iterable[str | None], *, keep: str | None = None) -> Callable[[str], str]:
    """Replaces each of the names by the prefix and a number, in the order of their first use; others by the prefix."""
    known: Mapping[str, str] = {
        name: f"{prefix}{number}" for number, name in enumerate(dict.fromkeys(filter(None, names)), start=1)
    }
    return lambda name: name if name == keep or not name else known.get(name, f"{prefix}0")


def _nodes(cluster: Cluster) -> Callable[[str], str]:
    """Replaces node names by addresses in the same natural order."""
    named = {one.name for one in cluster.nodes}
    named.update(name for one in cluster.partitions for name in one.nodes)
    named.update(name for one in cluster.topologies for block in one.blocks for name in block.nodes)
    named.update(name for one in cluster.topologies for switch in one.switches for name in switch.nodes)
    named.update(name for job in cluster.jobs for name in job.nodes)
    known = {name: _address(place) for place, name in enumerate(sorted(named, key=natural_key))}
    return lambda name: known[name]


def _address(place: int) -> str:
    subnet, host = divmod(place, _PER_SUBNET)
    return f"ip-10-{subnet // _PER_SUBNET}-{subnet % _PER_SUBNET}-{host + 1}"
