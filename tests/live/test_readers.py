"""Both readers on a real Slurm: equal clusters, whatever state nodes are in and whatever jobs are called."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from live.devcluster import DevCluster, devcluster

from hyp_submit import decode

pytestmark = pytest.mark.slurm

TRIES = 40
"""Reads by each reader, one right after the other, of which one pair must be equal: the cluster changes meanwhile."""

READ = """
import dataclasses, json, os, sys, time
from datetime import UTC, datetime
from hyp_submit import slurm, snapshots
from hyp_submit.errors import HypSubmitError

def read(reader):
    os.environ["HYP_SUBMIT_READER"] = reader
    return slurm.read(lambda: datetime(2026, 1, 1, tzinfo=UTC))

def differences(one, other):
    for field in dataclasses.fields(one):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, tuple):
            yield from (f"{field.name}: text {item!r}" for item in left if item not in right)
            yield from (f"{field.name}: pyslurm {item!r}" for item in right if item not in left)
        if left != right:
            yield f"{field.name} differs"

try:
    for _ in range(int(sys.argv[1])):
        text, pyslurm = read("text"), read("pyslurm")
        if text.cluster == pyslurm.cluster:
            break
        time.sleep(0.25)
except HypSubmitError as error:
    print(json.dumps({"error": type(error).__name__, "said": str(error), "reader": os.environ["HYP_SUBMIT_READER"]}))
else:
    print(json.dumps({
        "differences": list(differences(text.cluster, pyslurm.cluster)),
        "notes": [text.notes, pyslurm.notes],
        "cluster": json.loads(snapshots.dump(text.cluster)),
        "topology_of": {one.name: text.cluster.topology_of(one).kind for one in text.cluster.partitions},
    }))
"""


@dataclass(frozen=True)
class Both:
    """What the two readers made of one cluster."""

    answer: Mapping[str, Any]

    @property
    def states(self) -> dict[str, str]:
        return {node["name"]: "+".join(node["state"]) for node in self.answer["cluster"]["nodes"]}

    @property
    def reasons(self) -> dict[str, str]:
        return {node["name"]: node["reason"] for node in self.answer["cluster"]["nodes"] if node.get("reason")}

    @property
    def jobs(self) -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = self.answer["cluster"].get("jobs", [])
        return jobs

    def named(self, name: str) -> dict[str, Any]:
        """The only job of that name."""
        (job,) = (job for job in self.jobs if job.get("name", "") == name)
        return job


def python(
    cluster: DevCluster,
    program: str,
    *arguments: str,
    root: bool = False,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The output of a Python program inside, with this checkout."""
    settings = [f"{name}={value}" for name, value in {"PYTHONPATH": "/opt/hyp-submit", **variables}.items()]
    return cluster.out("env", *settings, "/opt/venv/bin/python", "-c", program, *arguments, root=root)


def read_both(cluster: DevCluster, *, root: bool = False) -> Both:
    """Read by both, and hold them to each other."""
    answer = json.loads(python(cluster, READ, str(TRIES), root=root))
    assert "error" not in answer, answer
    assert answer["differences"] == []
    assert answer["notes"][0] == answer["notes"][1]
    return Both(answer)


def bash(cluster: DevCluster, *lines: str, root: bool = False) -> str:
    """Run lines one after another; each must succeed."""
    return cluster.out("bash", "-c", "\n".join(("set -e", "cd", *lines)), root=root)


def configure(cluster: DevCluster, *lines: str) -> None:
    """Add lines to slurm.conf, and let slurmctld read it."""
    added = "\n".join(lines)
    bash(cluster, f"cat >> /etc/slurm/slurm.conf <<'END'\n{added}\nEND", "scontrol reconfigure", root=True)
    time.sleep(1)


