"""A converted job means the same as the original, or the difference is reported as a loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.plugin import Dialect, Framework
from tarragon.frameworks.registry import framework_of
from tarragon.frameworks.tensorflow.conversion.convert import convert
from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS
from tarragon.frameworks.tensorflow.conversion.losses import TOPICS
from tarragon.frameworks.tensorflow.replica_types import MASTER
from tarragon.job.model import Replica, ReplicaType, RestartPolicy, SuccessPolicy, TrainingJob
from tarragon.kube.meta import JsonObject
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.objects.desired import JobBlueprint, build_pods
from tarragon.plan.objects.settings import OperatorSettings
from tests.conversion.manifests import NAMES, Manifest, tfjobs
from tests.frameworks.listed_jobs import cluster

PAIRS = [(source, target) for source in NAMES for target in NAMES if source != target]
UID = "3f0c"


@dataclasses.dataclass(frozen=True)
class Read:
    job: TrainingJob
    dialect: Dialect
    framework: Framework
    manifest: Manifest


def read(manifest: JsonObject) -> Read | None:
    """Read a manifest as the operator does."""
    live = {**manifest, "metadata": {**manifest["metadata"], "uid": UID}}
    framework = framework_of(live["apiVersion"], live["kind"])
    assert framework is not None
    found = decode_and_validate(framework, live)
    if found.job is None or found.dialect is None:
        return None
    return Read(found.job, found.dialect, framework, live)


def role(kind: ReplicaType) -> str:
    return "chief" if kind == MASTER else kind.lower()


def chief(found: Read) -> object:
    assert found.job.chief is not None
    return found.job.chief.type, found.job.chief.index


def wishes(found: Read) -> object:
    return {role(kind): wish for kind, wish in found.job.requested_size().items() if wish}


def elastic(found: Read) -> object:
    """The elastic bounds; equal bounds count as none."""
    bounds, workers = found.job.elastic_policy, found.job.requested_size().get(WORKER)
    return None if bounds is None or bounds.min_replicas == bounds.max_replicas == workers else bounds


def ends(found: Read) -> object:
    """The result of each replica for each exit code."""
    return {
        (role(group.type), index, code): fate(found, Replica(group.type, index), code)
        for group in found.job.replica_specs
        for index in range(group.replicas)
        for code in (0, 1, 126, 130, 137, 138, 139, 143, 250)
    }


def fate(found: Read, replica: Replica, code: int) -> str:
    group = found.job.replica_spec(replica.type)
    assert group is not None
    policy = found.job.restart_policy_of(replica)
    if policy is RestartPolicy.EXIT_CODE:
        return found.dialect.exit_codes(code).value
    if code == 0:
        is_repeated = policy is RestartPolicy.ALWAYS and group.pod_restart_policy == "Always"
        return "retryable" if is_repeated else "clean"
    return "permanent" if policy is RestartPolicy.NEVER else "retryable"


def success(found: Read) -> object:
    return found.job.success_policy is SuccessPolicy.ALL_WORKERS and not found.job.has_chief


def runtime_id(found: Read) -> object:
    """The runtime id in the manifest; a generated one differs for each job."""
    return found.manifest["spec"].get("RuntimeId")


def limits(found: Read) -> object:
    policy = found.job.run_policy
    return (
        policy.active_deadline_seconds,
        policy.backoff_limit,
        policy.ttl_seconds_after_finished,
        policy.clean_pod_policy,
    )


def tensorboard(found: Read) -> object:
    board = found.job.tensorboard
    return None if board is None else (board.log_dir, board.image, board.service_type)


def board_sees(found: Read) -> object:
    """The volumes that are mounted at TensorBoard's log folder."""
    board = found.job.tensorboard
    if board is None:
        return []
    sources = {volume["name"]: {**volume, "name": ""} for volume in board.volumes}
    return [sources.get(mount["name"]) for mount in board.volume_mounts if board.log_dir.startswith(mount["mountPath"])]


