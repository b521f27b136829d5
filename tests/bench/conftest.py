"""Benchmarks collect rows, and a table of them is printed last."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench.table import Row, lines

_ROWS: pytest.StashKey[list[Row]] = pytest.StashKey()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[Row], None]:
    """Takes a row for the table."""
    return request.config.stash.setdefault(_ROWS, []).append


@pytest.hookimpl(tryfirst=True)
def pytest_benchmark_group_stats() -> list[object]:
    """No table of pytest-benchmark's: a race's own length says nothing about who won it."""
    return []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table."""
    rows = terminalreporter.config.stash.get(_ROWS, [])
    if rows:
        terminalreporter.section("ratios: best of several rounds, all in this run")
        for line in lines(rows):
            terminalreporter.line(line)
