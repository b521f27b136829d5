"""sbatch's command line, `#SBATCH` lines and environment, and the call that a plan makes of them."""

from collections.abc import Mapping

import pytest
from factories import block_cluster, tree_cluster
from hypothesis import given, settings
from hypothesis import strategies as st

from hyp_submit.batch import (
    CommandLine,
    Option,
    directives,
    effective,
    environment,
    gpus_per_node,
    node_range,
    sbatch_argv,
    split,
    whole_number,
)
from hyp_submit.errors import UsageError
from hyp_submit.model import Plan, Request, Workload
from hyp_submit.plan import plan

OURS = {"--json": False, "--tp": True, "--framework": True, "-h": False}


def option(name: str, value: str | None, *words: str) -> Option:
    """An option of the command line."""
    return Option(name, value, words, "command line")


# --- command line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ("", CommandLine((), (), None, ())),
        ("x", CommandLine((), (), "x", ())),
        ("-N4 x", CommandLine((), (option("nodes", "4", "-N4"),), "x", ())),
        ("-N 4 x", CommandLine((), (option("nodes", "4", "-N", "4"),), "x", ())),
        ("--nodes=4 x", CommandLine((), (option("nodes", "4", "--nodes=4"),), "x", ())),
        ("--nodes 4 x", CommandLine((), (option("nodes", "4", "--nodes", "4"),), "x", ())),
        ("--nodes= x", CommandLine((), (option("nodes", "", "--nodes="),), "x", ())),
        (
            "-Hp gb200 x",
            CommandLine((), (option("hold", None, "-H"), option("partition", "gb200", "-p", "gb200")), "x", ()),
        ),
        ("-Hpgb200", CommandLine((), (option("hold", None, "-H"), option("partition", "gb200", "-pgb200")), None, ())),
        ("-N4 -- x --json", CommandLine((), (option("nodes", "4", "-N4"),), "x", ("--json",))),
        ("-- -x.sh -N9", CommandLine((), (), "-x.sh", ("-N9",))),
        ("x --json -N2 --tp 4 --", CommandLine((), (), "x", ("--json", "-N2", "--tp", "4", "--"))),
        ("--json -N2 --tp 4 x", CommandLine(("--json", "--tp", "4"), (option("nodes", "2", "-N2"),), "x", ())),
        ("--tp=4 x", CommandLine(("--tp=4",), (), "x", ())),
        ("--tp", CommandLine(("--tp",), (), None, ())),
        ("--tp --json x", CommandLine(("--tp", "--json"), (), "x", ())),
        ("--exclusive x", CommandLine((), (option("exclusive", None, "--exclusive"),), "x", ())),
        ("--exclusive=user x", CommandLine((), (option("exclusive", "user", "--exclusive=user"),), "x", ())),
        ("--nice 5", CommandLine((), (option("nice", None, "--nice"),), "5", ())),
        ("-k x", CommandLine((), (option("no-kill", None, "-k"),), "x", ())),
        ("-koff x", CommandLine((), (option("no-kill", "off", "-koff"),), "x", ())),
        ("-vv x", CommandLine((), (option("verbose", None, "-v"), option("verbose", None, "-v")), "x", ())),
        ("--seg 4 x", CommandLine((), (option("segment", "4", "--seg", "4"),), "x", ())),
        ("--nod=4 x", CommandLine(("--nod=4",), (), "x", ())),  # --nodes or --nodelist or --nodefile
        ("--gpus 4 x", CommandLine((), (option("gpus", "4", "--gpus", "4"),), "x", ())),  # exact beats --gpus-per-node
        ("--bogus x", CommandLine(("--bogus",), (), "x", ())),
        ("--=3 x", CommandLine(("--=3",), (), "x", ())),
        ("-Hz x", CommandLine(("-Hz",), (), "x", ())),
        ("- x", CommandLine((), (), "-", ("x",))),
        ("--wrap=hostname", CommandLine((), (option("wrap", "hostname", "--wrap=hostname"),), None, ())),
        ("-h x", CommandLine(("-h",), (), "x", ())),
    ],
)
def test_words_are_sorted_as_getopt_does(argv: str, line: CommandLine) -> None:
    assert split(argv.split(), OURS) == line


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["-N"], "-N (command line) needs a value"),
        (["-HN"], "-N (command line) needs a value"),
        (["--nodes"], "--nodes (command line) needs a value"),
        (["--seg"], "--seg (command line) needs a value"),
    ],
)
def test_a_missing_value_is_a_usage_error(argv: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        split(argv, OURS)
    assert str(caught.value) == message


def test_an_empty_word_is_the_script() -> None:
    assert split(["", "-N4"], OURS) == CommandLine((), (), "", ("-N4",))


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["-N4", "-p", "--", "--json", "--tp", "x.sh", "--nodes=2", "-H", "--exclusive", "-"]),
            st.text("-=N0x", max_size=4),
        ),
        max_size=8,
    )
)
@settings(deadline=None, max_examples=300)
def test_no_word_is_lost_or_invented(argv: list[str]) -> None:
    try:
        line = split(argv, OURS)
    except UsageError:
        return
    words = [word for one in line.options for word in one.words]
    script = [] if line.script is None else [line.script]
    letters = sorted("".join([*line.ours, *words, *script, *line.arguments]).replace("-", ""))
    assert letters == sorted("".join(argv).replace("-", ""))
    tail = [*script, *line.arguments]
    assert argv[len(argv) - len(tail) :] == tail


