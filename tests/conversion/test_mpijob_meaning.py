"""A converted MPIJob means the same as the original, or the difference is reported as a loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarragon.frameworks.mpi.conversion.convert import convert
from tarragon.frameworks.mpi.conversion.generations import GENERATIONS
from tarragon.frameworks.mpi.conversion.losses import TOPICS
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.mpi.manifest.restart_policies import LauncherEngine
from tarragon.frameworks.mpi.options import MpiOptions, options_of
from tarragon.job.model import ReplicaSpec, RestartPolicy, TrainingJob
from tarragon.kube.meta import JsonObject
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tests.conversion.mpijobs import NAMES, mpijobs

PAIRS = [(source, target) for source in NAMES for target in NAMES if source != target]
IDLE = (None, ["sleep", "365d"], ["/usr/sbin/sshd", "-De"])


def read(manifest: JsonObject) -> TrainingJob:
    """Read a manifest as the operator does."""
    found = decode_and_validate(MPI, manifest)
    assert found.job is not None
    return found.job


def options(job: TrainingJob) -> MpiOptions:
    return options_of(job)


def groups(job: TrainingJob) -> list[ReplicaSpec]:
    return [group for group in job.replica_specs if group.replicas]


def failures(job: TrainingJob) -> object:
    """Whether the failure of each replica is final, and the number of failures that ends the job."""
    limit = job.run_policy.backoff_limit
    if limit is not None:
        limit = limit + 1 if GENERATIONS[job.dialect].engine is LauncherEngine.BATCH_JOB else max(limit, 1)
    fates = {group.type: group.restart_policy for group in groups(job)}
    if limit == 1 or set(fates.values()) == {RestartPolicy.NEVER}:
        return "final"
    return fates, limit


def template(group: ReplicaSpec) -> Any:
    """The pod of a group, without what each generation adds."""
    spec = {name: value for name, value in group.template["spec"].items() if name != "restartPolicy"}
    first, *others = spec["containers"]
    first = {**first, "name": ""}
    if group.type == "Worker" and first.get("command") in IDLE and "args" not in first:
        first.pop("command", None)
    resources = first.pop("resources", {})
    limits = {name: str(amount) for name, amount in resources.get("limits", {}).items()}
    metadata = group.template.get("metadata")
    return metadata, {**spec, "containers": [first, *others]}, limits, resources.get("requests")


def rank_container(job: TrainingJob) -> str:
    """The container of the workers in which ranks run."""
    workers = next((group for group in groups(job) if group.type == "Worker"), None)
    if workers is None:
        return ""
    first: str = workers.template["spec"]["containers"][0]["name"]
    return options(job).main_container or first


FACETS: Mapping[str, Callable[[TrainingJob], object]] = {
    "transport": lambda job: options(job).transport,
    "sshAuthMountPath": lambda job: options(job).ssh_path,
    "mpiImplementation": lambda job: options(job).implementation,
    "launcherCreationPolicy": lambda job: [group.starts_after for group in groups(job)],
    "runLauncherAsWorker": lambda job: options(job).launcher_works,
    "mainContainer": rank_container,
    "templates": lambda job: [template(group) for group in groups(job)],
    "restarts": failures,
}


def same(job: TrainingJob) -> object:
    """What no conversion changes."""
    policy = dataclasses.replace(job.run_policy, backoff_limit=None)
    sizes = {group.type: group.replicas for group in groups(job)}
    return policy, sizes, options(job).slots, job.elastic_policy, job.chief, job.labels, job.success_policy


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda name: name.replace("kubeflow.org/", ""))
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_converted_job_means_the_same_or_the_loss_is_reported(source: str, target: str, data: st.DataObject) -> None:
    manifest = data.draw(mpijobs(source))

    made = convert(manifest, source, target)
    before, after = read(manifest), read(made.manifest)

    reported = {"restarts" if loss.topic == "backoffLimit" else loss.topic for loss in made.losses}
    changed = {topic for topic, facet in FACETS.items() if facet(before) != facet(after)}
    assert same(before) == same(after)
    assert changed == reported


def test_every_topic_of_a_loss_is_tested() -> None:
    assert set(TOPICS) - set(FACETS) == {"backoffLimit"}
