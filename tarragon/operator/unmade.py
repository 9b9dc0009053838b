"""Pods that the server was asked to make and has not answered for: whatever is decided meanwhile, they may come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Pod
from tarragon.kube.meta import Key
from tarragon.operator.kept import KeptPod

JobId = tuple[str, Key]


class Unmade:
    """By job, whose name and kind the pods' owner says."""

    def __init__(self) -> None:
        self._pods: dict[JobId, dict[Key, Pod]] = {}
        self._handlers: list[Callable[[JobId], None]] = []

    def of(self, job: JobId) -> Sequence[Pod]:
        """As they were asked for."""
        return list(self._pods.get(job, {}).values())

    def subscribe(self, handler: Callable[[JobId], None]) -> None:
        """Call `handler` whenever a job has one more of them, or one less."""
        self._handlers.append(handler)

    @contextmanager
    def making(self, body: Mapping[str, object]) -> Iterator[None]:
        """Around the request for a pod."""
        pod = decode(encode(body), KeptPod)
        owner = pod.metadata.controller
        if owner is None:
            yield
            return
        key = pod.metadata.key
        job = owner.kind, Key(key.namespace, owner.name)
        self._pods.setdefault(job, {})[key] = pod
        self._changed(job)
        try:
            yield
        finally:
            del self._pods[job][key]
            if not self._pods[job]:
                del self._pods[job]
            self._changed(job)

    def _changed(self, job: JobId) -> None:
        for handler in self._handlers:
            handler(job)
