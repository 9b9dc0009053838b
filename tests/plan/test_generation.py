"""Where the generation of a job is on record: in its status, and in an annotation if a restored job needs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.job import conditions
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.reconcile.decide import decide
from tests.frameworks import mpi_jobs
from tests.frameworks.listed_jobs import cluster
from tests.frameworks.test_jax import jaxjob
from tests.frameworks.test_sharepod import sharepod
from tests.plan.world import World, is_idle, manifest

DRAGON = manifest({"Worker": 2})
DRAGON["spec"]["max-instances"] = 4
OF_EACH_GENERATION = [
    manifest({"Worker": 1}),
    manifest({"Worker": 1}, cleanPodPolicy="All"),
    DRAGON,
    *({**manifest({"Worker": 1}), "apiVersion": f"kubeflow.org/{name}"} for name in ("v1beta2", "v1beta1", "v1alpha2")),
    cluster(),
    {**cluster(), "apiVersion": "mlkube.io/v1beta1", "kind": "TfJob"},
    *map(mpi_jobs.of, (mpi_jobs.V1ALPHA1, mpi_jobs.V1ALPHA2, mpi_jobs.V1, mpi_jobs.V2BETA1)),
    jaxjob(),
    sharepod(),
]


def annotations_of(world: World) -> dict[str, str]:
    return dict(world.job["metadata"].get("annotations", {}))


def restored(world: World) -> dict[str, Any]:
    """The job as a backup brings it back: in the stored version, without a status and without its managers."""
    metadata = {name: world.job["metadata"][name] for name in ("name", "namespace")}
    kept = {"annotations": annotations_of(world)} if annotations_of(world) else {}
    version = world.framework.resource.api_version
    return {"apiVersion": version, "kind": world.job["kind"], "metadata": metadata | kept, "spec": world.job["spec"]}


def test_a_job_whose_spec_tells_its_generation_is_not_marked() -> None:
    world = World(manifest({"Worker": 1}))

    step = world.step()

    assert step.metadata_patch is None
    assert annotations_of(world) == {}
    assert world.tarragon["generation"] == "kubeflow.org/v1"


def test_another_generation_is_marked_before_anything_else_is_done() -> None:
    world = World({**manifest({"Worker": 1}), "apiVersion": "kubeflow.org/v1beta2"})

    step = world.step()

    assert step.metadata_patch is not None
    assert (step.status_patch, step.creates, step.events) == (None, (), [])
    assert annotations_of(world) == {GENERATION_ANNOTATION: "kubeflow.org/v1beta2"}


@pytest.mark.parametrize("job", OF_EACH_GENERATION)
def test_a_job_that_a_backup_brings_back_is_of_the_same_generation(job: dict[str, Any]) -> None:
    world = World(job)
    world.settle()

    again = decode_and_validate(world.framework, restored(world))

    assert again.dialect is not None
    assert again.dialect.name == world.tarragon["generation"]


def test_an_edit_that_gives_a_job_the_shape_of_another_generation_does_not_change_what_it_is() -> None:
    world = World(manifest({"Worker": 1}, cleanPodPolicy="All"))
    world.settle()
    assert (world.tarragon["generation"], annotations_of(world)) == ("kubeflow.org/v1-flat", {})

    world.edit({"cleanPodPolicy": None})
    world.settle()

    assert world.tarragon["generation"] == "kubeflow.org/v1-flat"
    assert annotations_of(world) == {GENERATION_ANNOTATION: "kubeflow.org/v1-flat"}, "now a backup would lose it"
    assert is_idle(world.decide())


def test_a_generation_in_the_status_that_nobody_knows_is_a_problem_and_no_end() -> None:
    world = World(manifest({"Worker": 1}))
    world.settle()
    world.patch_job({"status": {"tarragon": {"generation": "kubeflow.org/v7"}}})

    world.settle()

    invalid = world.status.condition(conditions.SPEC_INVALID)
    assert invalid is not None
    assert "status.tarragon.generation: this version of Tarragon does not know the generation" in invalid.message


def test_every_kind_has_a_generation_that_needs_no_mark() -> None:
    for framework in FRAMEWORKS:
        assert any(
            decode_and_validate(framework, job).tells_its_generation
            for job in OF_EACH_GENERATION
            if job["kind"] == framework.kind
        ), framework.kind


def test_a_job_that_was_applied_in_another_version_later_is_marked() -> None:
    world = World(manifest({"Worker": 1}))
    world.settle()

    world.patch_job({"metadata": {"annotations": applied("kubeflow.org/v1beta2")}})
    world.settle()

    assert world.tarragon["generation"] == "kubeflow.org/v1"
    assert annotations_of(world)[GENERATION_ANNOTATION] == "kubeflow.org/v1", "kubectl's annotation is in a backup, too"


def test_an_option_for_new_jobs_does_not_change_one_that_is_on_record() -> None:
    world = World(mpi_jobs.short_job(gpus=16))
    world.settle()
    assert "gpusPerNode" not in world.job["spec"]

    world.settings = OperatorSettings(job_defaults={"MPIJob": {"gpusPerNode": 4}})
    world.settle()

    assert "gpusPerNode" not in world.job["spec"]


@pytest.mark.parametrize("settings", [OperatorSettings(), OperatorSettings(other_managers={"MPIJob": "another"})])
@pytest.mark.parametrize("job", [manifest({"Worker": 1}), mpi_jobs.of(mpi_jobs.V2BETA1)])
def test_a_job_whose_status_was_overwritten_stays_ours(job: dict[str, Any], settings: OperatorSettings) -> None:
    world = World(job)
    world.settle()
    world.settings = settings
    world.patch_job({"status": None})
    world.patch_job({"status": {"conditions": [{"type": "Created", "status": "True"}]}})

    lost = replace(world.observed(), was_managed=True)

    assert decide(world.framework, lost, world.now).status_patch is not None


def test_a_job_whose_status_tells_of_its_admission_stays_ours_whoever_has_dropped_the_rest() -> None:
    world = World(mpi_jobs.of(mpi_jobs.V2BETA1), OperatorSettings(other_managers={"MPIJob": "another"}))
    conditions_of_ours = [{"type": "Admitted", "status": "True", "reason": "Admitted"}]
    world.patch_job({"status": {"conditions": conditions_of_ours}})

    assert world.decide().status_patch is not None


def applied(version: str) -> dict[str, str]:
    return {"kubectl.kubernetes.io/last-applied-configuration": f'{{"apiVersion":"{version}","spec":{{}}}}'}
