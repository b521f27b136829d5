"""Start-up hygiene: what the common commands must not load, each looked at in a process of its own."""

import subprocess
import sys

import pytest

HEAVY = ("boto3", "botocore", "textual", "pyslurm", "tree_sitter", "ClusterShell", "yaml", "msgspec")

PROBE = """
import sys
from hyp_submit.__main__ import main
sys.argv = ["hyp-submit", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    status = end.code or 0
else:
    status = 0
print("LOADED", status, *sorted({name.partition(".")[0] for name in sys.modules}))
"""


def python(code: str, *arguments: str) -> str:
    """The output of a program in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def loaded(*arguments: str) -> tuple[int, set[str]]:
    """Exit status of hyp-submit with these arguments, and the top-level modules that it loaded."""
    mark, status, *modules = python(PROBE, *arguments).splitlines()[-1].split()
    assert mark == "LOADED"
    return int(status), set(modules)


def test_the_version_is_told_without_a_parser() -> None:
    status, modules = loaded("--version")
    assert (status, modules & {*HEAVY, "typer", "rich"}) == (0, set())


@pytest.mark.parametrize("arguments", [("--help",), ("plan", "--help"), ("submit", "--help")])
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    status, modules = loaded(*arguments)
    assert (status, modules & set(HEAVY), "typer" in modules) == (0, set(), True)


def test_help_loads_no_pydantic() -> None:
    assert "pydantic" not in loaded("--help")[1]


def test_a_plan_on_the_bundled_cluster_needs_neither_aws_nor_slurm_nor_a_screen() -> None:
    status, modules = loaded("plan", "--demo", "-N4", "-p", "gb200", "--json")
    assert (status, modules & {"boto3", "botocore", "textual", "pyslurm", "tree_sitter"}) == (0, set())


def test_the_package_itself_imports_nothing_of_ours() -> None:
    code = "import sys, hyp_submit; print(*sorted(name for name in sys.modules if name.startswith('hyp_submit')))"
    assert python(code).split() == ["hyp_submit"]


def test_the_top_level_folders_are_never_imported_by_their_own_names() -> None:
    code = "import sys, hyp_submit.tui.app; print('hyp_submit.tui' in sys.modules, 'tui' in sys.modules)"
    assert python(code).split() == ["True", "False"]
    assert "tui" not in sys.modules
