"""Tests marked `slurm` drive a real Slurm (contrib/devcluster), and run where asked for: pytest --slurm, make test."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slurm", action="store_true", help="run the tests against the devcluster's real Slurm")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slurm"):
        return
    skip = pytest.mark.skip(reason="needs a real Slurm: pytest --slurm")
    for item in items:
        if "slurm" in item.keywords:
            item.add_marker(skip)
