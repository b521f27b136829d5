"""Which reader is chosen and why, and the text reader, with stand-ins for what a real Slurm cannot be made to show.

Everything happens in processes of its own: a pyslurm that ends or hangs its process must not do so to hyp-submit.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

WATCHDOG = 60
"""Seconds after which a process hangs; nothing here takes a tenth of it."""

CHOOSE = """
from hyp_submit import slurm
slurm.PROBE_TIMEOUT = 2.0
try:
    print(slurm.choose())
    print(slurm.choose())
except slurm.HypSubmitError as error:
    print(f"{type(error).__name__}: {error}")
"""

READ = """
import json
from datetime import UTC, datetime
from hyp_submit import slurm, snapshots
try:
    reading = slurm.read(lambda: datetime(2026, 1, 1, tzinfo=UTC))
except slurm.HypSubmitError as error:
    print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
else:
    cluster = reading.cluster
    print(json.dumps({
        "reader": reading.choice.reader,
        "why": reading.choice.why,
        "notes": reading.notes,
        "cluster": json.loads(snapshots.dump(cluster)),
        "kinds": {one.name: cluster.topology_of(one).kind for one in cluster.partitions},
    }))
"""

GOOD = """
import pathlib
with open(pathlib.Path(__file__).with_name("imported"), "a") as file:
    file.write("x")
class RPCError(Exception): pass
class Config:
    load = staticmethod(lambda: None)
class slurmctld: Config = Config
Nodes = Partitions = Jobs = Config
"""
"""A pyslurm that gets everything it asks for, and counts how often it is imported."""


@dataclass
class Site:
    """A host with Slurm's configuration, its commands as stand-ins, and perhaps a pyslurm."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def configuration(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def package(self) -> Path:
        return self.folder / "lib/pyslurm/__init__.py"

    @property
    def verdicts(self) -> Path:
        return self.folder / "cache/hyp-submit/readers.json"

    @property
    def imports(self) -> int:
        """How often pyslurm was imported."""
        counter = self.package.with_name("imported")
        return len(counter.read_text()) if counter.exists() else 0

    def command(self, name: str, script: str) -> None:
        """Put a shell script in PATH."""
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def pyslurm(self, source: str, version: str = "25.11.2") -> None:
        """Install a pyslurm."""
        self.package.parent.mkdir(parents=True, exist_ok=True)
        self.package.write_text(source)
        about = self.folder / f"lib/pyslurm-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pyslurm\nVersion: {version}\n")

    def python(self, program: str) -> str:
        environment = {
            "PATH": f"{self.folder}/bin:/usr/bin:/bin",
            "PYTHONPATH": str(self.folder / "lib"),
            "SLURM_CONF": str(self.configuration),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.variables,
        }
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={name: value for name, value in environment.items() if value},
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=WATCHDOG,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def choose(self) -> str:
        """The choice as printed, or the error; asked twice in one process."""
        lines = self.python(CHOOSE).splitlines()
        assert len(set(lines)) == 1
        return lines[0]

    def read(self) -> Mapping[str, object]:
        answer: Mapping[str, object] = json.loads(self.python(READ))
        return answer


def text(why: str) -> str:
    return f"Choice(reader='text', why='{why}')"


def pyslurm(why: str) -> str:
    return f"Choice(reader='pyslurm', why='{why}')"


