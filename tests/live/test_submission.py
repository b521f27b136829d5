"""One submission is one job, and its id is told, whatever stands in for sbatch and whatever signal comes."""

import signal
import time
from collections.abc import Iterator

import pytest
from live.devcluster import DevCluster, devcluster

pytestmark = pytest.mark.slurm

REAL = '/usr/bin/sbatch "$@"'
SUBMIT = """
import os, sys
from hyp_submit import submission
from hyp_submit.errors import HypSubmitError
submission.SBATCH_TIMEOUT = 3.0
argv = ["sbatch", "--parsable", "--partition=cpu", "--output=/dev/null", "--comment=" + sys.argv[1], "--wrap", "true"]
try:
    print(submission.sbatch([*argv, *sys.argv[2:]], os.environ, sys.argv[1]))
except HypSubmitError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    with devcluster("test-submission") as found:
        yield found


def wrapped(cluster: DevCluster, wrapper: str, name: str) -> str:
    """A folder with a program `sbatch` that is this shell program."""
    folder = f"/home/alice/{name}"
    cluster.out("mkdir", "-p", folder)
    cluster.out(
        "sh", "-c", 'printf "#!/bin/sh\\n%s\\n" "$1" > "$2/sbatch"; chmod +x "$2/sbatch"', "sh", wrapper, folder
    )
    return folder


@pytest.mark.parametrize(
    ("name", "wrapper", "code"),
    [
        ("plain", REAL, 0),
        ("silent", f"{REAL} > /dev/null", 0),
        ("noisy", f"{REAL} > /dev/null; echo 'sbatch: error: some plugin died' >&2; exit 1", 0),
        ("away", f"{REAL} > /dev/null; echo 'Unable to contact slurm controller' >&2; exit 1", 0),
        ("leaves", f"{REAL}; sleep 300 &", 0),
        ("hangs", f"{REAL} > /dev/null; sleep 300", 0),
        ("hangs-before", "sleep 300", 8),
        ("killed", "kill -9 $$", 8),
        ("refuses", "echo 'sbatch: error: no'; echo 'sbatch: error: never' >&2; exit 1", 7),
    ],
)
def test_whatever_sbatch_is_one_job_is_there_and_its_id_is_told(
    cluster: DevCluster, name: str, wrapper: str, code: int
) -> None:
    folder = wrapped(cluster, wrapper, name)
    token = f"hyp-submit:{name}"
    done = cluster.run("env", f"PATH={folder}:/usr/bin:/bin", "/opt/venv/bin/python", "-c", SUBMIT, token)
    queue = cluster.out("squeue", "--noheader", "--states=all", "--format=%A %k").splitlines()
    mine = [line.partition(" ")[0] for line in queue if line.endswith(token)]
    assert (done.returncode, done.stdout.split(), mine) == (code, mine, [] if code else mine[:1]), done.stderr
    assert "Traceback" not in done.stderr


def test_an_id_that_stdout_cannot_take_is_told_all_the_same(cluster: DevCluster) -> None:
    before = set(cluster.queue())
    submit = "exec hyp-submit submit -p cpu -N1 --gate off --output=/dev/null --wrap true > /dev/full"
    done = cluster.run("sh", "-c", submit)
    (job,) = set(cluster.queue()) - before
    assert done.returncode == 2
    assert f"submitted   job {job}, " in done.stderr
    assert done.stderr.splitlines()[-1] == "error       the output cannot be written: No space left on device"


def test_a_refusal_of_several_lines_is_one(cluster: DevCluster) -> None:
    done = cluster.run("hyp-submit", "submit", "-p", "gb200", "-N1", "--gate", "off", "/etc/hostname")
    assert (done.returncode, done.stdout) == (7, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error       This does not look like a batch script.")
    assert "sbatch:" not in last


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_sbatch_answers_loses_no_id(cluster: DevCluster, number: signal.Signals) -> None:
    folder = wrapped(cluster, f"{REAL} > id; sleep 3; cat id", f"slow-{number.name}")
    before = set(cluster.queue())
    ask = ("-p", "cpu", "-N1", "--gate", "off", "--output=/dev/null", "--wrap", "true")
    submit = cluster.start("env", f"PATH={folder}:/usr/local/bin:/usr/bin:/bin", "hyp-submit", "submit", *ask)
    deadline = time.monotonic() + 30
    while set(cluster.queue()) == before and time.monotonic() < deadline:
        time.sleep(0.1)
    submit.send_signal(number)
    output, errors = submit.communicate(timeout=60)
    assert output.split() == list(set(cluster.queue()) - before), errors
    assert submit.returncode in {128 + number, -number}
    assert "was submitted before the signal" in errors
