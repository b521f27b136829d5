"""The queue as `jobs` shows it."""

from dataclasses import replace
from typing import Any

import pytest
from factories import NOW, block_cluster, minutes

from hyp_submit import queue
from hyp_submit.model import Job
from hyp_submit.views import picture

RUNNING = Job(7, "alice", "train", "part", "RUNNING", ("n1", "n2"), 2, NOW, minutes(60), 2, 10)
WAITING = Job(8, "bob", "eval", "part,other", "PENDING", node_count=4, reason="Resources")


def labels(*jobs: Job) -> list[tuple[str, int]]:
    return [(entry.label, entry.tasks) for entry in queue.entries(jobs)]


def task(number: str, **fields: Any) -> Job:
    """A task of array 40, or what is left of it."""
    return replace(RUNNING, **{"id": 40, "array": 40, "task": number, **fields})


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ((RUNNING, WAITING), [("7", 1), ("8", 1)]),
        ((task("3"),), [("40_3", 1)]),
        ((task("3"), task("1"), task("2")), [("40_[1-3]", 3)]),
        ((task("1"), task("4-20%3", state="PENDING", nodes=())), [("40_1", 1), ("40_[4-20%3]", 1)]),
        ((task("1"), RUNNING, task("2")), [("40_[1-2]", 2), ("7", 1)]),
        ((task("1"), task("1", array=41)), [("40_1", 1), ("41_1", 1)]),
        (
            (replace(RUNNING, het=5, het_offset=0), replace(RUNNING, id=9, het=5, het_offset=1)),
            [("5+0", 1), ("5+1", 1)],
        ),
    ],
)
def test_arrays_are_folded_and_components_named(jobs: tuple[Job, ...], expected: list[tuple[str, int]]) -> None:
    assert labels(*jobs) == expected


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ({}, [7, 8]),
        ({"user": "alice"}, [7]),
        ({"partition": "other"}, [8]),
        ({"partition": "part"}, [7, 8]),
        ({"state": "pend"}, [8]),
        ({"state": "RUNNING", "user": "bob"}, []),
    ],
)
def test_jobs_are_selected(wanted: dict[str, str], ids: list[int]) -> None:
    assert [job.id for job in queue.select([RUNNING, WAITING], **wanted)] == ids


def test_an_entry_knows_the_blocks_that_it_is_in() -> None:
    drawn = picture(replace(block_cluster("....", "...."), jobs=(job := replace(RUNNING, nodes=("n3", "n4", "n5")),)))
    assert queue.places(drawn, queue.entries([job])[0]) == {"b1": 2, "b2": 1}


def test_the_table_has_a_row_an_entry() -> None:
    cluster = replace(block_cluster("....", "...."), jobs=(RUNNING, WAITING))
    rows = queue.jobs(picture(cluster), queue.entries(cluster.jobs), NOW)
    assert ["".join(cell for cell, _ in row).rstrip() for row in rows] == [
        "JOB  USER   NAME   PARTITION   STATE    NODES  SEG  LEFT / WAITS FOR  WHERE",
        "7    alice  train  part        RUNNING      2    2  1 h 0 min left    b1 2",
        "8    bob    eval   part,other  PENDING      4       Resources",
    ]


def test_an_empty_queue_has_its_heading() -> None:
    rows = list(queue.jobs(picture(block_cluster("..")), [], NOW))
    assert ["".join(cell for cell, _ in row).split() for row in rows] == [
        ["JOB", "USER", "NAME", "PARTITION", "STATE", "NODES", "SEG", "LEFT", "/", "WAITS", "FOR", "WHERE"]
    ]


def test_json_of_a_job() -> None:
    cluster = replace(block_cluster("....", "...."), jobs=(RUNNING,))
    (job,) = queue.jobs_json(picture(cluster), queue.entries(cluster.jobs))["jobs"]
    assert job == {
        "label": "7",
        "id": 7,
        "array": None,
        "het": None,
        "tasks": 1,
        "user": "alice",
        "name": "train",
        "partition": "part",
        "state": "RUNNING",
        "node_count": 2,
        "nodes": ["n1", "n2"],
        "segment_size": 2,
        "places": {"b1": 2},
        "priority": 10,
        "start_time": "2026-11-30T14:00:00Z",
        "end_time": "2026-11-30T15:00:00Z",
        "reason": None,
    }
