"""Clusters by name: starts their cages, finds them again, ends them.

All that a cluster leaves outside its namespaces is one folder under /run with a record of its processes.
"""

from __future__ import annotations

import fcntl
import json
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from outside.errors import CannotRunError, DevclusterError, MisuseError
from outside.processes import Process
from outside.progress import step
from outside.records import SCALE_SCENARIO, STATE, Record, Settings, read, write
from outside.root import REPO, VENV_PYTHON

_HERE = Path(__file__).resolve().parent.parent
_REPO = _HERE.parent.parent
_INPUTS_INSIDE = "/etc/devcluster"
_LAYOUT_INSIDE = f"{_INPUTS_INSIDE}/layout.yaml"
_SCALE_INSIDE = f"{_INPUTS_INSIDE}/scale.yaml"
"""The scenario that the cage makes beside the large layout."""
_BOOT_PATIENCE = 180.0
"""Seconds without any news from a booting cage after which it is given up; its own deadlines are shorter."""
_KILL_PATIENCE = 30.0
_LOG_LINES = 15
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NEEDED = ("unshare", "setpriv", "mount", "pivot_root")
_UNSHARE = ("unshare", "--mount", "--uts", "--net", "--ipc", "--pid", "--fork", "--kill-child")
_NO_CAGE = (
    "no cage can be made here: it takes a machine (or a container with --privileged) where root may make "
    "namespaces and overlay mounts"
)


@contextmanager
def locked() -> Iterator[None]:
    """Only one process starts or ends clusters at a time."""
    STATE.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (STATE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def check_machine() -> None:
    """Raises `CannotRunError` with the remedy where no cage can be made; takes milliseconds."""
    missing = [program for program in _NEEDED if not shutil.which(program)]
    if missing:
        raise CannotRunError(f"{', '.join(missing)} missing: install the packages util-linux and mount")
    probe = subprocess.run([*_UNSHARE, "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        raise CannotRunError(f"{_NO_CAGE}: {probe.stderr.strip()}")


def start(name: str, root: Path, settings: Settings) -> Record:
    """Boot a cluster whose name is free; returns when it serves. To be called with `locked`.

    Raises `MisuseError` or `CannotRunError`; nothing is left then, nor after an interruption.
    """
    folder = STATE / name
    with ExitStack() as undo:
        undo.callback(end, name)
        arguments = _lay_inputs(folder / "inputs", settings)
        (folder / "cage").mkdir()
        log = folder / "boot.log"
        with log.open("wb") as errors:
            holder = subprocess.Popen(
                _cage_argv(name, root, folder, arguments),
                bufsize=0,  # a line read ahead would be missed when waiting for the next
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C here is for this process to act on
                env={"PATH": _PATH},
            )
        undo.callback(_end_holder, holder)
        assert holder.stdout is not None  # noqa: S101
        with holder.stdout as output:
            boot = _Boot(output, log)
            record = Record(name, boot.init(), Process.of(holder.pid), str(root), settings)
            write(record)  # so that one who comes after an accident finds what to end
            try:
                record = _follow_boot(boot, record)
            except MisuseError as error:
                raise MisuseError(_with_outer_paths(str(error), settings)) from None
        write(record)
        undo.pop_all()
    return record


def end(name: str) -> bool:
    """End a cluster and take away all that is left of it. To be called with `locked`. False if there was nothing."""
    folder = STATE / name
    if not folder.is_dir():
        return False
    record = read(name)
    if record is not None:
        for process in (record.init, record.holder):
            if not process.kill(_KILL_PATIENCE):
                raise DevclusterError(f"process {process.pid} of cluster {name!r} does not end, even by SIGKILL")
    shutil.rmtree(folder)
    return True


def _end_holder(holder: subprocess.Popen[bytes]) -> None:
    """With it the cage ends (--kill-child)."""
    holder.kill()
    holder.wait()


def _files(settings: Settings) -> dict[str, str]:
    """What the cage is to read: path inside -> path outside."""
    files = {_LAYOUT_INSIDE: settings.layout} if settings.layout else {}
    if settings.scenario_file:
        files[f"{_INPUTS_INSIDE}/scenarios/{settings.scenario_file.name}"] = settings.scenario
    return files


def _with_outer_paths(message: str, settings: Settings) -> str:
    for inside, outside in _files(settings).items():
        message = message.replace(inside, outside)
    return message


def _lay_inputs(inputs: Path, settings: Settings) -> list[str]:
    """Put the files that the cage is to read into `inputs`, and return the arguments of the program in it."""
    (inputs / "scenarios").mkdir(parents=True)
    scenario = settings.scenario
    if settings.scale is not None and scenario == SCALE_SCENARIO:
        scenario = _SCALE_INSIDE
    for inside, outside in _files(settings).items():
        shutil.copyfile(outside, inputs / Path(inside).relative_to(_INPUTS_INSIDE))
        if outside == settings.scenario:
            scenario = inside
    return [
        f"--layout={_LAYOUT_INSIDE}",
        f"--scenario={scenario}",
        f"--step-layout={settings.step_layout}",
        *([f"--speed={settings.speed}"] if settings.speed else []),
        *([] if settings.scale is None else [f"--scale={settings.scale}"]),
    ]


def _cage_argv(name: str, root: Path, folder: Path, arguments: list[str]) -> list[str]:
    cage = ("sh", str(_HERE / "cage.sh"), str(root), str(folder / "cage"), str(_REPO), f"devcluster-{name}")
    environment = (f"PATH={_PATH}", "HOME=/root", "LANG=C.UTF-8", f"PYTHONPATH={REPO}/{_HERE.relative_to(_REPO)}")
    boot = ("/usr/bin/env", "--ignore-environment", *environment, VENV_PYTHON, "-m", "inside.boot", *arguments)
    return [*_UNSHARE, *cage, str(folder / "inputs"), *boot]


class _Boot:
    """What a booting cage says, line by line: `pid N`, then `step TEXT` any number of times, then how it came out.

    That is `ready` with what a `Record` lacks, or `failed` or `refused` (its input is wrong) with the reason, as JSON.
    """

    def __init__(self, output: IO[bytes], log: Path) -> None:
        self._output = output
        self._log = log
        self._began = False

    def init(self) -> Process:
        """The cage's PID 1, as soon as there is one. Raises `CannotRunError`."""
        _, pid = self.expect("pid")
        try:
            return Process.of(int(pid))
        except ProcessLookupError:
            raise CannotRunError(f"{_NO_CAGE}:\n{self._tail()}") from None

    def expect(self, *kinds: str) -> tuple[str, str]:
        """The next line as (kind, text). Raises `MisuseError` or `CannotRunError` where it says so or falls silent."""
        if not select.select([self._output], [], [], _BOOT_PATIENCE)[0]:
            raise CannotRunError(f"the cage has said nothing for {_BOOT_PATIENCE:.0f} s; its log ends:\n{self._tail()}")
        kind, _, text = self._output.readline().decode().strip().partition(" ")
        if kind == "failed":
            raise CannotRunError(json.loads(text))
        if kind == "refused":
            raise MisuseError(json.loads(text))
        if kind not in kinds:
            raise CannotRunError(f"{'the cage ended while it booted' if self._began else _NO_CAGE}:\n{self._tail()}")
        self._began |= kind == "step"
        return kind, text

    def _tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])


def _follow_boot(boot: _Boot, record: Record) -> Record:
    """Show the steps of a boot; returns the cluster as it is when it serves."""
    kind, text = boot.expect("step", "ready")
    while kind == "step":
        with step(text):
            kind, text = boot.expect("step", "ready")
    return record._replace(ready=True, **json.loads(text))