# --- #SBATCH lines -------------------------------------------------------------------------------------------------


def said(script: str) -> list[tuple[str, str | None, str]]:
    """Name, value and source of each option of a script."""
    return [(one.name, one.value, one.source) for one in directives(script, "s")]


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("", []),
        ("#SBATCH", []),
        ("#SBATCH -N3", [("nodes", "3", "s:1")]),
        ("#SBATCH\t-N 3", [("nodes", "3", "s:1")]),
        ("#!/bin/bash\n\n# c\n#SBATCH --nodes=3\n", [("nodes", "3", "s:4")]),
        ("#SBATCH --nodes=2 # number of nodes, 2 p4d(e) = 16 A100\n", [("nodes", "2", "s:1")]),
        ("#SBATCH --job-name=a#b --nodes=2", [("job-name", "a", "s:1")]),
        ("#SBATCH --comment='a # b' --nodes=3", [("comment", "a # b", "s:1"), ("nodes", "3", "s:1")]),
        ('#SBATCH --nodes="2"', [("nodes", "2", "s:1")]),
        (
            "#SBATCH -N 2 -p gb200\n#SBATCH -N4",
            [("nodes", "2", "s:1"), ("partition", "gb200", "s:1"), ("nodes", "4", "s:2")],
        ),
        ("#SBATCH -N3\r\n#SBATCH -pgb200\r\n", [("nodes", "3", "s:1"), ("partition", "gb200", "s:2")]),
        ("#SBATCH -N3\necho\n#SBATCH -N9", [("nodes", "3", "s:1")]),
        ("export A=1\n#SBATCH -N9", []),
        ("##SBATCH -N3\n###SBATCH -N3\n# SBATCH -N3\n  #SBATCH -N3\n#sbatch -N3", []),
        (": '\n#SBATCH -N3\n'", []),
        ("#SBATCH --exclusive\n#SBATCH --mem 0", [("exclusive", None, "s:1"), ("mem", "0", "s:2")]),
        ("#SBATCH --bogus=1 --nodes=2", [("nodes", "2", "s:1")]),
        ("#PBS -l nodes=4", []),
    ],
)
def test_directives(script: str, options: list[tuple[str, str | None, str]]) -> None:
    assert said(script) == options


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\n#SBATCH --comment='a", "s:2: #SBATCH line with an unclosed quote: No closing quotation"),
        ("#SBATCH --nodes", "--nodes (s:1) needs a value"),
        ("#SBATCH -N # four", "-N (s:1) needs a value"),
    ],
)
def test_a_broken_directive_is_named_with_its_line(script: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        directives(script, "s")
    assert str(caught.value) == message


@pytest.mark.parametrize("script", ["#SBATCH foo --nodes=2", "#SBATCH --nodes=2 script"])
def test_a_word_that_is_no_option_is_none(script: str) -> None:
    assert said(script) == [("nodes", "2", "s:1")]


def test_directives_end_at_two_dashes() -> None:
    assert said("#SBATCH -N3 -- -N4") == [("nodes", "3", "s:1")]


def test_a_backslash_at_the_end_of_a_directive_is_dropped() -> None:
    assert said("#SBATCH -N 2 \\\n#SBATCH -p gb200") == [("nodes", "2", "s:1"), ("partition", "gb200", "s:2")]


@pytest.mark.parametrize("script", ["# a\x0cb\n#SBATCH -N3", "# a\u2028b\n#SBATCH -N3"])
def test_only_a_newline_ends_a_line(script: str) -> None:
    assert said(script) == [("nodes", "3", "s:2")]


# --- what holds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "variables", "script", "value", "source"),
    [
        ("-pa", {"SBATCH_PARTITION": "b"}, "#SBATCH -pc", "a", "command line"),
        ("", {"SBATCH_PARTITION": "b"}, "#SBATCH -pc", "b", "SBATCH_PARTITION"),
        ("", {"SBATCH_PARTITION": ""}, "#SBATCH -pc", "c", "s:1"),
        ("", {}, "#SBATCH -pc\n#SBATCH -pd", "d", "s:2"),
        ("-pa -pb", {}, "", "b", "command line"),
    ],
)
def test_precedence_is_sbatchs(line: str, variables: Mapping[str, str], script: str, value: str, source: str) -> None:
    found = effective(split(line.split(), OURS).options, variables, directives(script, "s"))["partition"]
    assert (found.value, found.source) == (value, source)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("SBATCH_GPUS", "gpus"),
        ("SBATCH_GPUS_PER_NODE", "gpus-per-node"),
        ("SBATCH_GRES", "gres"),
        ("SBATCH_SEGMENT_SIZE", "segment"),
        ("SBATCH_REQ_SWITCH", "switches"),
    ],
)
def test_variables_of_sbatch(variable: str, name: str) -> None:
    assert effective((), {variable: "3"}, ()) == {name: Option(name, "3", (), variable)}


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("4", 4), (" 4 ", 4), ("007", 7), ("999999999", 999999999)])
def test_whole_number(text: str, number: int) -> None:
    assert whole_number(option("nodes", text)) == number


