"""Records how much service a job received and how far it came, from which the scheduler estimates what is left."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from tarragon.job.model import ReplicaSpec, TrainingJob
from tarragon.job.phase import Phase
from tarragon.job.progress import Progress
from tarragon.job.status import Admission, JobStatus
from tarragon.job.work import JobWork, begun, ended, reported, restart_seconds, sizes_at
from tarragon.kube.meta import Json, JsonObject
from tarragon.plan.nodes.left_to_kube_scheduler import is_left_to_kube_scheduler
from tarragon.plan.nodes.replica_requests import group_request
from tarragon.plan.view.job_view import JobView
from tarragon.scheduling.api.work import SpeedupPrior, devices_of
from tarragon.scheduling.estimates.estimate import with_claim
from tarragon.scheduling.estimates.work_record import WorkRecord

KIND_DIGITS = 16


def record_work(view: JobView, status: JobStatus) -> JobStatus:
    """Return the status with the beginning or the end of a stretch in which all replicas run, and with what the job's
    reports promise.

    Jobs that another scheduler places are not measured: nobody would read it.
    """
    if not view.needs_admission or is_left_to_kube_scheduler(status.admission):
        return status
    running, target, admission = _running(view, status), _target_size(view), status.admission
    work = _with_end(view, status, running)
    if work.stretch is None and running >= target > 0 and admission is not None:
        work = begun(work, target, _asked_at(admission), view.now, status.progress)
    work = _with_promise(view, status, reported(work, status.progress))
    if status.phase is Phase.SUCCEEDED and work.sizes and work.needed is None and not view.is_spec_invalid:
        service = work_record(work, None, view.now).service(speedup_prior(view.job))
        work = replace(work, needed=_rounded(service))
    return status if work == status.work else replace(status, work=work)


def with_kind(view: JobView, status: JobStatus) -> JobStatus:
    """Return the status with the kind of what the job runs. This alone is not worth a write."""
    if view.is_spec_invalid:
        return status
    return replace(status, work=replace(status.work, kind=kind_of(view.job)))


def kind_of(job: TrainingJob) -> str:
    """Return a hash of what jobs that learn from each other have in common: namespace, programs and requests.

    Names differ from job to job, and so does the number of replicas.
    """
    content = [job.key.namespace, job.kind, [[group.type, _programs(group.template)] for group in job.replica_specs]]
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:KIND_DIGITS]


def counted_group(job: TrainingJob) -> ReplicaSpec:
    """Return the replicas whose number is the size of the job's work: those that an elastic policy is about, else the
    most numerous ones.
    """
    group = job.elastic_group
    if group is not None and group.replicas:
        return group
    return max(job.replica_specs, key=lambda each: each.replicas)


def speedup_prior(job: TrainingJob) -> SpeedupPrior:
    """Return the speed-up that is assumed for the job."""
    group = counted_group(job)
    return SpeedupPrior(max(1, group.replicas), devices_of(group_request(group)))


def work_record(work: JobWork, progress: Progress | None, now: dt.datetime) -> WorkRecord:
    """Return the record as of now, as estimates read it. Progress in another unit than the rates counts for nothing."""
    is_usable = progress is not None and work.unit in {"", progress.unit.value}
    return WorkRecord(
        sizes=sizes_at(work, now, progress),
        done=progress.done if progress is not None and is_usable else None,
        total=progress.total if progress is not None and is_usable else None,
        believed_until=work.believed_until,
        restart_seconds=restart_seconds(work, progress),
    )


def _with_end(view: JobView, status: JobStatus, running: int) -> JobWork:
    """Return the work without a stretch that is over: a replica is missing, or the size has changed.

    A gang that grows while it runs goes on at its old size until all new replicas run.
    """
    stretch, admission = status.work.stretch, status.admission
    if stretch is None:
        return status.work
    if admission is not None and admission.admitted_at is not None and admission.admitted_at > stretch.began_at:
        return ended(status.work, min(view.now, admission.admitted_at), status.progress)
    target = _target_size(view)
    is_resized = running >= target != stretch.size
    goes_on = running >= min(target, stretch.size) > 0 and not is_resized
    return status.work if goes_on else ended(status.work, view.now, status.progress)


def _running(view: JobView, status: JobStatus) -> int:
    """Return how many of the counted replicas run or have finished; 0 if the job as a whole does not run."""
    if status.phase is not Phase.RUNNING or not view.may_run:
        return 0
    kind = counted_group(view.job).type
    running = {replica for replica, member in view.members.items() if member.is_running}
    return sum(replica.type == kind for replica in running | status.succeeded_replicas)


def _target_size(view: JobView) -> int:
    return view.size.get(counted_group(view.job).type, 0)


def _asked_at(admission: Admission) -> dt.datetime:
    """When the gang was last started or resized."""
    return max(at for at in (admission.queued_at, admission.admitted_at, admission.resized_at) if at is not None)


def _with_promise(view: JobView, status: JobStatus, work: JobWork) -> JobWork:
    """Return the work with what the job's reports promise, if that has changed much, and with what its restart took."""
    if work.stretch is None or work.stretch.first is None or view.is_spec_invalid:
        return work
    record = work_record(work, status.progress, view.now)
    promised = with_claim(record, speedup_prior(view.job)).believed_until
    if promised is None or promised == record.believed_until:
        return work
    return replace(work, believed_until=_rounded(promised), restart_seconds=record.restart_seconds)


def _rounded(service: float) -> float:
    return float(f"{service:.9g}")


def _programs(template: JsonObject) -> Json:
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    names = ("name", "image", "command", "args", "resources")
    return [
        [container.get(name) for name in names]
        for container in (containers if isinstance(containers, list) else ())
        if isinstance(container, Mapping)
    ]
