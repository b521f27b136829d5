"""The devcluster from outside, as a person or CI uses it: one script, driven by its command line.

Each cluster here has a name of its own, so that one that a person has up is left alone. The root folder is built if it
is not there yet, which takes minutes once.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from inside.layout import load

DEVCLUSTER = Path(__file__).parents[2] / "contrib" / "devcluster"
LAYOUT = load(DEVCLUSTER / "layout.yaml")
SCRIPT = (sys.executable, "-IS", str(DEVCLUSTER / "devcluster"))
STATE = Path("/run/hyp-submit-devcluster")
NAME = f"test-{os.getpid()}"

# A slow machine may take this long for what takes a second or two on a quick one; nothing asserts a time.
PATIENCE = 60.0

pytestmark = pytest.mark.slurm


def devcluster(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        (*SCRIPT, *arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def inside(*command: str, options: tuple[str, ...] = (), stdin: str = "") -> subprocess.CompletedProcess[str]:
    argv = (*SCRIPT, "exec", "--name", NAME, *options, "--", *command)
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=600, check=False)


def output(*command: str, stdin: str = "") -> str:
    done = inside(*command, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for(command: tuple[str, ...], wanted: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while (last := output(*command).strip()) != wanted:
        assert time.monotonic() < deadline, f"{' '.join(command)} said {last!r}, not {wanted!r}"
        time.sleep(0.1)


def starts(*command: str) -> subprocess.Popen[str]:
    """A command in the cage that has printed its first line."""
    argv = (*SCRIPT, "exec", "--name", NAME, "--", *command)
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    process.stdout.readline()
    return process


def traces(name: str) -> list[str]:
    """What there still is of a cluster: processes by their command lines, mounts and folders. A zombie is nothing."""
    found = [str(path) for path in (STATE / name,) if path.exists()]
    for process in (entry for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            mounts = (process / "mounts").read_text(encoding="utf-8") if process.name == "self" else ""
        except OSError:
            continue
        if f"devcluster-{name} " in command or f"{STATE / name}/" in command + mounts:
            found.append(command)
    return found + [line for line in Path("/proc/mounts").read_text().splitlines() if str(STATE / name) in line]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    devcluster("build")
    devcluster("up", "--name", NAME)
    yield
    devcluster("down", "--name", NAME)


def test_up_again_leaves_the_cluster_as_it_is() -> None:
    before = (STATE / NAME / "record.json").read_bytes()
    assert "runs already" in devcluster("up", "--name", NAME).stderr
    assert (STATE / NAME / "record.json").read_bytes() == before


def test_up_with_another_scenario_is_refused() -> None:
    done = devcluster("up", "--name", NAME, "--scenario", "mincount-met", check=False)
    assert done.returncode == 2
    assert f"devcluster down --name {NAME} first" in done.stderr


def test_a_scenario_that_does_not_exist_is_named() -> None:
    done = devcluster("up", "--name", f"{NAME}-x", "--scenario", "no-such", check=False)
    assert done.returncode == 2
    assert "no scenario 'no-such'" in done.stderr
    assert traces(f"{NAME}-x") == []


def test_exec_without_a_cluster_says_how_to_get_one() -> None:
    done = devcluster("exec", "--name", "nobody", "--", "true", check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "devcluster up --name nobody" in done.stderr


def test_every_node_is_idle_in_its_partition() -> None:
    counts = {partition: str(len(LAYOUT.nodes_of(partition))) for partition in LAYOUT.partitions}
    lines = output("sinfo", "--noheader", "--format=%R %D %T").splitlines()
    assert sorted(lines) == sorted(
        [f"{LAYOUT.catch_all} {len(LAYOUT.nodes)} idle", *(f"{name} {count} idle" for name, count in counts.items())]
    )


def test_status_counts_nodes_and_daemons() -> None:
    status = json.loads(devcluster("status", "--name", NAME, "--json").stdout)
    (one,) = status["clusters"]
    assert (one["state"], one["scenario"], one["nodes"]) == ("running", "ready", {"idle": len(LAYOUT.nodes)})
    assert {program: len(pids) for program, pids in one["pids"].items()} == {
        "init": 1, "munged": 1, "slurmctld": 1, "emulator": 1, "slurmd": len(LAYOUT.nodes),
    }  # fmt: skip


class TestExec:
    def test_is_alice_at_home_with_a_small_environment(self) -> None:
        assert output("id", "-un").strip() == "alice"
        assert output("pwd").strip() == "/home/alice"
        variables = dict(line.split("=", 1) for line in output("env").splitlines())
        assert variables["HYP_SUBMIT_CLUSTER"] == LAYOUT.cluster
        assert variables["AWS_ENDPOINT_URL_SAGEMAKER"].startswith("http://127.0.0.1:")
        assert not {"PYTEST_CURRENT_TEST", "SUDO_USER", "OLDPWD"} & variables.keys()

    def test_can_be_root_and_take_variables(self) -> None:
        done = inside("sh", "-c", 'id -u; pwd; echo "$A|$HOME"', options=("--root", "--env", "A=b c=d"))
        assert done.stdout == "0\n/root\nb c=d|/root\n"

    def test_hands_on_stdin_stdout_stderr_and_the_exit_code(self) -> None:
        done = inside("sh", "-c", "cat; echo problem >&2; exit 7", stdin="word\n")
        assert (done.returncode, done.stdout, done.stderr) == (7, "word\n", "problem\n")

    def test_a_missing_command_is_127(self) -> None:
        assert inside("no-such-command").returncode == 127

    def test_ends_by_the_signal_that_ended_the_command(self) -> None:
        assert inside("sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_hands_on_a_signal_once(self, number: signal.Signals) -> None:
        script = f"trap 'n=x$n' {number}; echo up; for i in 1 2 3 4 5 6; do sleep 0.1; done; echo $n; exit 5"
        process = starts("sh", "-c", script)
        process.send_signal(number)
        assert process.communicate(timeout=PATIENCE)[0] == "x\n"
        assert process.returncode == 5

    def test_no_command_outlives_it(self) -> None:
        process = starts("sh", "-c", "echo up; exec sleep 123.25")
        process.kill()
        process.communicate(timeout=PATIENCE)
        wait_for(("sh", "-c", "pgrep -cx -f 'sleep 123[.]25' || true"), "0")

    def test_a_terminal_stays_one_and_ctrl_c_arrives_once(self) -> None:
        script = "trap 'echo got-it' INT; test -t 0 && echo ready; for i in 1 2 3 4 5 6; do sleep 0.1; done; exit 9"
        child, terminal = pty.fork()
        if child == 0:
            os.execv(SCRIPT[0], [*SCRIPT, "exec", "--name", NAME, "--", "bash", "-c", script])  # noqa: S606
        seen = _read_until(terminal, b"ready")
        os.write(terminal, b"\x03")
        seen += _read_until(terminal, None)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        assert seen.count(b"got-it") == 1


def _read_until(terminal: int, wanted: bytes | None) -> bytes:
    """What the terminal shows until `wanted`, or until the end."""
    seen = b""
    while wanted is None or wanted not in seen:
        assert select.select([terminal], [], [], PATIENCE)[0], seen
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # how Linux says that nobody has the other side open
            break
    return seen


def submit(script: str, *options: str) -> str:
    """A batch job's id."""
    return output("sbatch", "--parsable", *options, stdin=script).strip()


