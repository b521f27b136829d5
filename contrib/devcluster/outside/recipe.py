"""What the root folder is made of. Its key changes with anything that goes in, so that a cached root is never stale."""

from __future__ import annotations

import hashlib
import json
import platform
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

from outside.errors import CannotRunError

VERSION = 1
"""Count up when anything about building changes that a `Recipe` does not hold."""

SUITE = "testing"

PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "libslurm-dev",
    "munge",
    "python3-venv",
    "python3-dev",
    "gcc",
    "libc6-dev",
    "iproute2",
    "procps",
)

TEST_REQUIREMENTS = ("pytest", "hypothesis")
BUILD_REQUIREMENTS = ("setuptools", "wheel", "packaging", "Cython>=3.1")

PYSLURM = "25.11.2"

PYSLURM_FOR_SLURM: dict[str, tuple[str, ...]] = {
    "25.11": (),
    # No release of pyslurm is for 26.05. Slurm's own switch for old callers brings back what it renamed, except for:
    "26.05": (
        "-DSLURM_BACKWARD_COMPAT",
        "-Dslurm_free_ctl_conf=slurm_free_conf",
        "-DESLURM_ERROR_ON_DESC_TO_RECORD_COPY=2018",
    ),
}
"""Releases of Slurm that pyslurm is known to compile against, each with the compiler flags that this takes."""

USERS = {"alice": 1001, "bob": 1002}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides what is in the root folder."""

    version: int
    machine: str
    suite: str
    packages: tuple[str, ...]
    requirements: tuple[str, ...]
    pyslurm: str

    @property
    def key(self) -> str:
        """Short name of this recipe."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:12]


def current(pyproject: Path) -> Recipe:
    """The recipe for the project as it is in the checkout."""
    try:
        project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
        requirements = tuple(project["dependencies"])
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise CannotRunError(f"{pyproject}: no [project] dependencies ({error}): is the checkout whole?") from error
    return Recipe(
        version=VERSION,
        machine=platform.machine(),
        suite=SUITE,
        packages=PACKAGES,
        requirements=(*requirements, *TEST_REQUIREMENTS),
        pyslurm=PYSLURM,
    )
