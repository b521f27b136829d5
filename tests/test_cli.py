"""The command line: exit codes, what stands on stdout and what on stderr, and input that is wrong."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from factories import block_cluster

from hyp_submit import __version__, cli, snapshots

PLAN_KEYS = [
    "schema",
    "partition",
    "topology",
    "nodes",
    "gpus_per_node",
    "world_size",
    "workload",
    "segment",
    "segments",
    "switches",
    "fit",
    "placement",
    "candidates",
    "ranks",
    "sbatch",
    "warnings",
    "errors",
]


@dataclass
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def plan(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the console script's `main` in a folder of its own that has no Slurm, no settings and no colours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "no-slurm.conf"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "200")
    for name in [*os.environ]:
        if name.startswith(("SBATCH_", "HYP_SUBMIT_", "AWS_")):
            monkeypatch.delenv(name)

    def command(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["hyp-submit", *arguments])
        code: object = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        assert isinstance(code, int)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return command


def script(text: str = "#SBATCH --nodes=4\n#SBATCH -p gb200\nsrun python train.py\n", name: str = "train.sh") -> str:
    """A script in the current folder; its name."""
    Path(name).write_text(f"#!/bin/bash\n{text}")
    return name


def snapshot(**drawn: Any) -> str:
    """A snapshot of a drawn cluster in the current folder; its name."""
    Path("cluster.json").write_bytes(snapshots.dump(block_cluster("....", "..xx", **drawn)))
    return "cluster.json"


# --- what goes where -----------------------------------------------------------------------------------------------


def test_version(run: Run) -> None:
    assert run("--version") == Done(0, f"hyp-submit {__version__}\n", "")


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("plan", "--help"), ("submit", "-h"), ("snapshot", "-h")])
def test_help_is_data_on_stdout(run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.code, done.err, "Usage: " in done.out) == (0, "", True)


def test_a_plan_is_data_on_stdout(run: Run) -> None:
    done = run("plan", "--demo", script())
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("plan        train.sh: 4 nodes x 4 GPUs = 16 GPUs\n")


def test_json_is_one_document_with_the_contracts_keys(run: Run) -> None:
    done = run("plan", "--demo", "--json", script())
    assert (done.code, done.err, list(done.plan)) == (0, "", PLAN_KEYS)
    assert done.plan["schema"] == "hyp-submit/plan/1"
    assert done.plan["sbatch"] == ["--partition=gb200", "--nodes=4", "--segment=4"]


def test_the_clock_of_a_snapshot_is_its_own(run: Run) -> None:
    done = run("plan", "--snapshot", snapshot(), "-N6", "--json")
    assert done.plan["fit"] == {
        "now": True,
        "ever": True,
        "possible": True,
        "earliest": "2026-11-30T14:00:00Z",
    }


def test_a_plan_that_cannot_start_yet_is_exit_4_with_its_json(run: Run) -> None:
    done = run("plan", "--snapshot", snapshot(), "-N8", "--json")
    assert (done.code, done.plan["fit"], done.plan["errors"]) == (
        4,
        {"now": False, "ever": False, "possible": True, "earliest": None},
        [],
    )


def test_a_plan_that_can_never_fit_is_exit_4_with_its_json(run: Run) -> None:
    done = run("plan", "--snapshot", snapshot(), "-N9", "--json")
    assert (done.code, [error["code"] for error in done.plan["errors"]]) == (4, ["cannot-fit"])


# --- input that is wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("plan --demo", "how many nodes? Neither the script nor the command line says: --nodes N"),
        ("plan --demo -N2 -p gb300", "no partition 'gb300' in hyperpod-demo: there are dev, gb200, p5, cpu"),
        ("plan --demo -N0 -p gb200", "--nodes 0: a job has at least one node"),
        (
            "plan --demo -N18 -p gb200 --segment 5",
            (
                "--segment=5 does not divide 18 nodes, which Slurm refuses: "
                "use one of 1, 2, 3, 6, 9, 18, or another node count"
            ),
        ),
        (
            "plan --demo -N36 -p gb200 --framework megatron --tp 4 --ep 32 --etp 1",
            "EP 32 = 32 GPUs does not divide the 144 GPUs of 36 nodes x 4: change the sizes or the node count",
        ),
        ("plan --demo -N2 -p gb200 --framework nope --tp 2", "--framework nope: there are fsdp, megatron, nemo"),
        (
            "plan --demo -N2 -p gb200 --tp 2",
            "sizes without a framework: --framework NAME says how its ranks are numbered",
        ),
        ("plan --demo -N2 -p gb200,p5", "--partition=gb200,p5 (command line): a plan is for one partition, name it"),
        ("plan --demo -N2 -p gb200 --patience soon", "--patience soon: not a duration; write 30s, 15m, 6h, 2d or inf"),
        ("plan --demo -N2 --patience -1", "--patience -1: not a duration; write 30s, 15m, 6h, 2d or inf"),
        ("plan --demo --snapshot x -N2", "--demo and --snapshot are two clusters: give one"),
        ("plan --snapshot nowhere.json -N2", "nowhere.json: No such file or directory"),
        ("plan --demo nowhere.sh", "nowhere.sh: No such file or directory"),
        ("plan --demo .", ".: Is a directory"),
        ("plan --demo -", "-: No such file or directory"),
        ("plan --demo --nodes", "--nodes (command line) needs a value"),
        ("submit", "which script? hyp-submit submit [OPTIONS] SCRIPT [ARGS]"),
        ("submit --timeout 5x -N2 --wrap true", "--timeout 5x: not a duration; write 30s, 15m, 6h, 2d or inf"),
        (
            "submit --test-only -N2 --wrap true",
            "--test-only (command line) submits nothing: hyp-submit plan says where and when the job would start",
        ),
    ],
)
def test_a_usage_error_is_one_line_on_stderr(run: Run, arguments: str, message: str) -> None:
    assert run(*arguments.split()) == Done(2, "", f"error       {message}\n")


@pytest.mark.parametrize(
    "arguments", ["bogus", "plan --bogus", "plan --tp 0 -N2", "plan --tp x -N2", "submit --gate maybe x", "--bogus"]
)
def test_what_the_parser_refuses_is_one_line_on_stderr(run: Run, arguments: str) -> None:
    done = run(*arguments.split())
    assert (done.code, done.out, done.err.startswith("error       "), done.err.count("\n")) == (2, "", True, 1)


def test_without_a_command_help_is_shown_and_exit_2(run: Run) -> None:
    done = run()
    assert (done.code, "Usage: " in done.out + done.err) == (2, True)


@pytest.mark.parametrize("arguments", ["-N2 -p gb300", "-N0 -p gb200", "nowhere.sh", "", "-N36 -p gb200 --segment 5"])
def test_an_error_of_a_plan_is_a_document_too(run: Run, arguments: str) -> None:
    done = run("plan", "--demo", "--json", *arguments.split())
    message = done.err.removeprefix("error       ").removesuffix("\n")
    assert (done.code, done.plan) == (
        2,
        {"schema": "hyp-submit/plan/1", "errors": [{"code": "usage", "message": message}]},
    )


@pytest.mark.parametrize("arguments", ["--json --nodes", "--json --tp 0 -N2 -p gb200", "--json --bogus"])
def test_an_error_in_the_options_is_a_document_too(run: Run, arguments: str) -> None:
    done = run("plan", "--demo", *arguments.split())
    assert [error["code"] for error in done.plan["errors"]] == ["usage"]


@pytest.mark.parametrize("arguments", [("plan", "-N2"), ("snapshot",), ("submit", "-N2", "--wrap", "true")])
def test_without_slurm_it_is_exit_3_with_the_remedy(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == Done(
        3,
        "",
        f"error       SLURM_CONF names {tmp_path}/no-slurm.conf, which is no file: use --snapshot FILE or --demo here, "
        "or run it on a node of the cluster\n",
    )


def test_a_binary_file_is_a_script_that_says_nothing(run: Run) -> None:
    Path("binary").write_bytes(bytes(range(256)) * 40)
    assert run("plan", "--demo", "binary").code == 2
    assert run("plan", "--demo", "-N4", "-p", "gb200", "--json", "binary").plan["workload"]["framework"] is None


def test_a_script_that_cannot_be_a_script_is_refused(run: Run) -> None:
    with Path("model.bin").open("wb") as file:
        file.truncate(5 << 20)
    assert run("plan", "--demo", "model.bin") == Done(
        2, "", "error       model.bin: larger than 4 MiB, which no such file is\n"
    )


@pytest.mark.parametrize("text", ["", "{}", "[]", "#!/bin/bash", '{"schema": "hyp-submit/cluster/2"}'])
def test_what_is_no_snapshot_is_exit_2(run: Run, text: str) -> None:
    Path("cluster.json").write_text(text)
    done = run("plan", "--snapshot", "cluster.json", "-N2")
    assert (done.code, done.out, done.err.startswith("error       cluster.json: ")) == (2, "", True)


def test_a_block_size_of_zero_is_exit_2(run: Run) -> None:
    assert run("plan", "--snapshot", snapshot(sizes=[0]), "-N4").code == 2


def test_names_that_would_steer_a_terminal_are_shown_and_not_done(run: Run) -> None:
    cluster = block_cluster("....")
    text = snapshots.dump(cluster).replace(b'"topo"', b'"to\\u001b[2Jpo"').replace(b'"b1"', b'"b\\u001b]0;x\\u0007"')
    Path("cluster.json").write_bytes(text.replace(b'"part"', b'"pa\\u202ert"'))
    for extra in ([], ["--json"], ["-p", "\x1b[31m"]):
        done = run("plan", "--snapshot", "cluster.json", "-N4", *extra)
        assert [mark for mark in done.out + done.err if mark in "\x1b\x07"] == []


# --- options of sbatch's -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        "-N4 -p gb200",
        "-N 4 --partition gb200",
        "--nodes=4 -pgb200",
        "-Hp gb200 -N4",
        "--part gb200 --nodes 4",
        "-N9 -N4 -p gb200 -J run --exclusive --mem=0",
        "-p gb200 -N4 -- train.sh --nodes 9",
        "-p gb200 -N4 train.sh --json --tp 99 -N 2",
    ],
)
def test_sbatchs_options_are_taken_in_their_place(run: Run, arguments: str) -> None:
    script("srun x\n")
    assert run("plan", "--demo", "--json", *arguments.split()).plan["nodes"] == 4


def test_precedence_is_command_line_then_environment_then_script(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    name = script("#SBATCH -N6 -p gb200 --segment=3\nsrun x\n")
    assert run("plan", "--demo", "--json", name).plan["segment"] == 3
    monkeypatch.setenv("SBATCH_SEGMENT_SIZE", "2")
    assert run("plan", "--demo", "--json", name).plan["segment"] == 2
    assert run("plan", "--demo", "--json", "--segment=6", name).plan["segment"] == 6


def test_no_segment_can_be_asked_for(run: Run) -> None:
    name = script("#SBATCH -N6 -p gb200\nsrun x\n")
    assert run("plan", "--demo", "--json", "--segment", "none", name).plan["segment"] is None


def test_values_have_the_place_that_they_came_from(run: Run) -> None:
    name = script("#SBATCH -N4 -p gb200\nsrun python pretrain_gpt.py --tensor-model-parallel-size 8\n")
    sources = run("plan", "--demo", "--json", "--ep", "2", name).plan["workload"]["sources"]
    assert sources == {
        "tp": "train.sh:3",
        "nodes": "train.sh:2",
        "ep": "--ep",
        "etp": "default (= TP)",
        "dp": "world / (TP x CP x PP)",
    }


def test_no_option_of_ours_has_a_name_of_sbatchs() -> None:
    assert "--cluster" not in {name for parameter in _parameters("submit") for name in parameter.opts}


def _parameters(command: str) -> list[Any]:
    import typer.main  # noqa: PLC0415  only this test looks into the parser

    group: Any = typer.main.get_command(cli.app)
    return list(group.commands[command].params)


@pytest.mark.parametrize("command", ["plan", "submit"])
def test_no_flag_of_ours_is_in_sbatchs_table(command: str) -> None:
    from hyp_submit import batch  # noqa: PLC0415

    ours = {name for parameter in _parameters(command) for name in parameter.opts} - {"--help", "-h"}
    taken = {
        name for name in ours if (found := batch.split([name, "1"], {}).options) and found[0].name == name.lstrip("-")
    }
    assert taken == set()


# --- in a process of its own ---------------------------------------------------------------------------------------


def process(*arguments: str | bytes, timeout: float = 30) -> subprocess.CompletedProcess[bytes]:
    """The command as a user runs it, in a locale whose encoding is strict."""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict", "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-m", "hyp_submit", *arguments],
        capture_output=True,
        env=environment,
        timeout=timeout,
        check=False,
    )


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_script_whose_name_is_no_text_is_planned(tmp_path: Path, extra: list[str]) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.sh"
    with open(name, "w") as file:  # noqa: PTH123  a Path of bytes there is none
        file.write("#!/bin/bash\n#SBATCH -N4 -p gb200\n")
    done = process("plan", "--demo", *extra, name)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_closed_pipe_is_no_error() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'hyp_submit', *sys.argv[1:]], check=True)"
    reader = subprocess.run(
        ["sh", "-c", '"$@" | head -c1', "sh", sys.executable, "-c", code, "plan", "--demo", "-N4", "-pgb200", "--json"],
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (reader.stdout, reader.stderr) == (b"{", b"")


def test_an_absurd_node_count_is_answered_at_once() -> None:
    assert process("plan", "--demo", "-p", "gb200", "-N999999999", timeout=3).returncode == 4


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "hyp_submit", *arguments]


@pytest.mark.parametrize("arguments", ["blocks --demo", "status --demo", "jobs --demo", "snapshot --demo"])
def test_a_full_disk_is_one_line(arguments: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(program(*arguments.split()), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "error       the output cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize("arguments", ["blocks --demo", "plan --demo -p gb200 -N18", "snapshot --demo"])
def test_a_reader_that_has_seen_enough_is_no_error(arguments: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = subprocess.run(
            program(*arguments.split()), stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")
