from __future__ import annotations

from tarragon.cli.jobview.jobs import Known
from tarragon.cli.jobview.queueing import positions
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.job.status import Admission, JobStatus, Wait
from tarragon.kube.meta import CustomMeta, CustomObject
from tests.cli.scenes import BEGIN


def job(name: str, code: str) -> Known:
    metadata = CustomMeta(name=name, namespace="default", uid=name, creation_timestamp=BEGIN)
    found = CustomObject(api_version="kubeflow.org/v1", kind="TFJob", metadata=metadata)
    status = JobStatus(admission=Admission(queued=BEGIN, wait=Wait(code=code, message="")))
    return Known(framework=FRAMEWORKS[0], object=found, job=None, dialect=None, status=status)


def test_who_never_fits_has_no_place_in_the_queue() -> None:
    jobs = [job("giant", "NeverFits"), job("small", "InsufficientResources")]
    assert {key.name: place for (_, key), place in positions(jobs).items()} == {"small": 1}
