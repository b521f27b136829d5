"""The text of scontrol and squeue -> the model, on lines as Slurm 24.05 to 26.05 prints them, cut to a few fields."""

from contextlib import suppress
from dataclasses import replace

import pytest
from factories import NOW, minutes
from hypothesis import given
from hypothesis import strategies as st

from hyp_submit import decode, scontrol
from hyp_submit.errors import Unreadable
from hyp_submit.model import Block, Cluster, Job, Node, Partition, Switch, Topology


def test_oneline_records() -> None:
    text = "PartitionName=a Topology=t Nodes=n[1-2] Reason=not so good x=1\n\nPartitionName=b   State=UP\n"
    assert scontrol.oneline_records(text) == [
        {"PartitionName": "a", "Topology": "t", "Nodes": "n[1-2]", "Reason": "not so good", "x": "1"},
        {"PartitionName": "b", "State": "UP"},
    ]


# --- nodes ---------------------------------------------------------------------------------------------------------


def node_line(name: str = "n1", state: str = "IDLE", gres: str = "gpu:4", tres: str = "", end: str = "") -> str:
    """A line of `scontrol show nodes --oneliner` (26.05), without most of what is not read."""
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=32  CPUAlloc=0 AvailableFeatures=(null) Gres={gres} "
        f"NodeAddr=127.0.0.1 OS=Linux 6.8.0 #1 SMP @0  RealMemory=512000 State={state} ThreadsPerCore=1 "
        f"Partitions=dev,gb200  SuspendTime=INFINITE CfgTRES=cpu=64,gres/gpu=4 AllocTRES={tres} CurrentWatts=0 "
        f"AveWatts=0{end}\n"
    )


def the_node(text: str) -> Node:
    (node,), notes = scontrol.nodes(text)
    assert notes == ()
    return node


@pytest.mark.parametrize(
    ("state", "base", "flags"),
    [
        ("IDLE", "IDLE", set()),
        ("MIXED+CLOUD+DRAIN", "MIXED", {"CLOUD", "DRAIN"}),
        ("DOWN*+DRAIN", "DOWN", {"NOT_RESPONDING", "DRAIN"}),
        ("IDLE+CLOUD+POWERED_DOWN", "IDLE", {"CLOUD", "POWERED_DOWN"}),
        ("IDLE+MAINTENANCE+RESERVED", "IDLE", {"MAINTENANCE", "RESERVED"}),
        ("SOMETHING_NEW", "UNKNOWN", {"SOMETHING_NEW"}),
        ("", "UNKNOWN", set()),
    ],
)
def test_the_state_of_a_node(state: str, base: str, flags: set[str]) -> None:
    assert the_node(node_line(state=state)) == Node("n1", base, frozenset(flags), gpus=4)


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("(null)", 0),
        ("", 0),
        ("gpu", 1),
        ("gpu:4", 4),
        ("gpu:h100:8(S:0-1)", 8),
        ("gpu:a:2(S:0,2),gpu:b:1", 3),
        ("gres/gpu:h100:8", 8),
        ("craynetwork:4,gpu:h100:8,mps:400", 8),
        ("bandwidth:lustre:no_consume:4G", 0),
        ("shard:32", 0),
        ("gpux:3", 0),
    ],
)
def test_the_gpus_of_a_node(gres: str, count: int) -> None:
    assert the_node(node_line(gres=gres)).gpus == count


@pytest.mark.parametrize(
    ("tres", "count"),
    [
        ("", 0),
        ("cpu=3,mem=4G", 0),
        ("cpu=64,gres/gpu=8", 8),
        ("cpu=64,gres/gpu=8,gres/gpu:h100=8", 8),
        ("gres/gpu:a=2,gres/gpu:b=1", 3),
        ("gres/gpumem=5", 0),
    ],
)
def test_the_gpus_in_use(tres: str, count: int) -> None:
    assert the_node(node_line(tres=tres)).gpus_allocated == count


BY = " [root@1796058757]"


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("", None),
        (f" Reason=broken fan{BY}", "broken fan"),
        (f" Reason=Action:Replace{BY}  ", "Action:Replace"),
        (f" Reason=[bay 3] ask bob [bob@x] State=DOWN{BY}", "[bay 3] ask bob [bob@x] State=DOWN"),
        (f" Reason=two{BY}        lines [of] it", "two\nlines [of] it"),
        (f" Reason=broken{BY} Comment=c Reason=no Extra=e", "broken"),
        (f" Reason=see Comment=c{BY} Extra=e", "see Comment=c"),
        (f" Comment=c Reason=none Extra=e{BY}", None),
        (" Reason=unsigned Comment=c", "unsigned"),
        (" Reason=nobody knows when", "nobody knows when"),
        (" Reason=None", "None"),
        (" Reason=", None),
    ],
)
def test_why_a_node_is_out_of_use(end: str, reason: str | None) -> None:
    assert the_node(node_line(end=end)).reason == reason


