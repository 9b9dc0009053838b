from __future__ import annotations

from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.queueing import queue_positions
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.job.status import Admission, JobStatus, WaitReason
from tarragon.kube.meta import CustomObject, CustomObjectMeta
from tests.cli.scenes import BEGIN


def job(name: str, code: str) -> ClusterJob:
    metadata = CustomObjectMeta(name=name, namespace="default", uid=name, creation_timestamp=BEGIN)
    found = CustomObject(api_version="kubeflow.org/v1", kind="TFJob", metadata=metadata)
    status = JobStatus(admission=Admission(queued_at=BEGIN, wait=WaitReason(code=code, message="")))
    return ClusterJob(framework=FRAMEWORKS[0], object=found, job=None, dialect=None, status=status)


def test_who_never_fits_has_no_place_in_the_queue() -> None:
    jobs = [job("giant", "NeverFits"), job("small", "InsufficientResources")]
    assert {key.name: place for (_, key), place in queue_positions(jobs).items()} == {"small": 1}
