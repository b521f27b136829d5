"""What is on record about clusters, whichever process started them: one folder each, with a file, under /run.

Kept light: `exec` reads it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from outside.errors import CannotRunError, MisuseError
from outside.processes import Process

STATE = Path("/run/hyp-submit-devcluster")
DEFAULT_NAME = "dev"
DEFAULT_SCENARIO = "ready"
SCALE_SCENARIO = "scale"
"""The large cluster's: made inside, as its layout is."""
SCALE_JOBS = 2000

STEP_LAYOUTS = ("25.11", "26.05")
"""Releases of Slurm whose order of a step's tasks can be had; the first is HyperPod's."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


class Settings(NamedTuple):
    """How a cluster is started: absolute paths outside; `scenario` may be a bare name, and `speed` None for its own.

    `layout` is None where `scale` is not.
    """

    scenario: str
    speed: float | None
    layout: str | None
    step_layout: str
    scale: int | None = None
    """Jobs that the large cluster, whose layout is made inside, begins with; None where it is not asked for."""

    @property
    def scenario_file(self) -> Path | None:
        """The file that was named, None for a scenario that comes with the emulator."""
        return Path(self.scenario) if "/" in self.scenario else None


class Record(NamedTuple):
    """A cluster that was started. `init` is its PID 1, `holder` the unshare above that; not `ready` = still booting."""

    name: str
    init: Process
    holder: Process
    root: str
    settings: Settings
    ready: bool = False
    cluster: str = ""
    nodes: int = 0
    jobs: int = 0
    api_port: int = 0

    def alive(self) -> bool:
        """Whether its cage is there."""
        return self.init.alive()

    def serves(self) -> bool:
        """Whether it is there and has come up."""
        return self.ready and self.alive()


def check_name(name: str) -> str:
    """The name, if it can be one. Raises `MisuseError`."""
    if not _NAME.fullmatch(name):
        raise MisuseError(f"--name {name}: at most 31 lower-case letters, digits and hyphens, a hyphen not first")
    return name


def read(name: str) -> Record | None:
    """What is recorded under a name, whether or not it still runs. Raises `CannotRunError` for a record not of ours."""
    path = STATE / name / "record.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        processes = {key: Process(**raw[key]) for key in ("init", "holder")}
        return Record(**{**raw, **processes, "settings": Settings(**raw["settings"])})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CannotRunError(
            f"{path}: of another version of devcluster ({error}): end the cluster with that one, "
            f"or kill its unshare process and remove {path.parent}"
        ) from error


def running(name: str) -> Record:
    """The cluster of this name. Raises `CannotRunError` if it does not run."""
    record = read(check_name(name))
    if record is None or not record.serves():
        raise CannotRunError(f"no cluster {name!r} runs: start it with devcluster up{option(name)}")
    return record


def option(name: str) -> str:
    """What to write after a command for it to mean this cluster."""
    return "" if name == DEFAULT_NAME else f" --name {name}"


def names() -> list[str]:
    """Every name that has a folder."""
    return sorted(path.name for path in STATE.iterdir() if path.is_dir()) if STATE.is_dir() else []


def write(record: Record) -> None:
    """Put a cluster on record, in its folder, which is there already."""
    partial = STATE / record.name / ".record.json.new"
    partial.write_text(json.dumps(_plain(record)), encoding="utf-8")
    partial.replace(STATE / record.name / "record.json")


def _plain(record: Record) -> dict[str, object]:
    return {
        **record._asdict(),
        "init": record.init._asdict(),
        "holder": record.holder._asdict(),
        "settings": record.settings._asdict(),
    }
