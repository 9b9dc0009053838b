"""Who holds what of the quota of a namespace."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
from msgspec.structs import replace as replaced

from tarragon.base.resources import CPU, NVIDIA_GPU
from tarragon.cli.explain.quotas import quota_use_by_others
from tarragon.cli.jobview.jobs import ClusterJob, read_job
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.job.status import Admission, JobStatus
from tarragon.kube.meta import CustomObject, CustomObjectMeta
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tests.cli.scenes import BEGIN
from tests.operator.stage import group

RULES = SchedulingRules(queues={"default": QueueRules(quota={CPU: 8000})})


def test_a_part_of_a_gpu_is_held_as_a_fraction() -> None:
    half = group(2, cpu="1")
    half["template"]["metadata"] = {"annotations": {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1"}}
    raw = msgspec.Raw(json.dumps({"tfReplicaSpecs": {"Worker": half}}))
    nodes = {Replica(WORKER, 0): "n/0", Replica(WORKER, 1): "n/1"}
    admission = Admission(queued_at=BEGIN, admitted_at=BEGIN, size={WORKER: 2}, nodes=nodes)
    sharing = a_job("sharing", admission)
    sharing = replace(read_job(FRAMEWORKS[0], replaced(sharing.object, raw_spec=raw)), status=sharing.status)
    rules = SchedulingRules(queues={"default": QueueRules(quota={NVIDIA_GPU: 4000})})

    assert quota_use_by_others(a_job("me", admission), [sharing], rules) == [("sharing", {NVIDIA_GPU: 1000})]


def a_job(name: str, admission: Admission, *finished: Replica) -> ClusterJob:
    raw = msgspec.Raw(json.dumps({"tfReplicaSpecs": {"Worker": group(2, cpu="1"), "PS": group(1, cpu="1")}}))
    metadata = CustomObjectMeta(name=name, namespace="default", uid=name, creation_timestamp=BEGIN)
    found = CustomObject(api_version="kubeflow.org/v1", kind="TFJob", metadata=metadata, raw_spec=raw)
    status = JobStatus(phase=Phase.RUNNING, admission=admission, succeeded_replicas=frozenset(finished))
    return replace(read_job(FRAMEWORKS[0], found), status=status)


def test_replicas_that_have_finished_hold_nothing_even_where_the_status_was_edited() -> None:
    nodes = {Replica(WORKER, 0): "n", Replica(WORKER, 1): "n", Replica(PS, 0): "n"}
    whole = Admission(queued_at=BEGIN, admitted_at=BEGIN, size={WORKER: 2, PS: 1}, nodes=nodes)
    edited = replace(whole, size={WORKER: 2})
    jobs = [a_job("a", whole, Replica(WORKER, 0)), a_job("b", edited, Replica(PS, 0)), a_job("me", whole)]

    assert quota_use_by_others(jobs[2], jobs, RULES) == [("a", {CPU: 2000}), ("b", {CPU: 2000})]
