"""Foreign text -> the model: topologies, node states, HyperPod's answers, profiles."""

from dataclasses import replace
from itertools import combinations, product
from types import SimpleNamespace

import pytest
from factories import NOW, minutes

from hyp_submit import decode
from hyp_submit.errors import Unreadable, UsageError
from hyp_submit.model import (
    UNUSABLE_BASES,
    UNUSABLE_FLAGS,
    Block,
    Framework,
    Instance,
    InstanceGroup,
    Job,
    Node,
    Partition,
    Switch,
    Topology,
)

# --- node states ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "base", "flags"),
    [
        ("IDLE", "IDLE", set()),
        ("IDLE+CLOUD+DRAIN", "IDLE", {"CLOUD", "DRAIN"}),
        (["IDLE", "CLOUD"], "IDLE", {"CLOUD"}),
        ("idle*", "IDLE", {"NOT_RESPONDING"}),
        ("idle~", "IDLE", {"POWERED_DOWN"}),
        ("alloc#", "ALLOCATED", {"POWERING_UP"}),
        ("mix-", "MIXED", {"PLANNED"}),
        ("DOWN*+CLOUD", "DOWN", {"NOT_RESPONDING", "CLOUD"}),
        ("drained", "IDLE", {"DRAIN"}),
        ("draining", "ALLOCATED", {"DRAIN"}),
        ("drained*", "IDLE", {"DRAIN", "NOT_RESPONDING"}),
        ("maint", "IDLE", {"MAINTENANCE"}),
        ("IDLE+COMPLETING", "IDLE", {"COMPLETING"}),
        ("DRAINING+MIXED", "MIXED", {"DRAIN"}),
        ("IDLE+MAINT", "IDLE", {"MAINTENANCE"}),
        ("", "UNKNOWN", set()),
        ([], "UNKNOWN", set()),
        ("PERFECTLY_FINE", "UNKNOWN", {"PERFECTLY_FINE"}),
        ("+*+", "UNKNOWN", {"NOT_RESPONDING"}),
    ],
)
def test_state(words: str | list[str], base: str, flags: set[str]) -> None:
    assert decode.state(words) == (base, frozenset(flags))


SINFO = {
    # What node_state_string() and its compact form print (sinfo's %T and %t), and what it stands for.
    "mixed@ mix@ MIXED+REBOOT_REQUESTED": ("MIXED", {"REBOOT_REQUESTED"}),
    "down^ DOWN+REBOOT_ISSUED": ("DOWN", {"REBOOT_ISSUED"}),
    "reboot boot": ("IDLE", {"REBOOT_REQUESTED"}),
    "reboot* boot*": ("IDLE", {"REBOOT_REQUESTED", "NOT_RESPONDING"}),
    "reboot^ boot^": ("DOWN", {"REBOOT_ISSUED"}),
    "drained drain": ("IDLE", {"DRAIN"}),
    "drained~ drain~": ("IDLE", {"DRAIN", "POWERED_DOWN"}),
    "draining drng": ("ALLOCATED", {"DRAIN"}),
    "draining@ drng@": ("ALLOCATED", {"DRAIN", "REBOOT_REQUESTED"}),
    "fail": ("IDLE", {"FAIL"}),
    "fail*": ("IDLE", {"FAIL", "NOT_RESPONDING"}),
    "failing failg": ("ALLOCATED", {"FAIL"}),
    "maint": ("IDLE", {"MAINTENANCE"}),
    "maint*": ("IDLE", {"MAINTENANCE", "NOT_RESPONDING"}),
    "allocated$ alloc$": ("ALLOCATED", {"MAINTENANCE"}),
    "allocated+ alloc+ ALLOCATED+COMPLETING": ("ALLOCATED", {"COMPLETING"}),
    "completing comp": ("IDLE", {"COMPLETING"}),
    "completing# comp#": ("IDLE", {"COMPLETING", "POWERING_UP"}),
    "reserved resv": ("IDLE", {"RESERVED"}),
    "planned plnd": ("IDLE", {"PLANNED"}),
    "mixed- mix-": ("MIXED", {"PLANNED"}),
    "idle! IDLE+POWER_DOWN": ("IDLE", {"POWER_DOWN"}),
    "idle% IDLE+POWERING_DOWN": ("IDLE", {"POWERING_DOWN"}),
    "future~ futr~": ("FUTURE", {"POWERED_DOWN"}),
    "unknown* unk*": ("UNKNOWN", {"NOT_RESPONDING"}),
    "inval": ("UNKNOWN", {"INVALID_REG"}),
}


