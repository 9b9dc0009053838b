"""What a job's status says of its work outlives whatever happens to the job."""

from __future__ import annotations

import pytest

from tarragon.job.progress import Progress, progress_patch
from tests.plan.world import World, manifest


def running(workers: int = 2) -> World:
    world = World(manifest({"Worker": workers}))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    return world


def report(world: World, done: int, total: int = 1000, pod: str = "dist-worker-0") -> None:
    """What the server of reports writes."""
    uid = world.pods[pod]["metadata"]["uid"] if pod in world.pods else pod
    found = Progress(updated_at=world.now, done=done, total=total, metrics={"loss": "0.5"}, pod_uid=uid)
    world.patch_job({"status": progress_patch("job-1", found)["status"]})


def test_progress_is_kept_by_the_writes_of_the_reconciler() -> None:
    world = running()
    report(world, 10)
    trainer_status = world.job["status"]["trainerStatus"]

    world.exit("dist-worker-0", 0)
    world.settle()

    assert world.conditions()["Succeeded"]
    assert world.status.progress is not None
    assert world.status.progress.done == 10
    assert world.job["status"]["trainerStatus"] == trainer_status


@pytest.mark.parametrize("nonsense", ["x", 5, [], {"at": 3}, {"at": "2026-01-01T00:00:00Z", "done": -1}])
def test_nonsense_instead_of_progress_counts_as_none(nonsense: object) -> None:
    world = running()
    world.patch_job({"status": {"trainerStatus": nonsense, "tarragon": {"progress": nonsense}}})
    world.settle()

    assert world.status.progress is None