FACETS: Mapping[str, Callable[[Read], object]] = {
    "the chief": chief,
    "replicas": wishes,
    "restarts": ends,
    "suspend": lambda found: found.job.run_policy.suspend,
    "limits": limits,
    "managedBy and schedulingPolicy": lambda found: (
        found.job.run_policy.managed_by,
        found.job.run_policy.scheduling_policy,
    ),
    "successPolicy": success,
    "enableDynamicWorker": lambda found: [group.type for group in found.job.replica_specs if group.may_fail],
    "elastic": elastic,
    "RuntimeId": runtime_id,
    "tensorboard": tensorboard,
}


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda name: name.replace("kubeflow.org/", ""))
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_converted_job_means_the_same_or_the_loss_is_reported(source: str, target: str, data: st.DataObject) -> None:
    manifest = data.draw(tfjobs(source))

    made = convert(manifest, source, target)
    before, after = read(manifest), read(made.manifest)
    assert before is not None
    assume(after is not None)
    assert after is not None

    reported = {loss.topic for loss in made.losses}
    changed = {topic for topic, facet in FACETS.items() if facet(before) != facet(after)}
    assert board_sees(before) in ([], board_sees(after)) or "tensorboard" in reported
    assert changed <= reported | ({"restarts"} if "exit codes" in reported else set())
    assert reported <= changed | {"exit codes", "restarts", "tensorboard"}


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda name: name.replace("kubeflow.org/", ""))
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_the_pods_differ_only_in_names_labels_and_tf_config(source: str, target: str, data: st.DataObject) -> None:
    manifest = data.draw(tfjobs(source))

    before, after = read(manifest), read(convert(manifest, source, target).manifest)
    assert before is not None
    assume(after is not None)
    assert after is not None

    old, new = specs(before), specs(after)
    assert {which: new[which] for which in new} == {which: old[which] for which in new}


def specs(found: Read) -> dict[tuple[str, int], Any]:
    """The pod of each replica, without the parts that depend on the generation.

    Annotations for other gang schedulers are ignored. They follow from the names of the types and the schedulerName of
    all templates, which are compared; a dropped replica, which is a reported loss, may have been the only one without.
    """
    wished = found.job.requested_size()
    plan = JobBlueprint(
        framework=found.framework,
        dialect=found.dialect,
        job=found.job,
        size=wished,
        settings=OperatorSettings(pod_groups={}),
    )
    replicas = list(found.job.replicas_of_size(wished))
    return {
        (role(replica.type), replica.index): _pod(found, replica, body)
        for replica, body in zip(replicas, build_pods(plan, replicas), strict=True)
    }


def _pod(found: Read, replica: Replica, body: JsonObject) -> JsonObject:
    group = found.job.replica_spec(replica.type)
    assert group is not None
    spec = {name: value for name, value in body["spec"].items() if name not in {"restartPolicy", "hostname"}}
    spec["volumes"] = [each for each in spec.get("volumes", []) if each["name"] != "ps-config-volume"]
    spec["containers"] = [_container(each, group.port) for each in spec["containers"]]
    metadata = body["metadata"]
    labels = {name: text for name, text in metadata["labels"].items() if name == "team"}
    return {"labels": labels, "annotations": metadata.get("annotations"), "spec": spec}


def _container(container: JsonObject, port: int) -> JsonObject:
    """The container, with both ways to start the standard server made equal."""
    found = {name: value for name, value in container.items() if name not in {"env", "volumeMounts", "command"}}
    is_server = any("grpc_tensorflow_server" in str(word) for word in container.get("command", ()))
    found["command"] = "the standard server" if is_server else container.get("command")
    found["env"] = [each for each in container.get("env", ()) if each["name"] != "TF_CONFIG"]
    found["volumeMounts"] = [each for each in container.get("volumeMounts", ()) if each["name"] != "ps-config-volume"]
    ports = [each for each in container.get("ports", ()) if each["name"] not in {"tfjob-port", "tf-port"}]
    served = {each["containerPort"] for each in container.get("ports", ()) if each not in ports}
    assert served <= {port, 2222, 3333}
    found["ports"] = ports
    return found


def test_every_field_of_a_job_is_compared_or_follows_from_another() -> None:
    reported = {field.name for field in dataclasses.fields(TrainingJob)}
    of_the_object = {"kind", "api_version", "dialect", "key", "uid", "creation_time", "labels", "annotations"}
    of_other_kinds = {"options", "restarts_together"}
    compared = {
        "replica_specs": "replicas",
        "run_policy": "limits",
        "success_policy": "successPolicy",
        "elastic_policy": "elastic",
        "runtime_id": "RuntimeId",
        "chief_restart_policy": "restarts",
        "named_chief": "the chief",
        "tensorboard": "tensorboard",
    }

    assert reported == of_the_object | of_other_kinds | compared.keys()
    assert set(compared.values()) <= set(TOPICS)


@pytest.mark.parametrize("target", NAMES)
def test_no_remedy_names_a_limit_that_the_target_does_not_have(target: str) -> None:
    reported = [str(loss.problem) for loss in convert(cluster(), "kubeflow.org/v1alpha1", target).losses]

    memory = [words for words in reported if "OOMKilled" in words]
    has_limit = "backoffLimit" in GENERATIONS[target].policies
    assert any("limit it by a backoffLimit" in words for words in reported) is (bool(memory) and has_limit)
    assert all(words.endswith("; raise the memory limit") for words in memory if not has_limit)


def test_every_topic_of_a_loss_is_tested() -> None:
    assert set(TOPICS) - set(FACETS) == {"exit codes", "the standard server"}