@pytest.mark.parametrize("text", ["", "-1", "4.0", "1e3", "4k", "nan", "0x10", "1000000000", None])
def test_what_is_no_whole_number_is_a_usage_error(text: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        whole_number(option("segment", text))
    assert str(caught.value) == f"--segment={text or ''} (command line) is not a whole number"


@pytest.mark.parametrize(("text", "found"), [("4", (4, 4)), ("2-4", (2, 4)), ("4-2", (4, 2)), (" 2 - 4 ", (2, 4))])
def test_node_range(text: str, found: tuple[int, int]) -> None:
    assert node_range(option("nodes", text)) == found


@pytest.mark.parametrize("text", ["-4", "2-", "-", "2-4-6", "2-x", "2:4", "1k"])
def test_what_is_no_range_of_nodes_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        node_range(option("nodes", text))


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        ("", None),
        ("--gpus-per-node=4", 4),
        ("--gpus-per-node=gb200:4", 4),
        ("--gres=gpu:8", 8),
        ("--gres=gpu:h100:8", 8),
        ("--gres=gres/gpu:8", 8),
        ("--gres=nvme:1,gpu:4", 4),
        ("--gres=nvme:1", None),
        ("--gpus-per-node=x", None),
        ("--gres=gpu:8 --gpus-per-node=4", 4),
    ],
)
def test_gpus_per_node(words: str, gpus: int | None) -> None:
    found = gpus_per_node(effective(split(words.split(), OURS).options, {}, ()))
    assert found == (None if gpus is None else (gpus, "command line"))