def test_a_job_of_18_nodes_lands_in_one_block_with_its_gpus() -> None:
    script = "#!/bin/sh\nsrun sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'\n"
    options = ("-p", "gb200", "-N18", "--segment=18", "--ntasks-per-node=4", "--gres=gpu:4", "--output=block.out")
    job = submit(script, *options)
    wait_for(("squeue", "--noheader", "--states=all", "--jobs", job, "--format=%T"), "COMPLETED")
    tasks = [line.split() for line in output("cat", "block.out").splitlines()]
    assert sorted(int(rank) for rank, _, _ in tasks) == list(range(72))
    assert {gpus for _, _, gpus in tasks} == {"0,1,2,3"}
    assert len({node for _, node, _ in tasks}) == 18
    assert len({LAYOUT.unit_of(node).name for _, node, _ in tasks}) == 1


def test_a_job_on_the_tree_and_one_on_everything() -> None:
    hosts = output("srun", "-p", "p5", "-N16", "--gres=gpu:8", "sh", "-c", "echo $SLURMD_NODENAME").split()
    assert sorted(hosts) == sorted(LAYOUT.nodes_of("p5"))
    assert len(output("srun", "-N", str(len(LAYOUT.nodes)), "true").split()) == 0


def test_pyslurm_reads_the_cluster_and_the_topology() -> None:
    script = """
import ctypes, json, pyslurm, yaml
class Answer(ctypes.Structure):
    _fields_ = [("config", ctypes.c_char_p)]
library = next(line.split()[-1] for line in open("/proc/self/maps") if "libslurmfull" in line)
nodes, partitions, _ = pyslurm.Nodes.load(), pyslurm.Partitions.load(), pyslurm.Jobs.load()
answer = ctypes.POINTER(Answer)()
code = ctypes.CDLL(library).slurm_load_topo_config(ctypes.byref(answer))
blocks = {t["topology"]: t.get("block") for t in yaml.safe_load(answer.contents.config)}["gb200"]["blocks"]
print(json.dumps([len(nodes), sorted(partitions), code, [b["block"] for b in blocks]]))
"""
    nodes, partitions, code, blocks = json.loads(output("python", "-", stdin=script))
    assert nodes == len(LAYOUT.nodes)
    assert partitions == sorted([LAYOUT.catch_all, *LAYOUT.partitions])
    assert (code, blocks) == (0, ["us-1", "us-2", "us-3"])


