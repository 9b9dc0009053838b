"""Assumed pods: their creation was requested and not refused, but the cache does not show them yet.

Like kube-scheduler's, they hold their resources until they appear or expire. A controller's expectations are another
thing: those say when a cache is current enough to decide on, and know nothing of resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, ApiError
from tarragon.client.informer.cache_reader import CacheReader
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Pod
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION
from tarragon.operator.informers.cache_transforms import CachedPod
from tarragon.operator.informers.create_backoff import is_rejected_by_server
from tarragon.plan.objects.placement import bound_place

JobId = tuple[str, Key]

ASSUMED_SECONDS = 60.0
"""Seconds for which a pod may still appear after an inconclusive answer: kube-apiserver's default request timeout."""

log = structlog.get_logger(__name__)

PodOnNode = tuple[Key, str]
"""A pod's key and its place: one pod may be requested twice, before and after its replica moves to another node."""


@dataclass(slots=True)
class _Request:
    pod: Pod
    before: str
    """The uid of the pod that had this name at the time of the request; empty if there was none."""
    until: float | None = None
    """When it expires, in the clock's monotonic seconds; None while the request is in flight."""

    @property
    def place(self) -> PodOnNode:
        return self.pod.metadata.key, bound_place(self.pod)


class AssumedPods:
    """Assumed pods by job, which is found by the owner reference. A pod is assumed until the cache shows it."""

    def __init__(self, pods: CacheReader[Pod], clock: Clock) -> None:
        self._pods = pods
        self._clock = clock
        self._requests: dict[JobId, dict[PodOnNode, _Request]] = {}
        self._handlers: list[Callable[[JobId], None]] = []
        pods.add_event_handler(self._pod_changed)

    def pods_of(self, job: JobId) -> Sequence[Pod]:
        """The job's assumed pods, as they were requested."""
        return [request.pod for request in self._requests.get(job, {}).values()]

    def all(self) -> Iterator[Pod]:
        """All assumed pods."""
        return (request.pod for _, request in self._all())

    def subscribe(self, handler: Callable[[JobId], None]) -> None:
        """Call `handler` when a job's assumed pods are added or removed, or get an expiry time."""
        self._handlers.append(handler)

    @contextmanager
    def assume(self, body: Mapping[str, object]) -> Iterator[None]:
        """Context for a create request of a pod.

        A pod without a node is ignored: it holds no resources until it is bound, unless it names a GPU that it shares.
        """
        pod = decode(encode(body), CachedPod)
        job = _job_of(pod) if pod.spec.node_name or GPU_UUID_ANNOTATION in pod.metadata.annotations else None
        if job is None:
            yield
            return
        existing = self._pods.objects.get(pod.metadata.key)
        request = _Request(pod, before="" if existing is None else existing.metadata.uid)
        earlier = self._requests.get(job, {}).get(request.place)
        self._requests.setdefault(job, {})[request.place] = request
        self._changed(job)
        is_refused = False
        try:
            yield
        except ApiError as error:
            is_refused = _is_refused(error, request)
            if not is_refused and not isinstance(error, AlreadyExists):
                # AlreadyExists is a conclusive answer: the cache will show whose pod it is.
                self._log_inconclusive(job, request)
            raise
        finally:
            request.until = self._clock.monotonic() + ASSUMED_SECONDS
            if not is_refused:
                self._expiry_known(job, request)
            elif earlier is None:
                self._drop(job, request)
            else:
                # The earlier request was not refused.
                request.until = earlier.until or request.until
                self._expiry_known(job, request)

    def drop_expired(self) -> None:
        """Drop the pods that did not appear in time."""
        now = self._clock.monotonic()
        expired = [(job, request) for job, request in self._all() if request.until is not None and request.until <= now]
        for job, request in expired:
            self._drop(job, request)
            log.info("the pod did not appear: its resources are no longer reserved", **_log_fields(job, request))

    @property
    def seconds_to_next_expiry(self) -> float | None:
        """Seconds until the next assumed pod expires; None if none does."""
        ends = [request.until for _, request in self._all() if request.until is not None]
        return max(0.0, min(ends) - self._clock.monotonic()) if ends else None

    def _all(self) -> Iterator[tuple[JobId, _Request]]:
        for job, requests in self._requests.items():
            for request in requests.values():
                yield job, request

    def _pod_changed(self, key: Key, _: Pod | None, new: Pod | None) -> None:
        job = _job_of(new) if self._requests and new is not None else None
        if job is None or new is None:
            return
        for request in list(self._requests.get(job, {}).values()):
            if (
                request.pod.metadata.key == key
                and request.before != new.metadata.uid
                and _have_one_owner(request.pod, new)
            ):
                self._drop(job, request)

    def _log_inconclusive(self, job: JobId, request: _Request) -> None:
        """Log an inconclusive answer, once per job: when a server goes away, hundreds of requests are in flight."""
        requests = self._requests.get(job, {})
        if requests.get(request.place) is request and all(each.until is None for each in requests.values()):
            fields = _log_fields(job, request)
            log.warning(
                "no answer: the pod may still appear; its resources stay reserved",
                seconds=ASSUMED_SECONDS,
                **fields,
            )

    def _expiry_known(self, job: JobId, request: _Request) -> None:
        """Notify the handlers that the assumed pod has an expiry time; no other event may follow."""
        if self._requests.get(job, {}).get(request.place) is request:
            self._changed(job)

    def _drop(self, job: JobId, request: _Request) -> None:
        requests = self._requests.get(job, {})
        if requests.get(request.place) is request:
            del requests[request.place]
            if not requests:
                del self._requests[job]
            self._changed(job)

    def _changed(self, job: JobId) -> None:
        for handler in self._handlers:
            handler(job)


def _is_refused(error: ApiError, request: _Request) -> bool:
    """Whether the server did not create the pod. AlreadyExists may be the answer to a request that was sent twice."""
    if isinstance(error, AlreadyExists):
        return bool(request.before)
    return error.code < HTTPStatus.INTERNAL_SERVER_ERROR or is_rejected_by_server(error)


def _log_fields(job: JobId, request: _Request) -> Mapping[str, str]:
    kind, key = job
    pod, node = request.place
    return {"kind": kind, "namespace": key.namespace, "job": key.name, "pod": pod.name, "node": node}


def _job_of(pod: Pod) -> JobId | None:
    """The job that controls the pod; None for other pods of ours, whose owners are no custom objects."""
    owner = pod.metadata.controller_identity
    return None if owner is None or not owner.group else (owner.kind, owner.key)


def _have_one_owner(pod: Pod, other: Pod) -> bool:
    return pod.metadata.controller_identity == other.metadata.controller_identity