def test_nodes_keep_their_order_and_what_is_no_node_is_passed_over() -> None:
    text = "warning: odd\n" + node_line("n10") + node_line("n9") + "\n" + node_line("n10", "DOWN")
    nodes, notes = scontrol.nodes(text)
    assert ([(node.name, node.base) for node in nodes], notes) == ([("n10", "IDLE"), ("n9", "IDLE")], ())
    assert scontrol.nodes("No nodes in the system\n") == ((), ())


def test_a_node_that_cannot_be_understood_leaves_the_others() -> None:
    nodes, notes = scontrol.nodes(node_line("") + node_line("n1") + node_line("n2", tres="gres/gpu=x"))
    assert [node.name for node in nodes] == ["n1"]
    assert notes == ("2 of 3 nodes left out: a node without a name",)


def test_a_node_line_that_was_cut_off_takes_the_defaults() -> None:
    line = node_line(end=f" Reason=x{BY}")
    assert scontrol.nodes("NodeName=n1") == ((Node("n1", "UNKNOWN"),), ())
    for at in range(len("NodeName=n"), len(line)):
        (node,), notes = scontrol.nodes(line[:at])
        assert (node.name, notes) == ("n1" if at > len("NodeName=n") else "n", ())


# --- partitions ----------------------------------------------------------------------------------------------------

PARTITIONS = (
    "PartitionName=dev AllocNodes=ALL Default=YES Nodes=n[1-3] MaxNodes=UNLIMITED State=UP\n"
    "PartitionName=gb200 AllocNodes=ALL Default=NO Nodes=n2,n1 Topology=big State=DRAIN\n"
    "PartitionName=none Nodes=(null)\n"
)


def test_partitions() -> None:
    found = scontrol.partitions(PARTITIONS, ["n1", "n2", "n3"], "flat-one")
    assert found == (
        (
            Partition("dev", "UP", "flat-one", ("n1", "n2", "n3"), default=True),
            Partition("gb200", "DRAIN", "big", ("n1", "n2")),
            Partition("none", "UNKNOWN", "flat-one"),
        ),
        (),
    )
    assert scontrol.partition_topologies(PARTITIONS) == {"gb200": "big"}


def test_a_partition_that_cannot_be_understood_leaves_the_others() -> None:
    partitions, notes = scontrol.partitions("PartitionName=a Nodes=n[1-\nPartitionName=b Nodes=n1\n", [], None)
    assert partitions == (Partition("b", "UNKNOWN", None, ("n1",)),)
    assert notes == ("1 of 2 partitions left out: node list 'n[1-': a bracket without its other half",)


# --- one topology for all ------------------------------------------------------------------------------------------


def test_the_blocks_of_a_topology_conf() -> None:
    text = (
        "BlockName=us2 BlockIndex=1 Nodes=ip-10-1-0-[1-2] BlockSize=18\n"
        "BlockName=us1 BlockIndex=0 Nodes=ip-10-1-0-3,ip-10-1-0-[4-5] BlockSize=18\n"
        "AggregatedBlock=us[1-2] BlockIndex=2 Nodes=ip-10-1-0-[1-5] BlockSize=36\n"
    )
    blocks = (
        Block("us1", ("ip-10-1-0-3", "ip-10-1-0-4", "ip-10-1-0-5")),
        Block("us2", ("ip-10-1-0-1", "ip-10-1-0-2")),
    )
    assert scontrol.cluster_topology(text) == Topology("default", "block", (18, 36), blocks)


def test_blocks_before_24_11_have_no_size_and_get_that_of_the_smallest() -> None:
    text = "BlockName=a BlockIndex=0 Nodes=n[1-4]\nBlockName=b BlockIndex=1 Nodes=n[5-7]\nBlockName=c BlockIndex=2\n"
    found = scontrol.cluster_topology(text)
    assert found is not None
    assert (found.block_sizes, [len(block.nodes) for block in found.blocks]) == ((3,), [4, 3, 0])