WORKS = pyslurm("pyslurm 25.11.2, for Slurm 25.11.7")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Slurm 25.11.7, and no pyslurm."""
    for name in ("bin", "lib"):
        (tmp_path / name).mkdir()
    site = Site(tmp_path)
    site.configuration.write_text("ClusterName=c\n")
    site.command("scontrol", '[ "$*" = --version ] && echo slurm 25.11.7')
    return site


# --- the choice ----------------------------------------------------------------------------------------------------


def test_without_pyslurm_it_is_text(site: Site) -> None:
    (site.folder / "lib/sitecustomize.py").write_text(
        "import sys; sys.modules['pyslurm'] = None\n"
    )  # one of the host's
    assert site.choose() == text("pyslurm is not installed")
    assert not site.verdicts.exists()


def test_a_pyslurm_that_works_is_tried_once_and_remembered(site: Site) -> None:
    site.pyslurm(GOOD)
    assert (site.choose(), site.imports) == (WORKS, 1)
    assert (site.choose(), site.imports) == (WORKS, 1)


def test_it_is_tried_again_when_anything_about_it_changes(site: Site) -> None:
    site.pyslurm(GOOD)
    site.choose()
    for count, path in enumerate((site.configuration, site.package, site.folder / "bin/scontrol"), start=2):
        os.utime(path, ns=(time.time_ns(), time.time_ns()))
        assert (site.choose(), site.imports) == (WORKS, count)
    site.variables["SLURM_CONF"] = str(site.folder / "other.conf")
    (site.folder / "other.conf").touch()
    assert (site.choose(), site.imports) == (WORKS, 5)


def test_a_pyslurm_for_another_slurm_is_not_even_imported(site: Site) -> None:
    site.pyslurm(GOOD, "24.11.0")
    assert site.choose() == text("pyslurm 24.11.0 is built for another Slurm than 25.11.7")
    assert site.imports == 0


def test_releases_are_compared_as_numbers(site: Site) -> None:
    site.command("scontrol", "echo slurm-wlm 26.05.5")
    site.pyslurm(GOOD, "26.5.0")
    assert site.choose() == pyslurm("pyslurm 26.5.0, for Slurm 26.05.5")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import sys; sys.exit('fatal: Unable to process configuration file')", "1: fatal: Unable to process"),
        ("import os; os.kill(os.getpid(), 11)", "-11: "),
        ("raise ImportError('libslurm.so.44: cannot open shared object file')", "1: "),
        ("class RPCError(Exception): pass", "1: AttributeError: module "),
    ],
)
def test_a_pyslurm_that_ends_its_process_is_given_up(site: Site, source: str, why: str) -> None:
    site.pyslurm(source)
    first = site.choose()
    assert first.startswith("Choice(reader='text', why=")
    assert f"pyslurm 25.11.2 ends with {why}" in first
    site.package.write_text(GOOD)
    os.utime(site.package, ns=(0, 0))
    assert site.choose() == WORKS


def test_a_pyslurm_that_hangs_is_given_up_for_now(site: Site) -> None:
    site.pyslurm("import time; time.sleep(60)")
    assert site.choose() == text("pyslurm 25.11.2 gives no answer in 2 s")
    assert not site.verdicts.exists()


def test_while_slurmctld_is_away_nothing_is_remembered(site: Site) -> None:
    site.pyslurm(f"{GOOD}\ndef away(): raise RPCError('Unable to contact slurm controller')\nConfig.load = away\n")
    assert (site.choose(), site.imports) == (WORKS, 1)
    assert (site.choose(), site.imports) == (WORKS, 2)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"a": 5}', '{"a": ["best", "x"]}', "\xff"])
def test_a_file_of_verdicts_that_is_not_ours_is_overwritten(site: Site, content: str) -> None:
    site.pyslurm(GOOD)
    site.verdicts.parent.mkdir(parents=True)
    site.verdicts.write_text(content, encoding="latin-1")
    assert site.choose() == WORKS
    assert list(json.loads(site.verdicts.read_text()).values()) == [["pyslurm", "pyslurm 25.11.2, for Slurm 25.11.7"]]


def test_only_the_newest_verdicts_are_kept(site: Site) -> None:
    site.pyslurm(GOOD)
    site.verdicts.parent.mkdir(parents=True)
    site.verdicts.write_text(json.dumps({f"{number}": ("text", "old") for number in range(40)}))
    site.choose()
    kept = list(json.loads(site.verdicts.read_text()).items())
    assert (len(kept), kept[0][0], kept[-1][1][0]) == (16, "25", "pyslurm")


@pytest.mark.parametrize("home", [{"XDG_CACHE_HOME": "/proc/none"}, {"XDG_CACHE_HOME": "", "HOME": "/proc/none"}])
def test_a_home_that_cannot_be_written_to_is_no_trouble(site: Site, home: dict[str, str]) -> None:
    site.pyslurm(GOOD)
    site.variables |= home
    assert (site.choose(), site.choose(), site.imports) == (WORKS, WORKS, 2)


@pytest.mark.parametrize("reader", ["pyslurm", "text"])
def test_the_reader_can_be_fixed(site: Site, reader: str) -> None:
    site.pyslurm(GOOD)
    site.variables["HYP_SUBMIT_READER"] = reader
    assert site.choose() == f"Choice(reader='{reader}', why='HYP_SUBMIT_READER={reader}')"
    assert site.imports == 0


def test_a_reader_that_there_is_not_is_a_usage_error(site: Site) -> None:
    site.variables["HYP_SUBMIT_READER"] = "json"
    assert site.choose() == "UsageError: HYP_SUBMIT_READER=json: it can be pyslurm or text"


def test_without_scontrol_neither_reader_works(site: Site) -> None:
    site.pyslurm(GOOD)
    (site.folder / "bin/scontrol").unlink()
    site.variables["PATH"] = str(site.folder / "bin")
    assert site.choose() == "Unreadable: scontrol is not in PATH: load Slurm's module, or add its bin folder"


def test_without_a_configuration_nothing_is_tried(site: Site) -> None:
    site.pyslurm(GOOD)
    site.configuration.unlink()
    assert site.choose().startswith(
        f"Unreadable: SLURM_CONF names {site.configuration}, which is no file: use --snapshot"
    )
    assert site.imports == 0


def test_a_configless_client_is_configured_by_its_server(site: Site) -> None:
    site.pyslurm(GOOD)
    site.variables |= {"SLURM_CONF": "", "SLURM_CONF_SERVER": "head:6817"}
    assert site.choose() == WORKS


# --- reading by text -----------------------------------------------------------------------------------------------

OLD_SCONTROL = r"""
case "$*" in
*"show nodes --oneliner")
    echo "NodeName=n1 Gres=gpu:8 State=IDLE+CLOUD AllocTRES= "
    echo "NodeName=n2 Gres=gpu:8 State=ALLOCATED+CLOUD AllocTRES=cpu=8,gres/gpu=8 " ;;