def test_a_gres_without_a_count_is_one() -> None:
    assert gpus_per_node({"gres": option("gres", "gpu")}) == (1, "command line")


# --- the call ------------------------------------------------------------------------------------------------------


def made(segment: int | None = None) -> Plan:
    """A plan for four nodes."""
    request = Request(partition="part", nodes=4, segment="none" if segment is None else segment)
    return plan(block_cluster("....", "...."), Workload(), request)


@pytest.mark.parametrize(
    ("argv", "call"),
    [
        (["x"], ["--partition=part", "--nodes=4", "--segment=2", "--comment=T", "x"]),
        (["-N4", "x", "-N9"], ["-N4", "--partition=part", "--segment=2", "--comment=T", "x", "-N9"]),
        (["--seg=2", "x"], ["--seg=2", "--partition=part", "--nodes=4", "--comment=T", "x"]),
        (
            ["--comment=mine", "-Jrun", "x"],
            ["-Jrun", "--partition=part", "--nodes=4", "--segment=2", "--comment=T", "x"],
        ),
        (["-N4-8", "x"], ["-N4-8", "--partition=part", "--nodes=4", "--segment=2", "--comment=T", "x"]),
        (["--wrap=hostname"], ["--wrap=hostname", "--partition=part", "--nodes=4", "--segment=2", "--comment=T"]),
        (
            ["-Hp", "part", "x", "a b", "$c"],
            ["-H", "-p", "part", "--nodes=4", "--segment=2", "--comment=T", "x", "a b", "$c"],
        ),
    ],
)
def test_the_call(argv: list[str], call: list[str]) -> None:
    assert sbatch_argv(made(2), split(argv, OURS), "T") == ["sbatch", "--parsable", *call]


def test_a_script_whose_name_begins_with_a_dash_stays_the_script() -> None:
    assert sbatch_argv(made(2), split(["--", "-x.sh", "a"], OURS), "T")[-3:] == ["--", "-x.sh", "a"]


def test_the_token_stands_after_the_comment_that_the_job_would_have_had() -> None:
    line = split(["--comment=mine", "x"], OURS)
    assert sbatch_argv(made(2), line, "T", "mine")[-2:] == ["--comment=mine T", "x"]
    assert sbatch_argv(made(2), line, None, "mine")[-2:] == ["--comment=mine", "x"]


@pytest.mark.parametrize("switches", ["2", "2@02:00:00"])
def test_the_users_own_switches_keep_their_wait(switches: str) -> None:
    tree = plan(tree_cluster(["....", "...."]), Workload(), Request(nodes=4, switches=2))
    assert sbatch_argv(tree, split([f"--switches={switches}", "x"], OURS), None) == [
        *("sbatch", "--parsable", f"--switches={switches}", "--partition=part", "--nodes=4", "x")
    ]


def test_without_a_token_the_comment_is_the_users() -> None:
    assert sbatch_argv(made(), split(["x"], OURS), None) == [
        *("sbatch", "--parsable", "--partition=part", "--nodes=4", "x")
    ]


def test_none_is_not_handed_to_sbatch() -> None:
    assert sbatch_argv(made(), split(["--segment=none", "--switches", "none", "x"], OURS), None) == [
        *("sbatch", "--parsable", "--partition=part", "--nodes=4", "x")
    ]


def test_a_jobs_own_variables_are_not_handed_on_and_slurms_configuration_is() -> None:
    inherited = {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "SLURM_CONF_SERVER": "ctl",
        "SLURM_JOB_ID": "7",
        "SLURM_CPU_BIND": "none",
        "SBATCH_ACCOUNT": "a",
        "SBATCH_SEGMENT_SIZE": "4",
    }
    kept = {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "SLURM_CONF_SERVER": "ctl",
        "SBATCH_ACCOUNT": "a",
    }
    assert environment(inherited, made()) == kept
    assert environment(inherited, made(2)) == {**kept, "SBATCH_SEGMENT_SIZE": "4"}
