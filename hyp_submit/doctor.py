"""What stands in the way of good plans and safe waits here, each with its remedy. Pure: facts in, checks out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hyp_submit.model import Cluster, HyperPod, Topology
from hyp_submit.nodes import fold
from hyp_submit.report import Spans, Tone, printable

SCHEMA = "hyp-submit/doctor/1"

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    level: Level
    about: str
    found: str
    remedy: str | None = None
    """What to do about it; None where there is nothing to be done."""


@dataclass(frozen=True)
class Facts:
    """All that was found out; what could not be is None, and its error says why."""

    environment: Mapping[str, str] = field(default_factory=dict)
    reader: str | None = None
    """How the cluster is read: `pyslurm`, `text`."""
    reader_why: str = ""
    cluster: Cluster | None = None
    slurm_error: str | None = None
    notes: tuple[str, ...] = ()
    """What the reader could not see or understand."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """`scontrol show config`, as far as it has values."""
    hyperpod: HyperPod | None = None
    hyperpod_error: str | None = None
    denied: tuple[str, ...] = ()
    """Calls of HyperPod's API that are refused and that a hold can do without."""


def examine(facts: Facts) -> tuple[Check, ...]:
    """Every check, in the order in which a person would look: Slurm, its topologies, HyperPod, the environment."""
    return (
        *_slurm(facts),
        *(check for cluster in [facts.cluster] if cluster for check in (*_version(cluster), *_topologies(cluster))),
        *_settings(facts),
        *_hyperpod(facts),
        *_environment(facts.environment),
    )


def healthy(checks: Sequence[Check]) -> bool:
    """Whether nothing failed."""
    return all(check.level != "fail" for check in checks)


# --- Slurm ---------------------------------------------------------------------------------------------------------


def _slurm(facts: Facts) -> Iterator[Check]:
    if facts.slurm_error is not None:
        yield Check("fail", "Slurm", facts.slurm_error, "plans and holds need a Slurm that can be read")
    if facts.reader == "pyslurm":
        yield Check("ok", "reader", f"pyslurm: {facts.reader_why}")
    elif facts.reader is not None:
        yield Check(
            "warn",
            "reader",
            f"text of scontrol and squeue: {facts.reader_why}",
            "slower on a large cluster: pip install 'pyslurm==<Slurm's X.Y>.*' where hyp-submit is",
        )
    for note in facts.notes:
        yield Check("warn", "reader", note, "what is hidden from you counts as not there in a plan")


def _version(cluster: Cluster) -> Iterator[Check]:
    """Releases with known traps for block topologies (Slurm's CHANGELOG, 25.11)."""
    version = cluster.slurm_version or ""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if match is None:
        yield Check("warn", "version", f"Slurm {version or 'of unknown version'}", None)
        return
    release = (int(match[1]), int(match[2]))
    patch = int(match[3] or 0)
    traps = []
    if release < (25, 11):
        traps.append("one topology for the whole cluster, none of a partition's own: update to 25.11")
    if release == (25, 11) and patch < 3:
        traps.append("nodes that power down leave their block and do not come back to it: update to 25.11.3")
    if release == (25, 11) and patch < 2:
        traps.append("--consolidate-segments crashes slurmctld: update to 25.11.2")
    if not traps:
        yield Check("ok", "version", f"Slurm {version}")
    for trap in traps:
        what, _, remedy = trap.rpartition(": ")
        yield Check("warn", "version", f"Slurm {version}: {what}", remedy)


def _topologies(cluster: Cluster) -> Iterator[Check]:
    known = {topology.name for topology in cluster.topologies}
    for partition in cluster.partitions:
        about = f"partition {partition.name}"
        topology = cluster.topology_of(partition)
        if partition.topology is not None and partition.topology not in known:
            yield Check(
                "warn",
                about,
                f"its topology {partition.topology} does not exist: Slurm places its jobs as if there were none",
                "topology.yaml must have it (HyperPod writes it when instances arrive)",
            )
            continue
        placed = {name for block in topology.blocks for name in block.nodes}
        placed |= {name for switch in topology.switches for name in switch.nodes}
        loose = [name for name in partition.nodes if name not in placed]
        if topology.kind == "flat":
            yield from _flat(cluster, partition.name, partition.nodes)
        elif not placed:
            yield Check("warn", about, f"its {topology.kind} topology {topology.name} is empty", "see topology.yaml")
        elif loose:
            yield Check(
                "warn",
                about,
                f"{len(loose)} of its nodes are in no {_unit(topology)}, and get no job: {fold(loose)}",
                "add them to topology.yaml, then scontrol reconfigure",
            )
        else:
            yield Check("ok", about, f"{topology.kind} topology {topology.name}, every node has its {_unit(topology)}")


