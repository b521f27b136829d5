"""The devcluster as tests use it: clusters by name, and commands run in them."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, str(ROOT / "contrib/devcluster/devcluster")]
EXAMPLE = "/opt/hyp-submit/contrib/examples/megatron-moe.sbatch"
"""The example as a cluster sees it."""
WATCHDOG = 120
"""Seconds after which a command hangs; nothing here takes a tenth of it."""

Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class DevCluster:
    """A running cluster."""

    name: str

    def argv(self, *command: str, root: bool = False) -> list[str]:
        return [*PROGRAM, "exec", "--name", self.name, *(["--root"] if root else []), "--", *command]

    def run(self, *command: str, root: bool = False, check: bool = False) -> Done:
        """Run a command as alice, or as root; text in, text out."""
        done = subprocess.run(
            self.argv(*command, root=root), capture_output=True, text=True, timeout=WATCHDOG, check=False
        )
        if check and done.returncode:
            raise AssertionError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def out(self, *command: str, root: bool = False) -> str:
        """The output of a command that must succeed."""
        return self.run(*command, root=root, check=True).stdout.strip()

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(self.argv(*command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def job(self, job_id: str) -> dict[str, str]:
        """A job's fields as slurmctld has them."""
        return dict(re.findall(r"(\S+?)=(\S*)", self.out("scontrol", "show", "job", job_id)))

    def job_nodes(self, job_id: str) -> set[str]:
        return set(self.out("scontrol", "show", "hostnames", self.job(job_id)["NodeList"]).split())

    def queue(self) -> list[str]:
        """The ids of all jobs that slurmctld remembers."""
        return self.out("squeue", "--noheader", "--states=all", "--format=%A").split()


@contextmanager
def devcluster(name: str, *options: str) -> Iterator[DevCluster]:
    """A cluster for the time of a test."""
    subprocess.run([*PROGRAM, "down", "--name", name], capture_output=True, timeout=WATCHDOG, check=False)
    up = subprocess.run(
        [*PROGRAM, "up", "--name", name, *options], capture_output=True, text=True, timeout=WATCHDOG, check=False
    )
    assert up.returncode == 0, up.stderr
    try:
        yield DevCluster(name)
    finally:
        subprocess.run([*PROGRAM, "down", "--name", name], capture_output=True, timeout=WATCHDOG, check=True)


def block_of(nodes: Sequence[str] | set[str]) -> set[str]:
    """The blocks of the layout that the nodes are in."""
    layout = yaml.safe_load((ROOT / "contrib/devcluster/layout.yaml").read_text())
    return {block for block, members in layout["blocks"].items() if set(members) & set(nodes)}


def plan_json(text: str) -> dict[str, object]:
    document = json.loads(text)
    assert isinstance(document, dict)
    return document