@pytest.mark.parametrize(
    ("word", "base", "flags"), [(word, *found) for words, found in SINFO.items() for word in words.split()]
)
def test_the_states_of_sinfo(word: str, base: str, flags: set[str]) -> None:
    assert decode.state(word) == decode.state(word.upper()) == (base, frozenset(flags))


PRINTED = (
    "BLOCKED CLOUD COMPLETING DRAIN DYNAMIC_FUTURE DYNAMIC_NORM EXTERNAL FAIL INVALID_REG MAINTENANCE NOT_RESPONDING "
    "PLANNED POWERED_DOWN POWERING_DOWN POWERING_UP POWER_DOWN POWER_UP REBOOT_ISSUED REBOOT_REQUESTED RESERVED UNDRAIN"
)
"""The flags as libslurm 26.05 prints them behind the base, in whatever order."""


@pytest.mark.parametrize("base", sorted(decode.BASES))
def test_every_base_with_every_two_flags_in_long_form(base: str) -> None:
    for first, second in combinations(PRINTED.split(), 2):
        expected = (base, frozenset({first, second}))
        assert decode.state(f"{base}+{first}+{second}") == decode.state([second, base, first]) == expected


FLAGS = sorted(
    {"CLOUD", "POWERED_DOWN", "POWERING_UP", "COMPLETING", "RESERVED", "MAINTENANCE", "REBOOT_ISSUED", *UNUSABLE_FLAGS}
)


@pytest.mark.parametrize(("base", "flag"), list(product(sorted(decode.BASES), [None, *FLAGS])))
def test_usable_and_free_over_every_base_and_flag(base: str, flag: str | None) -> None:
    node = Node("n", *decode.state([base, flag] if flag else [base]))
    assert (node.base, node.flags) == (base, frozenset([flag] if flag else []))
    healthy = base in {"IDLE", "ALLOCATED", "MIXED"} and flag not in UNUSABLE_FLAGS
    assert node.healthy == healthy
    assert node.free == (healthy and base == "IDLE" and flag in {None, "CLOUD", "POWERED_DOWN", "POWERING_UP"})


def test_states_are_written_so_that_they_read_back() -> None:
    for base in sorted(decode.BASES):
        for flags in combinations(FLAGS, 2):
            node = Node("n", base, frozenset(flags))
            assert decode.state(node.state) == (node.base, node.flags)
    assert not Node("n", "IDLE", frozenset({"FAIL"})).healthy
    assert frozenset({"DOWN", "ERROR", "FUTURE", "UNKNOWN"}) == UNUSABLE_BASES


# --- topology.yaml -------------------------------------------------------------------------------------------------

TOPOLOGY = """
- topology: gb200
  cluster_default: false
  block:
    block_sizes: [18, 36]
    blocks:
      - {block: us-1, nodes: "n[1-3]"}
      - {block: us-2, nodes: null}
  tree: null
  flat: false
- topology: p5
  block: null
  tree:
    switches:
      - {switch: leaf-1, children: null, nodes: "m[1-2]"}
      - {switch: spine, children: "leaf-[1-2]", nodes: null}
- topology: default
  cluster_default: true
  flat: true
"""


def test_topologies() -> None:
    assert decode.topologies(TOPOLOGY) == (
        Topology("gb200", "block", (18, 36), (Block("us-1", ("n1", "n2", "n3")), Block("us-2", ()))),
        Topology("p5", "tree", switches=(Switch("leaf-1", nodes=("m1", "m2")), Switch("spine", ("leaf-1", "leaf-2")))),
        Topology("default", "flat"),
    )


@pytest.mark.parametrize(
    ("text", "default"),
    [
        (TOPOLOGY, "default"),
        ("- {topology: a, flat: true}\n- {topology: b, cluster_default: true, flat: true}", "b"),
        ("- {topology: a, cluster_default: false}\n- {topology: b}", "a"),
        ("", None),
        ("[]", None),
    ],
)
def test_the_topology_that_partitions_use_by_default(text: str, default: str | None) -> None:
    assert decode.topology_file(text) == (decode.topologies(text), default)


def test_no_topologies() -> None:
    assert (decode.topologies(""), decode.topologies("null"), decode.topologies("[]")) == ((), (), ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "topology.yaml: expected a list of topologies, found int"),
        ("- 5", "topology.yaml: $[0]: expected a mapping, found int"),
        ("- block: 5", "topology.yaml: $[0].block: expected a mapping, found int"),
        ("- block: {blocks: [5]}", "topology.yaml: $[0].block.blocks[0]: expected a mapping, found int"),
        ("- tree: {switches: [[]]}", "topology.yaml: $[0].tree.switches[0]: expected a mapping, found list"),
    ],
)
def test_a_topology_of_wrong_types_is_unreadable_with_the_place(text: str, message: str) -> None:
    with pytest.raises(Unreadable) as caught:
        decode.topologies(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["a: [", "!!python/object/apply:os.system [x]", "[" * 5000])
