"""Caches decoded manifests, because reconciles and scheduling cycles read the same job again and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tarragon.frameworks.dialect_detection import recorded_generation, with_applied_version_only
from tarragon.frameworks.plugin import Framework
from tarragon.job.phase import Phase
from tarragon.kube.codec import decode
from tarragon.kube.meta import CustomObject, Key, PartialObject
from tarragon.plan.input.decode_and_validate import DecodedJob, decode_and_validate


@dataclass(frozen=True, slots=True)
class _Entry:
    of: CustomObject
    taken: DecodedJob

    def holds_for(self, job: CustomObject) -> bool:
        """Whether everything that decoding reads is unchanged: of the status, that is the generation."""
        before, now = self.of.metadata, job.metadata
        return (
            self.of.raw_spec == job.raw_spec
            and before.uid == now.uid
            and before.labels == now.labels
            and with_applied_version_only(before.annotations) == with_applied_version_only(now.annotations)
            and self._is_recognised_alike(job)
        )

    def _is_recognised_alike(self, job: CustomObject) -> bool:
        """Whether the job is taken for the same generation, because it is on record or because nothing has changed."""
        recorded = recorded_generation(job)
        if recorded is not None:
            return self.taken.dialect is not None and self.taken.dialect.name == recorded
        return (
            recorded_generation(self.of) is None
            and self.of.metadata.raw_managed_fields == job.metadata.raw_managed_fields
        )


class DecodeCache:
    """Decoded manifests of unfinished jobs. Finished jobs, of which there may be many, need no decisions."""

    def __init__(self, frameworks: Mapping[str, Framework]) -> None:
        self._frameworks = frameworks
        self._entries: dict[tuple[str, Key], _Entry] = {}

    def decoded(self, kind: str, job: CustomObject) -> DecodedJob:
        key = kind, job.metadata.key
        cached = self._entries.get(key)
        if cached is not None and cached.holds_for(job):
            if cached.of is not job:
                self._entries[key] = _Entry(job, cached.taken)  # so that the earlier state, which is larger, can go
            return cached.taken
        taken = decode_and_validate(self._frameworks[kind], job)
        if not is_finished(job):
            self._entries[key] = _Entry(job, taken)
        return taken

    def on_job_change(self, kind: str, key: Key, _: CustomObject | None, new: CustomObject | None) -> None:
        """Handler for changes in the job cache."""
        if new is None or is_finished(new):
            self._entries.pop((kind, key), None)


class _TarragonStatus(PartialObject, frozen=True):
    state: str = ""


class _Status(PartialObject, frozen=True):
    tarragon: _TarragonStatus = _TarragonStatus()


def is_finished(job: CustomObject) -> bool:
    try:
        status: _Status | None = decode(bytes(job.raw_status), _Status | None)  # type: ignore[arg-type]
    except msgspec.DecodeError:
        return False
    return status is not None and status.tarragon.state in {Phase.SUCCEEDED, Phase.FAILED}