def test_the_switches_of_a_topology_conf() -> None:
    text = (
        "SwitchName=nn-1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
        "SwitchName=nn-2 Level=0 LinkSpeed=1 Nodes=n3\n"
        "SwitchName=nn-0 Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=nn-[1-2]\n"
    )
    assert scontrol.cluster_topology(text) == Topology(
        "default",
        "tree",
        switches=(Switch("nn-1", nodes=("n1", "n2")), Switch("nn-2", nodes=("n3",)), Switch("nn-0", ("nn-1", "nn-2"))),
    )


def test_every_partition_without_a_name_for_it_uses_the_one_topology() -> None:
    topology = scontrol.cluster_topology("BlockName=a BlockIndex=0 Nodes=n[1-2] BlockSize=2\n")
    assert topology is not None
    partitions, _ = scontrol.partitions("PartitionName=p Nodes=n[1-2] State=UP\n", ["n1", "n2"], topology.name)
    cluster = Cluster("c", NOW, partitions=partitions, topologies=(topology,))
    assert cluster.topology_of(cluster.partition["p"]) is topology


@pytest.mark.parametrize("text", ["", "No topology information available\n"])
def test_a_flat_cluster_has_no_topology(text: str) -> None:
    assert scontrol.cluster_topology(text) is None


# --- configuration -------------------------------------------------------------------------------------------------

CONFIG = """Configuration data as of 2026-11-30T17:12:42
ClusterName             = hyperpod-dev
PrivateData             = jobs,usage
SchedulerParameters     = max_switch_wait=0300,bf_continue,defer
SelectType              = select/cons_tres
SLURM_VERSION           = 26.05.5

Slurmctld(primary) at head is UP
"""


def test_settings() -> None:
    assert scontrol.settings(CONFIG) == scontrol.Settings(
        "hyperpod-dev",
        "26.05.5",
        {"max_switch_wait": "300", "bf_continue": "True", "defer": "True"},
        frozenset({"jobs", "usage"}),
    )


@pytest.mark.parametrize("text", ["", "SchedulerParameters = (null)\nPrivateData = none\nClusterName = (null)\n"])
def test_settings_that_are_not_there(text: str) -> None:
    assert scontrol.settings(text) == scontrol.Settings()


def test_what_private_data_hides_is_said() -> None:
    (note,) = scontrol.hidden(["jobs", "usage"])
    assert note.startswith("PrivateData=jobs: ")
    assert scontrol.hidden(frozenset({"usage"})) == ()


# --- jobs ----------------------------------------------------------------------------------------------------------

MARK = "0f9c"
FIELDS = (*scontrol.JOB_FIELDS, scontrol.SEGMENT_FIELD)
SECONDS = int(NOW.timestamp())
RUNNING = {
    "JobID": "7",
    "ArrayJobID": "7",
    "ArrayTaskID": "N/A",
    "HetJobID": "N/A",
    "HetJobOffset": "N/A",
    "UserName": "a",
    "Partition": "p",
    "State": "RUNNING",
    "NodeList": "n[1-2]",
    "NumNodes": "2",
    "StartTime": f"{SECONDS}",
    "EndTime": f"{SECONDS + 3600}",
    "TimeLimit": "1:00:00",
    "PriorityLong": "1",
    "Reason": "None",
    "Name": "train",
    "SegmentSize": "N/A",
}
JOB = Job(7, "a", "train", "p", "RUNNING", ("n1", "n2"), 2, NOW, minutes(60), None, 1, None)


def queue(*jobs: dict[str, str]) -> str:
    """What squeue prints for jobs with these fields beside those of a running one."""
    return "".join("".join(f"{({**RUNNING, **job})[field]}|{MARK}|" for field in FIELDS) + "\n" for job in jobs)


