"""Who uses vGPUs of which an anchor pod holds the GPU, by place: jobs by their admissions, and pods that name a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet

from tarragon.client.informer.cache_reader import CacheReader, KeyIndex
from tarragon.job.places import vgpu_of
from tarragon.job.status_encoding import recorded_status
from tarragon.kube.core import Pod
from tarragon.kube.meta import CustomObject, Key
from tarragon.kube.scheduling.gpu_shares import (
    GPU_UUID_ANNOTATION,
    SHARE_ANNOTATIONS,
    SHARE_LABELS,
    SHARE_RESOURCES,
    GpuShare,
    share_of_pod,
)
from tarragon.operator.informers.accepted_admissions import AcceptedAdmissions
from tarragon.operator.informers.assumed_pods import AssumedPods
from tarragon.operator.informers.candidates import JobId, is_candidate
from tarragon.plan.objects.gpu_anchors import anchor_place
from tarragon.plan.objects.placement import assigned_place

_MENTIONS_VGPU = re.compile(rb'/\d{1,4}"\s*:')
"""In a status that may assign a replica to a vGPU. Few jobs have one, and reading takes much longer than this."""
_SHARE_NAMES = re.compile(
    b"|".join(name.encode() for name in sorted(SHARE_ANNOTATIONS | SHARE_LABELS | SHARE_RESOURCES))
)
"""In a spec that may request a share of a GPU."""
_VGPU = re.compile(r"[^/]+/\d{1,4}")


class VgpuUsers:
    """The users by place. A place is in use until its last pod is gone, and also while one may still appear.

    Anchor pods, which are in the namespace `anchors_in`, are no users.
    """

    def __init__(
        self,
        anchors_in: str,
        pods: CacheReader[Pod],
        jobs: Mapping[str, CacheReader[CustomObject]],
        assumed_pods: AssumedPods,
        accepted_admissions: AcceptedAdmissions,
    ) -> None:
        self._anchors_in = anchors_in
        self._pods = pods
        self._jobs = jobs
        self._assumed_pods = assumed_pods
        self._accepted_admissions = accepted_admissions
        self._users = KeyIndex(pods, self._places_of)
        self._assigned = {kind: KeyIndex(cache, assigned_vgpus) for kind, cache in jobs.items()}
        self._handlers: list[Callable[[], None]] = []
        pods.add_event_handler(self._pod_changed)
        for cache in jobs.values():
            cache.add_event_handler(self._job_changed)
        assumed_pods.subscribe(lambda _: self._changed())
        accepted_admissions.subscribe(lambda _: self._changed())

    def on_change(self, handler: Callable[[], None]) -> None:
        """Call `handler` when the users of some place may have changed."""
        self._handlers.append(handler)

    def gpus_at(self, place: str) -> set[str]:
        """The UUIDs of the GPUs that pods at the place name."""
        pods = (self._pods.objects[key] for key in self._users.keys(place))
        return {pod.metadata.annotations[GPU_UUID_ANNOTATION] for pod in pods}

    def shares_at(self, place: str, *, without: Key) -> list[GpuShare]:
        """The shares of pods at the place, and of those that may appear, without that of one pod."""
        pods = {pod.metadata.key: pod for pod in self._assumed_pods.all() if place in self._places_of(pod)}
        pods |= {key: self._pods.objects[key] for key in self._users.keys(place)}
        shares = (share_of_pod(pod) for key, pod in pods.items() if key != without)
        return [share for share in shares if share is not None]

    def gpus_in_use(self) -> dict[str, set[str]]:
        """The same for all places with a pod, or with one that may appear."""
        found = {place: self.gpus_at(place) for place in self._users.values()}
        for pod in self._assumed_pods.all():
            for place in self._places_of(pod):
                found.setdefault(place, set()).add(pod.metadata.annotations[GPU_UUID_ANNOTATION])
        return found

    def assigned_places(self) -> AbstractSet[str]:
        """The places to which admissions assign replicas. Anyone may write one: see `has_accepted_job`."""
        return {place for index in self._assigned.values() for place in index.values()}

    def has_accepted_job(self, place: str) -> bool:
        """Whether an admission that names the place is verified. If not, the handlers are called once one is."""
        return any(
            self._accepted_admissions.is_accepted((kind, key), self._jobs[kind].objects[key])
            for kind, key in self.jobs_at(place)
        )

    def jobs_at(self, place: str) -> Collection[JobId]:
        """The jobs with a replica at the place."""
        return [(kind, key) for kind, index in self._assigned.items() for key in index.keys(place)]

    def _places_of(self, pod: Pod) -> Collection[str]:
        """The place of a pod that names the GPU that it shares; none for others, and for those that have finished."""
        if GPU_UUID_ANNOTATION not in pod.metadata.annotations or pod.is_finished:
            return ()
        place = assigned_place(pod)
        return () if vgpu_of(place) is None or anchor_place(pod, self._anchors_in) else (place,)

    def _pod_changed(self, _: Key, old: Pod | None, new: Pod | None) -> None:
        if any(pod is not None and self._places_of(pod) for pod in (old, new)):
            self._changed()

    def _job_changed(self, _: Key, old: CustomObject | None, new: CustomObject | None) -> None:
        if any(job is not None and _may_assign_vgpus(job) for job in (old, new)):
            self._changed()

    def _changed(self) -> None:
        for handler in self._handlers:
            handler()


def assigned_vgpus(job: CustomObject) -> Collection[str]:
    """The vGPUs that the job's admission assigns to replicas that have not finished.

    None if the job requests no shares any more: while an anchor held the GPU, the job could not get it whole.
    """
    if not _may_assign_vgpus(job) or not _SHARE_NAMES.search(bytes(job.raw_spec)):
        return ()
    status = recorded_status(job)
    admission = status.admission
    if admission is None or admission.admitted_at is None or not is_candidate(job, status):
        return ()
    return {
        place
        for replica, place in admission.nodes.items()
        if replica not in status.succeeded_replicas and _VGPU.fullmatch(place)
    }


def _may_assign_vgpus(job: CustomObject) -> bool:
    return _MENTIONS_VGPU.search(bytes(job.raw_status)) is not None