def test_what_is_no_yaml_is_unreadable_in_one_line(text: str) -> None:
    with pytest.raises(Unreadable) as caught:
        decode.topologies(text)
    assert str(caught.value).startswith("topology.yaml: not YAML: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "- block: {block_sizes: [x]}",
        "- block: {block_sizes: [null]}",
        "- block: {block_sizes: [.nan]}",
        "- block: {block_sizes: [.inf]}",
        "- block: {block_sizes: [1.5]}",
        "- block: {block_sizes: 18}",
        '- block: {block_sizes: [1], blocks: [{block: b, nodes: "n[1-"}]}',
    ],
)
def test_a_topology_of_wrong_values_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        decode.topologies(text)


# --- pyslurm, HyperPod ---------------------------------------------------------------------------------------------


def pyslurm_object(**fields: object) -> SimpleNamespace:
    """A job as pyslurm has it, with these fields beside those that a running job of two nodes has."""
    seconds = int(NOW.timestamp())
    usual = {
        "id": 7,
        "user_name": "a",
        "name": None,
        "partition": "p",
        "state": "RUNNING",
        "allocated_nodes": "n[1-2]",
        "num_nodes": 2,
        "start_time": seconds,
        "end_time": seconds + 3600,
        "time_limit": 60,
        "segment_size": 0,
        "priority": 1,
        "state_reason": "None",
        "array_id": None,
        "array_task_id": None,
        "array_tasks_waiting": None,
        "array_tasks_parallel": None,
        "heterogeneous_id": None,
        "heterogeneous_offset": None,
    }
    return SimpleNamespace(**{**usual, **fields})


def pyslurm_job(**fields: object) -> Job:
    """The job that such an object becomes."""
    return decode.pyslurm_jobs([pyslurm_object(**fields)])[0]


JOB = Job(7, "a", "", "p", "RUNNING", ("n1", "n2"), 2, NOW, minutes(60), None, 1, None)


@pytest.mark.parametrize(
    ("fields", "job"),
    [
        ({}, JOB),
        ({"time_limit": None}, replace(JOB, end_time=None)),
        ({"time_limit": decode.NO_LIMIT}, replace(JOB, end_time=None)),
        ({"array_id": 5, "array_task_id": 0}, replace(JOB, array=5, task="0")),
        (
            {"array_id": 5, "array_tasks_waiting": "4-20", "array_tasks_parallel": 3},
            replace(JOB, array=5, task="4-20%3"),
        ),
        ({"array_id": 5, "array_tasks_waiting": "4,6"}, replace(JOB, array=5, task="4,6")),
        ({"array_id": 5}, replace(JOB, array=5, task="0")),  # what pyslurm 25.11 says of an array's task 0
        ({"state_reason": "Priority"}, replace(JOB, reason="Priority")),
        ({"heterogeneous_id": 6}, replace(JOB, het=6, het_offset=0)),
        ({"heterogeneous_id": 6, "heterogeneous_offset": 1}, replace(JOB, het=6, het_offset=1)),
    ],
)
def test_a_job_of_pyslurm(fields: dict[str, object], job: Job) -> None:
    assert pyslurm_job(**fields) == job


class Hostile:
    """A pyslurm object whose text is not UTF-8: the attribute raises, as the Cython property does."""

    def __init__(self, **fields: object) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> str:
        return b"n\xff|\xe2\x82".decode("utf-8")


def test_text_that_is_not_utf_8_is_replaced() -> None:
    node = Hostile(name="n1", state="IDLE+DRAIN", configured_gres={}, allocated_gres={})
    assert decode.pyslurm_nodes([node]) == (Node("n1", "IDLE", frozenset({"DRAIN"}), reason="n\ufffd|\ufffd"),)