*"show partition --oneliner") echo "PartitionName=dev Default=YES Nodes=n[1-2] State=UP" ;;
*"show config") printf 'ClusterName = old\nSLURM_VERSION = 24.05.2\n' ;;
*"show topoconf") echo "invalid entity:topoconf for keyword:show" >&2; exit 1 ;;
*"show topology")
    echo "BlockName=us1 BlockIndex=0 Nodes=n1"
    echo "BlockName=us2 BlockIndex=1 Nodes=n2" ;;
--version) echo slurm 24.05.2 ;;
esac
"""
OLD_SQUEUE = r"""
for format; do :; done
case "$format" in
*SegmentSize*) echo "squeue: error: Invalid job format specification: SegmentSize" >&2; exit 1 ;;
esac
mark=${format##*:0}
printf "7%s7%sN/A%sN/A%sN/A%sana%sdev%sRUNNING%sn2%s1%s1796047200%s1796050800%s1:00:00%s9%sNone%sa b%s\n" \
    $mark $mark $mark $mark $mark $mark $mark $mark $mark $mark $mark $mark $mark $mark $mark $mark
"""
"""Slurm 24.05: no `show topoconf`, no block sizes, no SegmentSize."""


@pytest.fixture
def old(site: Site) -> Site:
    site.command("scontrol", OLD_SCONTROL)
    site.command("squeue", OLD_SQUEUE)
    site.variables["HYP_SUBMIT_READER"] = "text"
    return site


def test_a_slurm_with_one_topology_for_all(old: Site) -> None:
    answer = old.read()
    cluster = answer["cluster"]
    assert isinstance(cluster, dict)
    assert answer["notes"] == ["this squeue does not tell the segment sizes of jobs"]
    assert (cluster["cluster"], cluster["slurm_version"]) == ("old", "24.05.2")
    assert cluster["topologies"] == [
        {
            "name": "default",
            "kind": "block",
            "block_sizes": [1],
            "blocks": [{"name": "us1", "nodes": "n1"}, {"name": "us2", "nodes": "n2"}],
        }
    ]
    assert answer["kinds"] == {"dev": "block"}
    assert cluster["jobs"] == [
        {
            "id": 7,
            "user": "ana",
            "name": "a b",
            "partition": "dev",
            "state": "RUNNING",
            "nodes": "n2",
            "node_count": 1,
            "start_time": "2026-11-30T14:00:00Z",
            "end_time": "2026-11-30T15:00:00Z",
            "priority": 9,
        }
    ]


def test_a_pyslurm_that_fails_in_use_leaves_it_to_text(old: Site) -> None:
    old.pyslurm(GOOD, "24.5.1")
    old.variables["HYP_SUBMIT_READER"] = ""
    answer = old.read()
    assert answer["reader"] == "text"
    assert answer["why"] == "pyslurm failed: FileNotFoundError: no libslurm in this process"
    notes = answer["notes"]
    assert isinstance(notes, list)
    assert notes[0] == f"{answer['why']}; read from scontrol and squeue"


def test_a_pyslurm_that_is_wanted_and_fails_is_an_error(old: Site) -> None:
    old.pyslurm("raise TypeError('no')", "24.5.1")
    old.variables["HYP_SUBMIT_READER"] = "pyslurm"
    assert old.read() == {
        "error": "Unreadable: pyslurm failed: TypeError: no; HYP_SUBMIT_READER allows no other reader"
    }


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (
            "slurm_load_node error: Unable to contact slurm controller (connect failure)",
            "Transient: slurmctld does not answer: slurm_load_node error: Unable to contact",
        ),
        (
            "slurm_load_node error: Socket timed out",
            "Transient: slurmctld does not answer: slurm_load_node error: Socket",
        ),
        (
            "slurm_load_node error: Access/permission denied",
            "Unreadable: slurm_load_node error: Access/permission denied: ",
        ),
        ("scontrol: error: odd", "Transient: scontrol failed: scontrol: error: odd"),
    ],
)
def test_what_scontrol_says_when_it_fails(old: Site, said: str, error: str) -> None:
    old.command("scontrol", f"echo '{said}' >&2; exit 1")
    assert str(old.read()["error"]).startswith(error)


def test_without_squeue_there_is_one_line(old: Site) -> None:
    (old.folder / "bin/squeue").unlink()
    old.variables["PATH"] = str(old.folder / "bin")
    assert old.read() == {"error": "Unreadable: squeue is not in PATH: load Slurm's module, or add its bin folder"}


def test_hostile_bytes_are_replaced(old: Site) -> None:
    old.command("squeue", OLD_SQUEUE.replace("a b", r"\377\033[31m\303"))
    cluster = old.read()["cluster"]
    assert isinstance(cluster, dict)
    assert cluster["jobs"][0]["name"] == "\ufffd\x1b[31m\ufffd"
