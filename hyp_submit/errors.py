"""What can go wrong, named by what the user does next.

    HypSubmitError
    ├── UsageError            exit 2   a flag, a file, a size is wrong: change it
    ├── Unreadable            exit 3   Slurm or AWS cannot be read: repair the way to it
    ├── CannotFit             exit 4   no state of this cluster holds the job: ask for something else
    ├── WillNotBeReady        exit 5   the partition's instance groups will not get there
    ├── TimedOutWaiting       exit 6   the wait that was asked for is over
    ├── Refused               exit 7   sbatch said no
    ├── OutcomeUnknown        exit 8   sbatch gave no answer: look before submitting again
    ├── NotAsked              exit 3   HyperPod cannot be asked from here: say what is missing, or gate on Slurm alone
    └── Transient             exit 3   unreadable now, perhaps not in a moment: worth waiting out
        └── NoEndpoint                 nobody answers at HyperPod's endpoint

Each is one line for the user; anything else that escapes is a bug and keeps its traceback (exit 1).
"""

from __future__ import annotations

from typing import ClassVar


class HypSubmitError(Exception):
    """The base of all; `str()` is one line that names the place and the remedy."""

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "error"
    """The stable name used in JSON."""


class UsageError(HypSubmitError):
    """An option, a script, a setting or a profile that cannot be right."""

    exit_code = 2
    code = "usage"


class Unreadable(HypSubmitError):
    """Slurm or AWS cannot be read, and waiting would not help."""

    exit_code = 3
    code = "unreadable"


class Transient(Unreadable):
    """Slurm or AWS did not answer this time; a wait looks again, one look gives up."""

    code = "unreachable"


class NoEndpoint(Transient):
    """Nobody answers at HyperPod's endpoint: off AWS, or a network fault."""


class NotAsked(Unreadable):
    """HyperPod cannot be asked from here at all: no cluster name, credentials, region or permission."""

    code = "hyperpod-not-asked"


class CannotFit(HypSubmitError):
    """Not even the whole cluster, healthy and complete, can hold the job as asked."""

    exit_code = 4
    code = "cannot-fit"


class WillNotBeReady(HypSubmitError):
    """The instance groups of the partition failed, were rolled back, or aim too low."""

    exit_code = 5
    code = "will-not-be-ready"


class TimedOutWaiting(HypSubmitError):
    """The partition was not ready within the time given."""

    exit_code = 6
    code = "timed-out"


class Refused(HypSubmitError):
    """sbatch refused the job."""

    exit_code = 7
    code = "refused"


class OutcomeUnknown(HypSubmitError):
    """sbatch neither took nor refused the job, and the queue does not tell."""

    exit_code = 8
    code = "unknown-outcome"