def _flat(cluster: Cluster, name: str, members: Sequence[str]) -> Iterator[Check]:
    gpus = {node.gpus for member in members if (node := cluster.node.get(member)) is not None}
    if len(gpus) > 1:
        yield Check("ok", f"partition {name}", "no topology, nodes of all kinds: name another one for training jobs")
    elif gpus - {0}:
        yield Check(
            "warn",
            f"partition {name}",
            "GPU nodes without a topology: Slurm puts jobs on any of them, near or far",
            "give it a Topology= in slurm.conf (Slurm 25.11)",
        )
    else:
        yield Check("ok", f"partition {name}", "no topology, and no GPUs that would need one")


def _unit(topology: Topology) -> str:
    return "block" if topology.kind == "block" else "switch"


def _settings(facts: Facts) -> Iterator[Check]:
    if facts.cluster is None:
        return
    wait = facts.cluster.scheduler_parameters.get("max_switch_wait")
    yield Check(
        "ok",
        "max_switch_wait",
        f"--switches=N holds for {wait or 300} s at most{'' if wait else ' (the default)'}, then jobs start scattered",
    )
    if facts.settings.get("EnforcePartLimits", "ALL").upper() == "NO":
        yield Check(
            "warn",
            "EnforcePartLimits",
            "NO: a job larger than its partition is accepted and waits for ever",
            "EnforcePartLimits=ALL in slurm.conf; hyp-submit itself refuses such jobs",
        )
    default = next((topology for topology in facts.cluster.topologies if topology.name == "default"), None)
    if any(topology.kind == "block" for topology in facts.cluster.topologies) and (
        default is None or default.kind != "block"
    ):
        yield Check(
            "ok",
            "rank order",
            "Slurm numbers nodes by name, not by block: BlockAsNodeRank works for the cluster's default topology only",
        )


# --- HyperPod ------------------------------------------------------------------------------------------------------


def _hyperpod(facts: Facts) -> Iterator[Check]:
    if facts.hyperpod is None:
        if facts.hyperpod_error is not None:
            yield Check(
                "warn",
                "HyperPod",
                facts.hyperpod_error,
                "until then submit waits on Slurm alone; sagemaker:DescribeCluster is the permission that it needs",
            )
        return
    pod = facts.hyperpod
    yield Check("ok", "HyperPod", f"cluster {pod.name} is {pod.status}, {len(pod.groups)} instance groups")
    if not pod.continuous:
        yield Check(
            "warn",
            "provisioning",
            "not Continuous: no MinCount, no events; a group that cannot be filled rolls the whole update back",
            None,
        )
    fed = {name for group in pod.groups for name in group.partitions}
    for partition in facts.cluster.partitions if facts.cluster else ():
        if fed and partition.name not in fed and not partition.default:
            yield Check(
                "warn", f"partition {partition.name}", "no instance group feeds it", "its holds wait on Slurm alone"
            )
    for call in facts.denied:
        yield Check("warn", "permission", f"sagemaker:{call} is refused", "holds do without it, and say less")


# --- environment ---------------------------------------------------------------------------------------------------


def _environment(environment: Mapping[str, str]) -> Iterator[Check]:
    inputs = sorted(name for name in environment if name.startswith("SBATCH_"))
    if inputs:
        yield Check(
            "warn",
            "environment",
            f"{', '.join(inputs)} set: sbatch takes these over the script's own lines",
            f"unset {' '.join(inputs)} where that is not meant",
        )
    if "SLURM_JOB_ID" in environment:
        yield Check(
            "warn",
            "environment",
            f"inside job {environment['SLURM_JOB_ID']}: its SLURM_* variables would bend a new job",
            "submit drops them; a bare sbatch would not",
        )
    endpoint = environment.get("AWS_ENDPOINT_URL_SAGEMAKER") or environment.get("AWS_ENDPOINT_URL")
    if endpoint and not re.match(r"https://|http://(localhost|127\.[\d.]+|\[::1\])([:/]|$)", endpoint):
        yield Check(
            "warn",
            "endpoint",
            f"AWS is asked at {endpoint}, without encryption and off this host",
            "unset AWS_ENDPOINT_URL_SAGEMAKER",
        )
    if not (inputs or "SLURM_JOB_ID" in environment):
        yield Check("ok", "environment", "no SBATCH_* and no job's SLURM_* variables")


# --- shown ---------------------------------------------------------------------------------------------------------

_TONES: Mapping[Level, Tone] = {"ok": "good", "warn": "warn", "fail": "bad"}


def document(checks: Sequence[Check]) -> dict[str, Any]:
    """The document of `doctor --json` (schema hyp-submit/doctor/1)."""
    return {
        "schema": SCHEMA,
        "ok": healthy(checks),
        "checks": [
            {"level": check.level, "about": check.about, "found": check.found, "remedy": check.remedy}
            for check in checks
        ],
    }


def rows(checks: Sequence[Check]) -> Iterator[Spans]:
    """A row a check, and one for its remedy."""
    for check in checks:
        yield (
            (f"{check.level:<6}", _TONES[check.level]),
            (f"{printable(check.about)}: ", ""),
            (printable(check.found), ""),
        )
        if check.remedy is not None:
            yield ("      ", ""), (f"{printable(check.remedy)}", "dim")
