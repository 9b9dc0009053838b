"""Before v1alpha2 all names have the runtime id in them: whatever becomes of spec.RuntimeId, a job keeps its own."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.job.model import GENERATION_ANNOTATION, RUNTIME_ID_ANNOTATION
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tests.frameworks.listed_jobs import cluster
from tests.plan.world import World, manifest


def running(**spec: Any) -> World:
    world = World(cluster(ps=1, workers=2, **spec))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    return world


def replace(world: World, **spec: Any) -> None:
    """`kubectl replace` with a manifest as its user keeps it: what it does not say goes, annotations as well."""
    metadata = {"annotations": dict.fromkeys(world.job["metadata"]["annotations"])}
    world.patch_job({"spec": dict.fromkeys(world.job["spec"]), "metadata": metadata})
    world.edit(cluster(ps=1, workers=2, **spec)["spec"])


@pytest.mark.parametrize("own", [{}, {"RuntimeId": "zz9z"}])
@pytest.mark.parametrize("new", [{}, {"RuntimeId": "other"}, {"runtimeId": "other"}])
@pytest.mark.parametrize("how", ["edited", "replaced"])
def test_a_running_job_keeps_its_pods_whatever_becomes_of_the_id_in_its_manifest(
    own: dict[str, Any], new: dict[str, Any], how: str
) -> None:
    world = running(**own)
    before = ({name: pod["metadata"]["uid"] for name, pod in world.pods.items()}, set(world.services))

    if how == "replaced":
        replace(world, **new)
    else:
        world.edit({"RuntimeId": None, **new})
    world.settle()

    assert ({name: pod["metadata"]["uid"] for name, pod in world.pods.items()}, set(world.services)) == before
    assert (world.tarragon["state"], set(world.created.values())) == ("Running", {1})


def test_of_another_id_in_the_manifest_it_is_said_that_it_has_no_effect() -> None:
    world = running(RuntimeId="zz9z")
    world.edit({"RuntimeId": "other"})

    (warning,) = decode_and_validate(world.framework, world.job).warnings
    assert str(warning) == (
        "spec.RuntimeId: has no effect any more: the job was started with zz9z and keeps its object names; "
        "write zz9z, or submit the job again"
    )


def test_an_id_that_was_lost_before_it_was_on_record_comes_from_what_was_accepted() -> None:
    world = running(RuntimeId="zz9z")
    world.patch_job({"metadata": {"annotations": {RUNTIME_ID_ANNOTATION: None}}})
    world.edit({"RuntimeId": None})
    world.settle()

    assert world.job["metadata"]["annotations"][RUNTIME_ID_ANNOTATION] == "job-1:zz9z"
    assert set(world.created.values()) == {1}


def test_a_copy_of_the_job_has_an_id_of_its_own() -> None:
    first = running()
    annotations = dict(first.job["metadata"]["annotations"])
    assert {GENERATION_ANNOTATION, RUNTIME_ID_ANNOTATION} <= annotations.keys()
    copied = cluster(ps=1, workers=2)
    copied["metadata"] = {"name": "copy", "namespace": "n1", "annotations": annotations}
    second = World(copied)
    second.job["metadata"]["uid"] = "job-2"
    second.settle()

    taken = [decode_and_validate(first.framework, world.job).job for world in (first, second)]
    assert taken[0] is not None
    assert taken[1] is not None
    assert taken[0].runtime_id != taken[1].runtime_id
    written = second.job["metadata"]["annotations"][RUNTIME_ID_ANNOTATION]
    assert written == f"job-2:{taken[1].runtime_id}"


@pytest.mark.parametrize("written", ["", ":", ":ab12", "job-1", "job-1:", "job-1:Not a name", "job-2:ab12"])
def test_what_can_t_be_the_record_of_an_id_counts_as_absent(written: str) -> None:
    body = cluster(RuntimeId="zz9z")
    body["metadata"] |= {"uid": "job-1", "annotations": {RUNTIME_ID_ANNOTATION: written}}
    without_uid = {**body, "metadata": {**body["metadata"], "uid": ""}}
    world = World(body)

    for found in (world.job, without_uid):
        job = decode_and_validate(world.framework, found).job
        assert job is not None
        assert job.runtime_id == "zz9z"


def test_who_is_of_a_later_generation_is_marked_with_no_id() -> None:
    world = World(manifest({"Worker": 1}))
    world.settle()

    assert RUNTIME_ID_ANNOTATION not in world.job["metadata"].get("annotations", {})
