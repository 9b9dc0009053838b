"""What the reconciler makes of objects that name the job's uid in a reference, and are not the job's."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tarragon.job.model import ADOPT_ANNOTATION
from tests.defects.scene import running
from tests.plan.test_adoption import foreign
from tests.plan.world import World, is_idle

WRONG = pytest.mark.parametrize(
    "wrong",
    [{"apiVersion": "nowhere.example/v1"}, {"kind": "TfJob"}, {"name": "other"}, {"uid": "job-2"}],
    ids=lambda wrong: next(iter(wrong)),
)


def forged(found: dict[str, Any], name: str, wrong: dict[str, str]) -> dict[str, Any]:
    """A copy of an object of the job, whose reference is wrong in one way."""
    body = copy.deepcopy(found)
    (owner,) = body["metadata"]["ownerReferences"]
    owner.update(wrong)
    body["metadata"] |= {"name": name, "uid": f"forged-{name}"}
    return body


@WRONG
def test_a_forged_pod_neither_ends_nor_restarts_a_job_and_is_not_deleted(wrong: dict[str, str]) -> None:
    world = running({"Worker": 2}, policy="OnFailure")
    for name in ("dist-worker-2", "dist-master-0", "dist-chief-0"):
        world.pods[name] = forged(world.pods["dist-worker-0"], name, wrong)
        world.exit(name, 0)
    world.pods["dist-worker-3"] = forged(world.pods["dist-worker-0"], "dist-worker-3", wrong)
    world.exit("dist-worker-3", 137)

    assert is_idle(world.decide())


@WRONG
def test_a_forged_service_is_not_deleted(wrong: dict[str, str]) -> None:
    world = running({"Worker": 2})
    world.services["dist-worker-7"] = forged(world.services["dist-worker-0"], "dist-worker-7", wrong)

    assert is_idle(world.decide())


@WRONG
def test_a_job_that_is_taken_over_takes_no_forged_pod_with_it(wrong: dict[str, str]) -> None:
    world = foreign()
    world.pods["dist-worker-1"] = forged(world.pods["dist-worker-1"], "dist-worker-1", wrong)
    world.patch_job({"metadata": {"annotations": {ADOPT_ANNOTATION: "true"}}})
    world.settle()

    assert world.status.admission is None
    names = {delete.key.name for delete in world.decide().deletes}
    assert names == set()


@WRONG
def test_a_job_with_none_but_forged_pods_has_not_been_begun_by_another_operator(wrong: dict[str, str]) -> None:
    began = foreign()
    world = World({**began.job, "status": {}})
    world.pods["dist-worker-0"] = forged(began.pods["dist-worker-0"], "dist-worker-0", wrong)

    assert world.decide().status_patch is not None