POWER = (
    "RebootProgram=/bin/true",
    "SuspendProgram=/bin/true",
    "ResumeProgram=/bin/true",
    "SuspendTime=INFINITE",
    "SuspendTimeout=3",
    "ResumeTimeout=36000",
    "KillWait=20",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    with devcluster("test-readers") as cluster:
        configure(cluster, *POWER)
        yield cluster


def nodes_of(cluster: DevCluster, partition: str) -> list[str]:
    return cluster.out("scontrol", "show", "hostnames", cluster.out("sinfo", "-h", "-p", partition, "-o", "%N")).split()


def test_nodes_in_every_state_that_can_be_made(cluster: DevCluster) -> None:
    roles = (
        "down drained draining failing failed silent off going asap force rebooting wanted maintained reserved part "
        "whole ending remarked"
    )
    node = SimpleNamespace(**dict(zip(roles.split(), nodes_of(cluster, "gb200"), strict=False)))
    on = "sbatch -Q -p gb200 -N1 -t 9 -o /dev/null -w"
    bash(
        cluster,
        *(f"{on} {name} --wrap 'sleep 500'" for name in (node.draining, node.failing, node.going, node.wanted)),
        f"{on} {node.part} --gpus-per-node=2 --wrap 'sleep 500'",
        f"{on} {node.whole} --exclusive --gpus-per-node=4 --wrap 'sleep 500'",
        f"""{on} {node.ending} -J ending --wrap 'trap "" TERM; while :; do sleep 1; done'""",
        "sleep 1",
        "scancel -n ending",
        f"{on} {node.reserved} -H -J planned --wrap true",
    )
    update = "scontrol update nodename"
    reserve = "scontrol create reservation starttime=now duration=60 user=root"
    bash(
        cluster,
        f"{update}={node.down} state=down reason=$'two\\nlines, [bay 3]'",
        f"{update}={node.drained} state=drain reason='bad fan [bob@x] a=b State=IDLE'",
        f"{update}={node.draining} state=drain reason=$'esc\\x1b[31m \\xff caf\\xc3\\xa9 \\xe2\\x82'",
        f"{update}={node.failing} state=fail reason=Action:Replace",
        f"{update}={node.failed} state=fail reason=None",
        f"{update}={node.silent} state=noresp",
        f"{update}={node.off} state=power_down",
        f"{update}={node.going} state=power_down",
        f"{update}={node.asap} state=power_down_asap",
        f"{update}={node.force} state=power_down_force",
        f"scontrol reboot nextstate=resume reason=firmware {node.rebooting}",
        f"scontrol reboot asap nextstate=resume reason='new firmware' {node.wanted}",
        f"{reserve} reservationname=m flags=maint nodes={node.maintained}",
        f"{reserve} reservationname=r nodes={node.reserved}",
        f"{update}={node.remarked} comment='c Reason=of its own' extra='e State=DOWN'",
        "scontrol release jobname=planned",
        root=True,
    )
    seen: dict[str, set[str]] = {}
    for _ in range(8):  # some states last for seconds only
        both = read_both(cluster)
        for name, state in both.states.items():
            seen.setdefault(name, set()).update(state.split("+"))
        time.sleep(0.5)

    expected = {
        node.down: {"DOWN"},
        node.drained: {"IDLE", "DRAIN"},
        node.draining: {"MIXED", "DRAIN"},
        node.failing: {"MIXED", "FAIL"},
        node.failed: {"IDLE", "FAIL"},
        node.silent: {"NOT_RESPONDING"},
        node.off: {"POWERED_DOWN"},
        node.going: {"MIXED", "POWER_DOWN"},
        node.asap: {"POWERED_DOWN"},
        node.force: {"POWERED_DOWN"},
        node.rebooting: {"REBOOT_ISSUED"},
        node.wanted: {"MIXED", "DRAIN", "REBOOT_REQUESTED"},
        node.maintained: {"MAINTENANCE", "RESERVED"},
        node.reserved: {"RESERVED", "PLANNED"},
        node.part: {"MIXED"},
        node.whole: {"ALLOCATED"},
        node.ending: {"COMPLETING"},
        node.remarked: {"IDLE"},
    }
    assert {name: state - seen[name] for name, state in expected.items() if not state <= seen[name]} == {}
    steady = (node.drained, node.failed, node.silent, node.wanted, node.maintained, node.reserved, node.going)
    for name in steady:  # what sinfo says in one word is part of it
        base, flags = decode.state(cluster.out("sinfo", "-h", "-n", name, "-o", "%T").splitlines()[0])
        assert (base, flags - seen[name]) in {("IDLE", frozenset()), ("MIXED", frozenset()), ("ALLOCATED", frozenset())}
    reasons = both.reasons
    assert reasons[node.down] == "two\nlines, [bay 3]"
    assert reasons[node.drained] == "bad fan [bob@x] a=b State=IDLE"
    assert reasons[node.draining] == "esc\x1b[31m \ufffd café \ufffd"
    assert (reasons[node.failing], reasons[node.failed]) == ("Action:Replace", "None")
    assert node.remarked not in reasons


def test_jobs_of_every_kind(cluster: DevCluster) -> None:
    bash(
        cluster,
        "scancel -u alice",
        "sbatch -Q -p p5 -N1 --exclusive -t 10 --array=0-99:3%4 -J array --wrap 'sleep 500'",
        "sbatch -Q -p cpu -N1 -t 10 -J het : -p gb200 -N2 --wrap 'sleep 500'",
        "sbatch -Q -p gb200 -N8 --segment=4 -t 1-0 -J segments --wrap 'sleep 500'",
        "sbatch -Q -p cpu -N1 -J unlimited --wrap 'sleep 500'",
        "sbatch -Q -p cpu -N1 -t 90 -J minutes --wrap 'sleep 500'",
        "sbatch -Q -p cpu -N1 -H -J held --wrap true",
        "sbatch -Q -p cpu -N1 -d singleton -J unlimited --wrap true",
        "sbatch -Q -p cpu -N1 --begin=now+1hour -J later --wrap true",
        "sbatch -Q -p p5,gb200 -N60 -J 'too many' --wrap true",
        "sbatch -Q -p cpu -n 200 -J tasks --wrap true",
        "sbatch -Q -p gb200 -N 2-4 -H -J range --wrap true",
        "sbatch -Q -p cpu -N1 -J done --wrap true",
        "sbatch -Q -p cpu -N1 -J None --wrap true",
        "sbatch -Q -p cpu -N1 -H -J '' --wrap true",
        "sbatch -Q -p cpu -N1 -H -J $'two\\nlines |0f9c| JobId=1 \\x1b[31m' --wrap true",
        "sbatch -Q -p cpu -N1 -H -J $'\\xff\\xfe caf\\xc3\\xa9 \\xe2\\x82' --wrap true",
        "sbatch -Q -p cpu -N1 -H -J \"$(printf 'x%.0s' {1..1000})\" --wrap true",
        "sleep 2",
    )
    both = read_both(cluster)

    array = [job for job in both.jobs if job.get("name") == "array"]
    assert {job["task"] for job in array} == {"0", "3", "6", "9", "12-99:3%4"}
    assert len({job["array"] for job in array}) == 1
    het = sorted(
        (job for job in both.jobs if job.get("name") in {"het", "wrap"} and "het" in job), key=lambda job: job["id"]
    )
    assert [job.get("het_offset") for job in het] == [0, 1]
    assert both.named("segments")["segment_size"] == 4
    assert "end_time" in both.named("segments")
    assert all("end_time" not in job for job in both.jobs if job.get("name") == "unlimited")
    assert both.named("held")["reason"] == "JobHeldUser"
    assert both.named("later")["reason"] == "BeginTime"
    assert both.named("too many")["partition"] == "p5,gb200"
    assert both.named("tasks")["node_count"] == 4
    assert both.named("range")["node_count"] == 2
    assert both.named("done")["state"] in {"COMPLETED", "COMPLETING"}
    for name in ("None", "", "two\nlines |0f9c| JobId=1 \x1b[31m", "\ufffd\ufffd café \ufffd", "x" * 1000):
        both.named(name)
    assert {job["user"] for job in both.jobs} == {"alice"}


def test_hidden_partitions_are_read_too(cluster: DevCluster) -> None:
    bash(cluster, "scontrol update partitionname=p5 hidden=yes state=drain", root=True)
    both = read_both(cluster)
    assert {one["name"]: one["state"] for one in both.answer["cluster"]["partitions"]}["p5"] == "DRAIN"
    bash(cluster, "scontrol update partitionname=p5 hidden=no state=up", root=True)


def test_what_the_user_set_for_squeue_and_scontrol_does_not_matter(cluster: DevCluster) -> None:
    odd = {
        "SQUEUE_FORMAT": "%i",
        "SQUEUE_STATES": "RUNNING",
        "SQUEUE_SORT": "-i",
        "SQUEUE_ARRAY": "1",
        "TZ": "Asia/Tokyo",
    }
    odd |= {"SLURM_TIME_FORMAT": "relative", "SLURM_BITSTR_LEN": "8", "SLURM_TOPO_LEN": "20"}
    answer = json.loads(python(cluster, READ, str(TRIES), variables=odd))
    assert answer["differences"] == []
    assert len(answer["cluster"]["jobs"]) == len(read_both(cluster).jobs)


def test_the_first_choice_is_pyslurm_and_is_remembered(cluster: DevCluster) -> None:
    tell = "from hyp_submit import slurm; print(slurm.choose())"
    first = python(cluster, tell)
    assert first.startswith("Choice(reader='pyslurm', why='pyslurm ")
    kept = cluster.out("sh", "-c", "cat ~/.cache/hyp-submit/readers.json")
    assert list(json.loads(kept).values())[-1][0] == "pyslurm"
    assert python(cluster, tell) == first
    assert python(cluster, tell, variables={"XDG_CACHE_HOME": "/proc/none"}) == first


def test_without_pyslurm_it_is_read_from_text(cluster: DevCluster) -> None:
    hide = "import sys; sys.modules['pyslurm'] = None; "
    read = "from hyp_submit import slurm; from datetime import datetime, UTC; "
    tell = "print(slurm.read(lambda: datetime.now(UTC)).choice)"
    assert python(cluster, hide + read + tell) == "Choice(reader='text', why='pyslurm is not installed')"


def test_private_data_is_said(cluster: DevCluster) -> None:
    configure(cluster, "PrivateData=jobs")
    both = read_both(cluster)
    seen = cluster.run("hyp-submit", "plan", "-p", "gb200", "-N1")
    assert len(both.answer["notes"][0]) == 1
    assert both.answer["notes"][0][0].startswith("PrivateData=jobs: ")
    assert "PrivateData=jobs: " in seen.stderr
    assert read_both(cluster, root=True).answer["notes"] == [[], []]

    bash(
        cluster,
        "sed -i s/^PrivateData=.*/PrivateData=jobs,nodes/ /etc/slurm/slurm.conf",
        "scontrol reconfigure",
        root=True,
    )
    time.sleep(1)
    for reader in ("text", "pyslurm"):
        denied = cluster.run("env", f"HYP_SUBMIT_READER={reader}", "hyp-submit", "plan", "-p", "gb200", "-N1")
        assert (denied.returncode, len(denied.stderr.splitlines())) == (3, 1)
        assert "PrivateData" in denied.stderr
    bash(cluster, "sed -i /^PrivateData=/d /etc/slurm/slurm.conf", "scontrol reconfigure", root=True)


TO_CONF = """
import pathlib, re, yaml
folder = pathlib.Path("/etc/slurm")
(blocks,) = (one["block"] for one in yaml.safe_load((folder / "topology.yaml").read_text()) if one.get("block"))
lines = [f"BlockName={one['block']} Nodes={one['nodes']}" for one in blocks["blocks"]]
(folder / "topology.conf").write_text("\\n".join([*lines, "BlockSizes=9,18", ""]))
(folder / "topology.yaml").unlink()
for name, pattern, new in (
    ("nodes.conf", r" Topology=\\S+", ""),
    ("slurm.conf", r"TopologyPlugin=\\S+", "TopologyPlugin=topology/block"),
):
    (folder / name).write_text(re.sub(pattern, new, (folder / name).read_text()))
"""


def test_one_topology_conf_for_the_whole_cluster() -> None:
    with devcluster("test-readers-conf") as cluster:
        before = read_both(cluster).answer["cluster"]
        python(cluster, TO_CONF, root=True)
        bash(cluster, "scontrol reconfigure", root=True)
        time.sleep(1)
        both = read_both(cluster)

    (topology,) = both.answer["cluster"]["topologies"]
    assert (topology["name"], topology["kind"], topology["block_sizes"][0]) == ("default", "block", 9)
    (wanted,) = (one for one in before["topologies"] if one.get("kind") == "block")
    assert topology["blocks"] == wanted["blocks"]
    assert set(both.answer["topology_of"].values()) == {"block"}


def test_without_slurmctld_each_reader_says_so_in_one_line() -> None:
    with devcluster("test-readers-dead") as cluster:
        cluster.run("sh", "-c", "kill -9 $(pidof slurmctld)", root=True, check=True)
        said = [
            cluster.run("env", f"HYP_SUBMIT_READER={reader}", "hyp-submit", "plan", "-p", "gb200", "-N1")
            for reader in ("text", "pyslurm")
        ]
    for done in said:
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
        assert done.stderr.startswith("error       slurmctld does not answer: ")