@pytest.mark.parametrize(
    ("configured", "allocated", "counts"),
    [
        ({}, {}, (0, 0)),
        (None, None, (0, 0)),
        ({"gpu": 4, "mps": 400}, {"gpu": 2}, (4, 2)),
        ({"gpu:a": 2, "gpu:b": 1}, {"gpu:a": 1, "gpu:b": 1}, (3, 2)),
        ({"gpu:h100": 8}, {"gpu": 8, "gpu:h100": 8}, (8, 8)),
    ],
)
def test_the_gpus_of_a_node_of_pyslurm(configured: object, allocated: object, counts: tuple[int, int]) -> None:
    node = SimpleNamespace(name="n1", state="MIXED", configured_gres=configured, allocated_gres=allocated, reason=None)
    (found,) = decode.pyslurm_nodes([node])
    assert (found.gpus, found.gpus_allocated) == counts


def test_the_partitions_of_pyslurm() -> None:
    named = SimpleNamespace(name="a", state="UP", nodes="n[2,1]", is_default=True)
    other = SimpleNamespace(name="b", state=None, nodes=None, is_default=False)
    assert decode.pyslurm_partitions([named, other], {"a": "big"}, ["n1", "n2"], "flat-one") == (
        Partition("a", "UP", "big", ("n1", "n2"), default=True),
        Partition("b", "UNKNOWN", "flat-one"),
    )


def test_jobs_come_in_the_order_of_their_ids() -> None:
    usual = vars(pyslurm_object())
    jobs = decode.pyslurm_jobs([SimpleNamespace(**{**usual, "id": number}) for number in (9, 7, 8)])
    assert [job.id for job in jobs] == [7, 8, 9]


@pytest.mark.parametrize(
    ("summary", "instance"),
    [
        (
            {
                "InstanceGroupName": "w1",
                "InstanceId": "i-1",
                "InstanceStatus": {"Status": "Running"},
                "PrivateDnsHostname": "ip-10-1-2-3.us-west-2.compute.internal",
                "UltraServerInfo": {"Id": "us-1"},
            },
            Instance("w1", "ip-10-1-2-3", "us-1", running=True),
        ),
        (
            {"InstanceGroupName": "w1", "InstanceStatus": {"Status": "Pending"}},
            Instance("w1", None, None, running=False),
        ),
        ({"InstanceStatus": None, "UltraServerInfo": None}, Instance("", None, None, running=False)),
    ],
)
def test_an_instance_of_a_list(summary: dict[str, object], instance: Instance) -> None:
    assert decode.instance(summary) == instance


def test_instance_groups_of_an_answer() -> None:
    answer = {
        "InstanceGroups": [
            {
                "InstanceGroupName": "w1",
                "Status": "Creating",
                "CurrentCount": 4,
                "TargetCount": 18,
                "MinCount": 16,
                "InstanceType": "ml.p6e-gb200.36xlarge",
                "SlurmConfig": {"NodeType": "Compute", "PartitionNames": ["gb200"]},
                "ActiveOperations": {"Scaling": 1},
            },
            {"InstanceGroupName": "controller", "Status": "InService", "SlurmConfig": None},
            {},
        ]
    }
    assert decode.instance_groups(answer) == (
        InstanceGroup("w1", "Creating", 4, 18, 16, "ml.p6e-gb200.36xlarge", ("gb200",), "Compute"),
        InstanceGroup("controller", "InService", 0, 0),
        InstanceGroup("", "Unknown", 0, 0),
    )
    assert (decode.instance_groups({}), decode.instance_groups({"InstanceGroups": None})) == ((), ())


# --- profiles ------------------------------------------------------------------------------------------------------


def test_a_framework_profile() -> None:
    text = "name: x\ntitle: X\ngroups: [[tp, cp]]\nflags: {tp: [--tp, -t]}\ndefaults: {etp: tp}\n"
    assert decode.framework(text, "x.yaml") == Framework(
        "x", "X", (("tp", "cp"),), defaults={"etp": "tp"}, flags={"tp": ("--tp", "-t")}
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.yaml: Expected `object`, got `null`"),
        ("name: x", "x.yaml: Object missing required field `title`"),
        ("name: x\ntitle: X\ngroups: []\nflag: {}", "x.yaml: Object contains unknown field `flag`"),
        ("name: x\ntitle: X\ngroups: tp", "x.yaml: Expected `array`, got `str` - at `$.groups`"),
    ],
)
def test_a_broken_profile_is_a_usage_error_with_the_place(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        decode.framework(text, "x.yaml")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "line", ["groups: [[tpp]]", "groups: []\ndefaults: {etp: tpp}", "groups: []\nflags: {tpp: [--x]}"]
)
def test_a_size_that_does_not_exist_in_a_profile_is_a_usage_error(line: str) -> None:
    with pytest.raises(UsageError):
        decode.framework(f"name: x\ntitle: X\n{line}\n", "x.yaml")
