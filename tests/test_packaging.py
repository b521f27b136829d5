"""What the wheel and the sdist hold, compared with the checkout: the two linked folders are what can get lost."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytest.importorskip("hatchling", reason="building needs hatchling, the project's build backend")


def below(folder: Path) -> set[str]:
    """The files below a folder of the checkout, links followed, without what Python leaves there."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def package() -> set[str]:
    """The files that the package must have, by their names in it."""
    own = {name for name in below(ROOT / "hyp_submit") if not name.startswith(("tui/", "profiles/"))}
    linked = {f"{folder}/{name}" for folder in ("tui", "profiles") for name in below(ROOT / folder)}
    return own | linked


def build(kind: str, source: Path, to: Path) -> Path:
    """Build a wheel or an sdist from a source tree, through the hook that pip calls."""
    code = f"import sys, hatchling.build; print(hatchling.build.build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(to)], cwd=source, capture_output=True, text=True, timeout=120, check=True
    )
    return to / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


def wheel_files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def of_package(names: set[str]) -> set[str]:
    return {name.removeprefix("hyp_submit/") for name in names if name.startswith("hyp_submit/")}


def test_the_linked_folders_are_links_in_the_checkout() -> None:
    for name in ("tui", "profiles"):
        link = ROOT / "hyp_submit" / name
        assert (link.is_symlink(), str(link.readlink())) == (True, f"../{name}")
        assert not (ROOT / name).is_symlink()


def test_the_package_holds_what_it_cannot_do_without() -> None:
    assert {"py.typed", "demo.json", "cli.py", "tui/app.py", "profiles/frameworks/megatron.yaml"} <= package()


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    names = wheel_files(build("wheel", ROOT, tmp_path))
    assert of_package(names) == package()
    version = next(name for name in names if name.endswith("/METADATA")).partition("/")[0]
    assert {name for name in names if not name.startswith("hyp_submit/")} == {
        f"{version}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    }


def test_the_sdist_holds_the_linked_folders_as_files(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2]: member for member in archive.getmembers()}
    assert of_package(set(members)) == package()
    assert {"LICENSE", "README.md", "pyproject.toml"} <= set(members)
    assert [name for name, member in members.items() if member.issym() or member.islnk()] == []


def test_the_wheel_of_the_sdist_is_the_same(sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path)  # noqa: S202  our own; `filter` came with Python 3.11.4
    (source,) = tmp_path.iterdir()
    assert of_package(wheel_files(build("wheel", source, tmp_path))) == package()
