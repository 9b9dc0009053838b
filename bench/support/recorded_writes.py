"""Recording of the writes that an operator makes for one job, which a bare client repeats for other jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import Client
from tarragon.kube.codec import encode
from tarragon.kube.core import LEASES
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordedWrite:
    """One write. `kind` is its verb and resource, as metrics count it."""

    kind: tuple[str, str]
    method: str
    path: str
    body: str

    def of(self, job: str, namespace: str, recorded: RecordedJob) -> RecordedWrite:
        """The same write for another job. The recorded name must not occur in any other word."""

        def moved(text: str) -> str:
            return text.replace(recorded.job, job).replace(recorded.namespace, namespace)

        return RecordedWrite(self.kind, self.method, moved(self.path), moved(self.body))


@dataclass(frozen=True, slots=True)
class RecordedJob:
    job: str
    namespace: str
    calls: Sequence[RecordedWrite]

    def steps(self, number: int, jobs: int, totals: Mapping[tuple[str, str], int]) -> Iterator[list[RecordedWrite]]:
        """The calls of job `number` of `jobs`, in batches. Over all jobs, the calls of each kind add up to the totals.

        As in the operator, creates run in batches of four, then eight and so on, and all other calls one by one.
        """
        left = {kind: (number + 1) * total // jobs - number * total // jobs for kind, total in totals.items()}
        calls = []
        for position, call in enumerate(self.calls):
            is_last = all(other.kind != call.kind for other in self.calls[position + 1 :])
            count = left.get(call.kind, 0) if is_last else min(1, left.get(call.kind, 0))
            left[call.kind] = left.get(call.kind, 0) - count
            calls += [call] * count
        batch: list[RecordedWrite] = []
        size = 4
        for call in calls:
            together = call.kind in {("create", "pods"), ("create", "services")}
            if batch and (not together or len(batch) == size):
                yield batch
                batch = []
                size = min(64, size * 2)
            batch.append(call)
            if not together:
                yield batch
                batch = []
        if batch:
            yield batch


class Recorder(DelegatingClient):
    """A cluster client that records every write except those of leases, without resourceVersion and uid."""

    def __init__(self, cluster: Client) -> None:
        super().__init__(cluster)
        self.calls: list[RecordedWrite] = []

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        path = resource.path(body["metadata"].get("namespace", ""))
        self._record(("create", resource.full_name), "POST", path, body)
        return await super().create(resource, body)

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        metadata = {
            name: value for name, value in patch.get("metadata", {}).items() if name not in {"resourceVersion", "uid"}
        }
        unconditional = {**patch, "metadata": metadata}
        name = f"{resource.full_name}/{subresource}" if subresource else resource.full_name
        self._record(("patch", name), "PATCH", resource.path(key.namespace, key.name, subresource), unconditional)
        return await super().patch(resource, key, patch, subresource=subresource)

    def _record(self, kind: tuple[str, str], method: str, path: str, body: Mapping[str, Any]) -> None:
        if kind[1] != LEASES.full_name:
            self.calls.append(RecordedWrite(kind, method, path, encode(body).decode()))