@pytest.mark.parametrize(
    ("fields", "job"),
    [
        ({}, JOB),
        ({"TimeLimit": "UNLIMITED", "EndTime": "NONE"}, replace(JOB, end_time=None)),
        ({"TimeLimit": "365-00:00:00"}, replace(JOB, end_time=None)),
        ({"TimeLimit": "5:00"}, JOB),
        ({"TimeLimit": "364-23:59:00"}, JOB),
        ({"TimeLimit": "NOT_SET"}, replace(JOB, end_time=None)),
        ({"TimeLimit": "INVALID"}, replace(JOB, end_time=None)),
        ({"StartTime": "N/A", "EndTime": "N/A"}, replace(JOB, start_time=None, end_time=None)),
        ({"StartTime": "0", "EndTime": "Unknown"}, replace(JOB, start_time=None, end_time=None)),
        ({"SegmentSize": "18"}, replace(JOB, segment_size=18)),
        ({"SegmentSize": "0"}, replace(JOB, segment_size=None)),
        ({"ArrayJobID": "5", "ArrayTaskID": "0"}, replace(JOB, array=5, task="0")),
        ({"ArrayJobID": "5", "ArrayTaskID": "4,6-20%3"}, replace(JOB, array=5, task="4,6-20%3")),
        ({"HetJobID": "6", "HetJobOffset": "0"}, replace(JOB, het=6, het_offset=0)),
        ({"HetJobID": "6", "HetJobOffset": "1"}, replace(JOB, het=6, het_offset=1)),
        (
            {"State": "PENDING", "NodeList": "", "Reason": "ReqNodeNotAvail, UnavailableNodes:n1"},
            replace(JOB, state="PENDING", nodes=(), reason="ReqNodeNotAvail, UnavailableNodes:n1"),
        ),
        ({"PriorityLong": "0", "NumNodes": "0"}, replace(JOB, priority=0, node_count=0)),
        ({"Partition": "p,q", "State": ""}, replace(JOB, partition="p,q", state="UNKNOWN")),
    ],
)
def test_a_job(fields: dict[str, str], job: Job) -> None:
    assert scontrol.jobs(queue(fields), FIELDS, MARK) == ((job,), ())


@given(st.text())
def test_a_job_may_be_called_anything(name: str) -> None:
    text = queue({"JobID": "9"}, {"Name": name}, {"JobID": "8", "Name": f"{name}\n7|||"})
    jobs, notes = scontrol.jobs(text, FIELDS, MARK)
    assert [(job.id, job.name) for job in jobs] == [(7, name), (8, f"{name}\n7|||"), (9, "train")]
    assert notes == ()


def test_jobs_without_the_field_of_newer_releases() -> None:
    text = "".join(f"{RUNNING[field]}|{MARK}|" for field in scontrol.JOB_FIELDS)
    assert scontrol.jobs(text, scontrol.JOB_FIELDS, MARK) == ((JOB,), ())


def test_a_job_that_cannot_be_understood_leaves_the_others() -> None:
    jobs, notes = scontrol.jobs(queue({"StartTime": "9" * 30}, {"JobID": "8", "NodeList": "n["}, {}), FIELDS, MARK)
    assert jobs == (JOB,)
    assert len(notes) == 1
    assert notes[0].startswith("2 of 3 jobs left out: ")


def test_a_queue_that_was_cut_off_gives_the_jobs_before() -> None:
    text = queue({}, {"JobID": "8"})
    for at in range(len(text) - 1):
        jobs, notes = scontrol.jobs(text[:at], FIELDS, MARK)
        assert len(jobs) == (at >= len(queue({})) - 1)
        assert len(notes) <= 1


def test_the_format_asks_for_every_field_in_full_with_its_mark() -> None:
    assert scontrol.queue_format(["JobID", "Name"], MARK) == "JobID:0|0f9c|,Name:0|0f9c|"


# --- anything ------------------------------------------------------------------------------------------------------

WORDS = (
    "NodeName= PartitionName= BlockName= SwitchName= BlockIndex= BlockSize= State= Gres=gpu: Nodes= Switches= "
    "AllocTRES= gres/gpu= Reason= n[1-3] [ ] -1 = ² \x1b[31m \ufffd 1796058757 N/A"
)
PIECES = st.sampled_from([*WORDS.split(), " ", "\n", "9" * 40, "SchedulerParameters = ", f"|{MARK}|"])


@given(st.lists(PIECES | st.text(max_size=3), max_size=40).map("".join))
def test_whatever_is_printed_nothing_but_our_errors_come_out(text: str) -> None:
    scontrol.nodes(text)
    scontrol.partitions(text, [], None)
    scontrol.partition_topologies(text)
    scontrol.settings(text)
    scontrol.jobs(text, FIELDS, MARK)
    with suppress(Unreadable):
        scontrol.cluster_topology(text)


@pytest.mark.parametrize("line", ["BlockName=a BlockIndex=x", "BlockName=a Nodes=n[", "SwitchName=a Switches=]"])
def test_a_topology_that_cannot_be_understood_is_unreadable(line: str) -> None:
    with pytest.raises(Unreadable, match=r"^scontrol show topology: "):
        scontrol.cluster_topology(line)


def test_both_readers_hold_the_same_limit_for_none() -> None:
    days = decode.NO_LIMIT // (24 * 60)
    jobs, _ = scontrol.jobs(queue({"TimeLimit": f"{days}-00:00:00"}), FIELDS, MARK)
    assert jobs[0].end_time is None
