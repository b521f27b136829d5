"""Runs a command in a cage as if it ran here: same terminal, streams, exit code and signals.

Kept light: this is on the way of every `exec`.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from outside.errors import CannotRunError, MisuseError
from outside.processes import Process
from outside.records import Record, running

_NEW_NS = 0x00020000
_NEW_UTS = 0x04000000
_NEW_IPC = 0x08000000
_NEW_PID = 0x20000000
_NEW_NET = 0x40000000
_PR_SET_PDEATHSIG = 1

# What someone may send to this process and mean the command. Stopping and continuing reach both by themselves.
_FORWARDED = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/venv/bin"

_libc = ctypes.CDLL(None, use_errno=True)


class _User(NamedTuple):
    """Whom a command runs as, and in which folder."""

    name: str
    number: int
    home: str


_ALICE = _User("alice", 1001, "/home/alice")
_ROOT = _User("root", 0, "/root")


def execute(options: argparse.Namespace) -> int:
    """Run what stands after `--`, or a shell. Options: name, root, env, command."""
    record = running(options.name)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    user = _ROOT if options.root else _ALICE
    return _run(record.init, command or ["/bin/bash"], user, _environment(record, user, options.env))


def _environment(record: Record, user: _User, extra: Sequence[str]) -> dict[str, str]:
    """All that a command in the cage sees of variables: nothing of this shell's leaks in."""
    given = {}
    for assignment in extra:
        name, equals, value = assignment.partition("=")
        if not name or not equals:
            raise MisuseError(f"--env {assignment}: expected NAME=VALUE")
        given[name] = value
    return {
        "PATH": _PATH,
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": os.environ.get("TERM", "dumb"),
        "AWS_REGION": "us-west-2",
        "AWS_DEFAULT_REGION": "us-west-2",  # the one that boto3 itself reads
        "AWS_ACCESS_KEY_ID": "devcluster",
        "AWS_SECRET_ACCESS_KEY": "devcluster",
        "AWS_ENDPOINT_URL_SAGEMAKER": f"http://127.0.0.1:{record.api_port}",
        "HYP_SUBMIT_CLUSTER": record.cluster,
        **given,
    }


def _run(init: Process, command: Sequence[str], user: _User, environment: Mapping[str, str]) -> int:
    """Run `command` in the cage of `init` and return its exit code; where a signal ended it, end by the same one.

    Raises `CannotRunError` if the cage is gone.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_FORWARDED, signal.SIGCHLD})
    with init.handle() as cage:
        if cage is None:
            raise CannotRunError("the cluster has just ended")
        _join(cage, _NEW_PID)  # counts for children only
        child = os.fork()
        if child == 0:
            _become(cage, command, user, environment)
    return _follow(child)


def _join(cage: int, namespaces: int) -> None:
    if _libc.setns(cage, namespaces) != 0:
        raise CannotRunError(f"the cage cannot be entered: {os.strerror(ctypes.get_errno())}")


def _become(cage: int, command: Sequence[str], user: _User, environment: Mapping[str, str]) -> None:
    """Never returns: the forked child turns into the command, or ends as a shell would (126, 127)."""
    code = 126
    try:
        _join(cage, _NEW_NS | _NEW_UTS | _NEW_IPC | _NEW_NET)
        os.setgroups([])
        os.setgid(user.number)
        os.setuid(user.number)
        os.chdir(user.home)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # no command outlives the one who waits for it
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the command would inherit that
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.execvpe(command[0], list(command), dict(environment))  # noqa: S606 - there is no shell to want
    except FileNotFoundError:
        code = 127
        os.write(2, f"devcluster: {command[0]}: not found in the cluster\n".encode())
    except (OSError, CannotRunError) as error:
        os.write(2, f"devcluster: {command[0]}: {error}\n".encode())
    finally:
        os._exit(code)


def _follow(child: int) -> int:
    """Wait for the command, handing on what is sent to this process alone."""
    while True:
        info = signal.sigwaitinfo({*_FORWARDED, signal.SIGCHLD})
        if info.si_signo != signal.SIGCHLD:
            if info.si_code <= 0:  # from a process; one from the terminal (Ctrl-C) has reached the command already
                os.kill(child, info.si_signo)
            continue
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else _die_of(-code)


def _die_of(number: int) -> int:
    """End as the command did, so that a calling shell or make sees what happened; the code if that fails."""
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number
