"""Files of the user's and of ours: scripts, snapshots, framework profiles. All reading of files is here."""

from __future__ import annotations

import os
from importlib.resources import files as package_files
from pathlib import Path

from hyp_submit import decode, snapshots
from hyp_submit.errors import UsageError
from hyp_submit.model import Cluster, Framework

MAX_SCRIPT = 4 << 20
MAX_SNAPSHOT = 512 << 20
"""Bytes; larger files are taken for a mistake (a model given in place of a script)."""


def script(path: str) -> str:
    """The text of a user's script; bytes that are not UTF-8 are replaced, as nothing that we look for needs them."""
    return _read(Path(path), MAX_SCRIPT).decode("utf-8", "replace")


def snapshot(path: str) -> Cluster:
    """The cluster of a snapshot file."""
    return snapshots.load(_read(Path(path), MAX_SNAPSHOT), path)


def demo() -> Cluster:
    """The bundled cluster: GB200 blocks, a p5 tree and CPU nodes, with jobs, drains and instance groups."""
    return snapshots.load((package_files("hyp_submit") / "demo.json").read_bytes(), "demo.json")


def frameworks() -> tuple[Framework, ...]:
    """The framework profiles: the bundled ones, and those of ~/.config/hyp-submit/profiles/frameworks over them."""
    found: dict[str, Framework] = {}
    bundled = package_files("hyp_submit") / "profiles" / "frameworks"
    for entry in sorted(bundled.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".yaml"):
            found[entry.name] = decode.framework(entry.read_text("utf-8"), entry.name)
    for path in sorted(config_home().glob("profiles/frameworks/*.yaml")):
        found[path.name] = decode.framework(_read(path, MAX_SCRIPT).decode("utf-8", "replace"), str(path))
    return tuple(found.values())


def config_home() -> Path:
    """~/.config/hyp-submit, or where XDG_CONFIG_HOME puts it; need not exist."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111  no HOME: stays as it is
    return Path(base) / "hyp-submit"


def _read(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the name
        raise UsageError(f"{str(path)!r}: {error}") from error
    if len(content) > limit:
        raise UsageError(f"{path}: larger than {limit >> 20} MiB, which no such file is")
    return content
