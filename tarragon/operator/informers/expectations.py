"""Pods that may come: the server was asked to make them, and has not refused. Whatever is decided meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, ApiError
from tarragon.client.informer.cache_reader import Live
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Pod
from tarragon.kube.meta import Key
from tarragon.operator.informers.cache_transforms import KeptPod
from tarragon.operator.queue.refused_writes import is_refusal

JobId = tuple[str, Key]

LATEST_SECONDS = 60.0
"""So long after no answer, or one that says nothing of what was done, a pod may come: what a kube-apiserver gives a
request."""

log = structlog.get_logger(__name__)

Place = tuple[Key, str]
"""Of a pod, and the node that it was to be on: it may have been asked for twice, before and after it was moved."""


@dataclass(slots=True)
class _Asked:
    pod: Pod
    before: str
    """The uid of the one that had its name when it was asked for."""
    until: float | None = None
    """Of the clock's monotonic seconds; None while the request is under way."""

    @property
    def place(self) -> Place:
        return self.pod.metadata.key, self.pod.spec.node_name


class Unmade:
    """By job, whose name and kind the pods' owner says. One that the cache shows has come."""

    def __init__(self, pods: Live[Pod], clock: Clock) -> None:
        self._pods = pods
        self._clock = clock
        self._asked: dict[JobId, dict[Place, _Asked]] = {}
        self._handlers: list[Callable[[JobId], None]] = []
        pods.subscribe(self._shown)

    def of(self, job: JobId) -> Sequence[Pod]:
        """As they were asked for."""
        return [asked.pod for asked in self._asked.get(job, {}).values()]

    def subscribe(self, handler: Callable[[JobId], None]) -> None:
        """Call `handler` whenever a job has one more of them, or one less, or it is known when it will."""
        self._handlers.append(handler)

    @contextmanager
    def making(self, body: Mapping[str, object]) -> Iterator[None]:
        """Around the request for a pod. One that others place takes no place from anybody before it is bound."""
        pod = decode(encode(body), KeptPod)
        job = _job_of(pod) if pod.spec.node_name else None
        if job is None:
            yield
            return
        known = self._pods.objects.get(pod.metadata.key)
        asked = _Asked(pod, before="" if known is None else known.metadata.uid)
        earlier = self._asked.get(job, {}).get(asked.place)
        self._asked.setdefault(job, {})[asked.place] = asked
        self._changed(job)
        is_refused = False
        try:
            yield
        except ApiError as error:
            is_refused = _is_refused(error, asked)
            if not is_refused and not isinstance(error, AlreadyExists):
                # That one is there already is an answer: whose it is, the cache will show.
                self._tell(job, asked)
            raise
        finally:
            asked.until = self._clock.monotonic() + LATEST_SECONDS
            if not is_refused:
                self._end_is_known(job, asked)
            elif earlier is None:
                self._drop(job, asked)
            else:
                # Nobody has refused that one.
                asked.until = earlier.until or asked.until
                self._end_is_known(job, asked)

    def give_up(self) -> None:
        """Those that might have come, and have not."""
        now = self._clock.monotonic()
        late = [(job, asked) for job, asked in self._all() if asked.until is not None and asked.until <= now]
        for job, asked in late:
            self._drop(job, asked)
            log.info("the pod has not come: its place is kept no longer", **_words(job, asked))

    @property
    def pause(self) -> float | None:
        """Seconds until there are some to give up, as things are."""
        ends = [asked.until for _, asked in self._all() if asked.until is not None]
        return max(0.0, min(ends) - self._clock.monotonic()) if ends else None

    def _all(self) -> Iterator[tuple[JobId, _Asked]]:
        for job, several in self._asked.items():
            for asked in several.values():
                yield job, asked

    def _shown(self, key: Key, _: Pod | None, new: Pod | None) -> None:
        job = None if new is None else _job_of(new)
        if job is None or new is None:
            return
        for asked in list(self._asked.get(job, {}).values()):
            if asked.pod.metadata.key == key and asked.before != new.metadata.uid and _have_one_owner(asked.pod, new):
                self._drop(job, asked)

    def _tell(self, job: JobId, asked: _Asked) -> None:
        """Unless it has come; and once for all pods of a job: where a server goes away, hundreds are under way."""
        several = self._asked.get(job, {})
        if several.get(asked.place) is asked and all(each.until is None for each in several.values()):
            words = _words(job, asked)
            log.warning("no answer: the pod may still come, and its place is kept", seconds=LATEST_SECONDS, **words)

    def _end_is_known(self, job: JobId, asked: _Asked) -> None:
        """Nothing else may tell whoever waits for the place until when that is."""
        if self._asked.get(job, {}).get(asked.place) is asked:
            self._changed(job)

    def _drop(self, job: JobId, asked: _Asked) -> None:
        several = self._asked.get(job, {})
        if several.get(asked.place) is asked:
            del several[asked.place]
            if not several:
                del self._asked[job]
            self._changed(job)

    def _changed(self, job: JobId) -> None:
        for handler in self._handlers:
            handler(job)


def _is_refused(error: ApiError, asked: _Asked) -> bool:
    """Whether the server has said that it did not make it. That there is one may be news of a request sent twice."""
    if isinstance(error, AlreadyExists):
        return bool(asked.before)
    return error.code < HTTPStatus.INTERNAL_SERVER_ERROR or is_refusal(error)


def _words(job: JobId, asked: _Asked) -> Mapping[str, str]:
    kind, key = job
    pod, node = asked.place
    return {"kind": kind, "namespace": key.namespace, "job": key.name, "pod": pod.name, "node": node}


def _job_of(pod: Pod) -> JobId | None:
    owner = pod.metadata.controlled_by
    return None if owner is None else (owner.kind, owner.key)


def _have_one_owner(pod: Pod, other: Pod) -> bool:
    return pod.metadata.controlled_by == other.metadata.controlled_by
