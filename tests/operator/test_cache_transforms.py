"""What stays in memory of ten thousand jobs and their pods."""

from __future__ import annotations

from typing import Any

from tarragon.frameworks.dialect_detection import LAST_APPLIED_ANNOTATION
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.job.replica_state import PodOutcome, termination_of
from tarragon.kube.codec import decode, encode
from tarragon.kube.scheduling.pod_requests import reports_resources, scheduling_request
from tarragon.operator.informers.cache_transforms import CachedJob, CachedPod, CachedService
from tarragon.operator.informers.decode_cache import DecodeCache
from tarragon.operator.informers.pod_usage import requests_of
from tests.operator.stage import group, job

OWNER = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "a", "uid": "u", "controller": True}
MARK = {"tarragon.dev/generation": "kubeflow.org/v1"}


def pod(name: str, **status: Any) -> CachedPod:
    container = {
        "name": "tensorflow",
        "image": "i",
        "command": ["python", f"{name}.py"],
        "resources": {"requests": {"cpu": "2"}},
    }
    body = {
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": name,
            "labels": {"job": "a", "training.kubeflow.org/replica-index": name},
            "ownerReferences": [OWNER],
        },
        "spec": {"nodeName": "node", "containers": [container], "tolerations": [{"key": "k"}]},
        "status": {"phase": "Running", **status},
    }
    return decode(encode(body), CachedPod)


def manifest(*, annotations: dict[str, str], **more: Any) -> CachedJob:
    found = job("a", Worker=group(1))
    found["metadata"] |= {"uid": "u", "annotations": annotations, "managedFields": [{"manager": "kubectl"}]}
    return decode(encode({**found, **more}), CachedJob)


def test_pods_that_run_alike_share_what_they_need_and_who_owns_them() -> None:
    one, other = pod("a-worker-0"), pod("a-worker-1")

    assert one.spec is other.spec
    assert one.metadata.owner_references is other.metadata.owner_references
    assert (one.metadata.name, other.metadata.name) == ("a-worker-0", "a-worker-1")
    assert scheduling_request(one.spec)["cpu"] == 2000
    assert one.metadata.labels is other.metadata.labels
    assert one.metadata.labels == {"job": "a"}


def test_of_the_affinity_of_a_pod_that_is_bound_it_is_kept_whom_it_keeps_off() -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
    affinity = {"podAffinity": required, "podAntiAffinity": {**required, "preferredDuringSchedulingIgnored": []}}
    spec = {"nodeName": "node", "affinity": affinity}

    assert decode(encode({"spec": spec}), CachedPod).spec.affinity == {"podAntiAffinity": required}
    assert decode(encode({"spec": {"nodeName": "node", "affinity": {}}}), CachedPod).spec.affinity is None


def test_of_a_pod_that_has_failed_its_reason_is_kept() -> None:
    terminated = {"exitCode": 3, "reason": "Error", "message": "no such file"}
    failed = pod(
        "a-worker-0",
        phase="Failed",
        conditions=[{"type": "DisruptionTarget", "status": "False"}, {"type": "Initialized", "status": "True"}],
        containerStatuses=[{"name": "tensorflow", "restartCount": 1, "state": {"terminated": terminated}}],
    )
    ending = termination_of(failed, "tensorflow")

    assert ending is not None
    assert (ending.outcome, ending.exit_code, ending.message) == (PodOutcome.FAILED, 3, "no such file")
    assert [condition.type for condition in failed.status.conditions] == ["DisruptionTarget"]


def test_of_a_service_only_its_name_and_its_owner_are_kept() -> None:
    body = {
        "metadata": {"name": "a-worker-0", "namespace": "n", "labels": {"x": "y"}, "ownerReferences": [OWNER]},
        "spec": {"ports": [{"port": 2222}]},
    }
    kept = decode(encode(body), CachedService)

    assert kept.metadata.controller_ref is not None
    assert (kept.metadata.name, kept.metadata.controller_ref.uid) == ("a-worker-0", "u")
    assert not kept.spec.ports


def test_who_wrote_a_job_is_remembered_until_it_is_marked() -> None:
    unmarked = manifest(annotations={LAST_APPLIED_ANNOTATION: "{}"})
    marked = manifest(annotations={LAST_APPLIED_ANNOTATION: "{}", **MARK})

    assert [entry.manager for entry in unmarked.metadata.managed_fields] == ["kubectl"]
    assert LAST_APPLIED_ANNOTATION in unmarked.metadata.annotations
    assert marked.metadata.managed_fields == []
    assert marked.metadata.annotations == MARK


def test_a_job_is_read_anew_only_when_its_text_has_changed() -> None:
    readings = DecodeCache({"TFJob": TENSORFLOW})
    first = readings.decoded("TFJob", manifest(annotations=MARK))

    assert readings.decoded("TFJob", manifest(annotations=MARK, status={"startTime": "2026-01-01T00:00:00Z"})) is first
    edited = readings.decoded("TFJob", manifest(annotations=MARK, spec={"tfReplicaSpecs": {"Worker": group(2)}}))
    assert edited.job is not None
    assert edited.job.replica_specs[0].replicas == 2


def test_jobs_that_are_over_are_not_remembered() -> None:
    readings = DecodeCache({"TFJob": TENSORFLOW})
    going, over = manifest(annotations=MARK), manifest(annotations=MARK, status={"tarragon": {"state": "Failed"}})
    first = readings.decoded("TFJob", going)
    readings.on_job_change("TFJob", going.metadata.key, going, over)

    assert readings.decoded("TFJob", over) is not first
    assert readings.decoded("TFJob", over) is not readings.decoded("TFJob", over)
    assert readings.decoded("TFJob", going) == first


def test_resources_in_the_status_of_a_pod_are_kept_only_while_they_differ_from_its_spec() -> None:
    def status(cpu: str) -> dict[str, Any]:
        amounts = {"cpu": cpu}
        return {"name": "tensorflow", "resources": {"requests": amounts}, "allocatedResources": amounts}

    settled = pod("a-worker-0", containerStatuses=[status("2")])
    shrinking = pod("a-worker-0", containerStatuses=[status("4")])

    assert not reports_resources(settled.status)
    assert requests_of(settled)["cpu"] == 2000
    assert requests_of(shrinking)["cpu"] == 4000
