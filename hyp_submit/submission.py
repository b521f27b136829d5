"""sbatch, to submit: run once, its answer read with care, the queue asked where the answer leaves a doubt."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile

from hyp_submit.errors import OutcomeUnknown, Refused, Transient, Unreadable
from hyp_submit.slurm import DOUBTFUL, UNREACHABLE, query

SBATCH_TIMEOUT = 120.0
"""Seconds. Longer than the retries of Slurm's own clients (MessageTimeout, 10 s by default, a few times over)."""
MOST_OUTPUT = 1 << 20
"""Bytes of sbatch's output that are looked at."""

_LATER_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def sbatch(argv: Sequence[str], environment: Mapping[str, str], token: str) -> str:
    """Run sbatch; the job's id.

    Signals do not reach it: what is submitted is submitted, and its id is told. Where it does not tell an id, the queue
    is asked for a job with the token in its comment, whatever it says: it may be a site's wrapper, or have died too
    late. Raises Refused with Slurm's words, Transient if the job did not get there because slurmctld is away,
    OutcomeUnknown if nobody knows.
    """
    code, output, errors = _run(argv, environment)
    job = output.decode("ascii", "replace").strip().partition(";")[0]
    if job.isdecimal():
        return job
    said = _words(errors)
    ended = f"sbatch gave no answer in {SBATCH_TIMEOUT:.0f} s" if code is None else f"sbatch ended with {code}: {said}"
    away = any(sign in said.lower() for sign in UNREACHABLE)
    try:
        found = find(token)
    except Unreadable as error:
        if away:
            raise Transient(f"not submitted, slurmctld is away: {said}") from error
        raise OutcomeUnknown(f"{ended}; {error}; {_look(token)}") from error
    if found is not None:
        return found
    if away:
        raise Transient(f"not submitted, slurmctld was away: {said}")
    if code is None or code <= 0 or any(sign in said.lower() for sign in DOUBTFUL):
        raise OutcomeUnknown(f"{ended}; no job of yours has {token} in its comment now; {_look(token)}")
    raise Refused(said)


def check(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Have sbatch read its options now, with `--test-only`, so that a mistake in them does not cost a whole hold.

    Raises Refused with its words where they are about the options themselves: what slurmctld says to them may be
    another thing once the nodes are there.
    """
    code, _, errors = _run([argv[0], "--test-only", *argv[1:]], environment)
    said = errors.decode("utf-8", "replace").lower()
    if code and not any(sign in said for sign in ("allocation failure", *UNREACHABLE, *DOUBTFUL)):
        raise Refused(_words(errors))


def _words(errors: bytes) -> str:
    """What sbatch says, in one line, without its name before each sentence."""
    lines = (re.sub(r"^sbatch: (error: )?", "", line).strip() for line in errors.decode("utf-8", "replace").split("\n"))
    return "; ".join(filter(None, lines)) or "no message"


def find(token: str) -> str | None:
    """The id of my job with the token in its comment, the lowest if there are several; None where there is none.

    Raises Unreadable where the queue cannot be read.
    """
    queue = query(["squeue", "--me", "--noheader", "--states=all", "--format=%A %k"])
    jobs = (line.partition(" ") for line in queue.splitlines())
    found = [int(job) for job, _, comment in jobs if token in comment]
    return str(min(found)) if found else None


def _look(token: str) -> str:
    return f"before you submit again, look for it: squeue --me --states=all --format='%A %k' | grep {token}"


def _run(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[int | None, bytes, bytes]:
    """Exit code (None: it gave no answer in time), stdout and stderr.

    Files take the output, not pipes: what a wrapper leaves running would hold a pipe open for ever.
    """
    with TemporaryFile() as output, TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                argv,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise Unreadable("sbatch is not in PATH: load Slurm's module, or add its bin folder") from error
        except OSError as error:
            raise Refused(f"sbatch cannot be run: {error.strerror}") from error
        code: int | None = None
        try:
            code = process.wait(SBATCH_TIMEOUT)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        errors.seek(0)
        return code, output.read(MOST_OUTPUT), errors.read(MOST_OUTPUT)


@contextmanager
def signals_deferred() -> Iterator[list[int]]:
    """Within it the signals that end a program are only noted, in the list yielded: for a step not to stop half way."""
    noted: list[int] = []
    before = {number: signal.signal(number, lambda got, _: noted.append(got)) for number in _LATER_SIGNALS}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