def test_boto3_reads_the_emulated_api() -> None:
    script = (
        "import boto3, os; cluster = os.environ['HYP_SUBMIT_CLUSTER'];"
        "print(boto3.client('sagemaker').describe_cluster(ClusterName=cluster)['ClusterStatus'])"
    )
    assert output("python", "-c", script).strip() == "InService"


def change(method: str, *nodes: str) -> None:
    """Let nodes arrive or leave, as the emulator does it."""
    script = f"""
from pathlib import Path
from inside.layout import load
from inside.slurm import SlurmNodes
SlurmNodes(load(Path("/etc/devcluster/layout.yaml"))).{method}({nodes!r})
"""
    options = ("--root", "--env", "PYTHONPATH=/opt/hyp-submit/contrib/devcluster")
    done = inside("/opt/venv/bin/python", "-", options=options, stdin=script)
    assert done.returncode == 0, done.stderr


def test_nodes_leave_and_arrive_and_a_job_that_loses_one_is_requeued() -> None:
    job = submit("#!/bin/sh\nsleep 600\n", "-p", "gb200", "-N18", "--segment=18")
    queue = ("squeue", "--noheader", "--jobs", job)
    wait_for((*queue, "--format=%T"), "RUNNING")
    nodes = output("scontrol", "show", "hostnames", output(*queue, "--format=%N").strip()).split()

    change("leave", nodes[0], nodes[5])
    assert nodes[0] not in output("scontrol", "show", "topology", "gb200")
    wait_for((*queue, "--format=%T"), "PENDING")
    wait_for(("sinfo", "--noheader", "--partition=gb200", "--format=%D %T"), "52 idle")
    output("scancel", job)

    change("arrive", nodes[0], nodes[5])
    wait_for(("sinfo", "--noheader", "--partition=gb200", "--format=%D %T"), "54 idle")


def test_a_whole_partition_leaves_and_arrives() -> None:
    change("leave", *LAYOUT.nodes_of("p5"))
    assert "TotalNodes=0" in output("scontrol", "show", "partition", "p5", "--oneliner")
    assert "p5" not in output("scontrol", "show", "topoconf")
    change("arrive", *LAYOUT.nodes_of("p5"))
    wait_for(("sinfo", "--noheader", "--partition=p5", "--format=%D %T"), "16 idle")
    assert "Topology=p5" in output("scontrol", "show", "partition", "p5", "--oneliner")


def test_two_clusters_run_side_by_side_and_one_that_crashed_is_replaced() -> None:
    other = f"{NAME}-b"
    try:
        devcluster("up", "--name", other, "--scenario", "mincount-met", "--step-layout", "26.05")
        config = devcluster("exec", "--name", other, "--", "scontrol", "show", "config").stdout
        assert "CR_NO_DIST_TOPO_BLOCK" not in config
        assert "CR_NO_DIST_TOPO_BLOCK" in output("scontrol", "show", "config")

        os.kill(json.loads((STATE / other / "record.json").read_bytes())["init"]["pid"], signal.SIGKILL)
        again = devcluster("up", "--name", other)
        assert "what was left" in again.stderr
        assert devcluster("exec", "--name", other, "--", "sinfo", "-h", "-p", "cpu", "-o", "%D %T").stdout == "2 idle\n"
    finally:
        devcluster("down", "--name", other)
    assert traces(other) == []
    assert output("hostname").strip() == f"devcluster-{NAME}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_leaves_nothing(number: signal.Signals) -> None:
    name = f"{NAME}-i"
    process = subprocess.Popen((*SCRIPT, "up", "--name", name), stderr=subprocess.PIPE, text=True)
    assert process.stderr
    process.stderr.readline()  # the first step is done, and Slurm is about to start
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said.splitlines()[-1]) == (128 + number, "devcluster: interrupted")
    assert traces(name) == []


def test_down_leaves_nothing() -> None:
    name = f"{NAME}-d"
    devcluster("up", "--name", name)
    assert traces(name)
    devcluster("down", "--name", name)
    assert traces(name) == []
    assert "no cluster" in devcluster("down", "--name", name).stderr


def test_the_repository_cannot_be_written_from_inside() -> None:
    assert inside("touch", "/opt/hyp-submit/x", options=("--root",)).returncode != 0


def test_without_root_the_remedy_is_said() -> None:
    argv = ("setpriv", "--reuid=65534", "--clear-groups", *SCRIPT, "status")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "sudo" in done.stderr
    assert "Traceback" not in done.stderr
