"""What manifests mean, each read once: reconciles and admission ask for the same job again and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tarragon.frameworks.plugin import Framework
from tarragon.job.phase import Phase
from tarragon.kube.codec import decode
from tarragon.kube.meta import CustomObject, Key, Struct
from tarragon.plan.input.decode_and_validate import Intake, intake


@dataclass(frozen=True, slots=True)
class _Reading:
    of: CustomObject
    taken: Intake

    def holds_for(self, found: CustomObject) -> bool:
        """Whether nothing has changed that reading looks at; a change of the status is none."""
        before, now = self.of.metadata, found.metadata
        return (
            self.of.raw_spec == found.raw_spec
            and before.uid == now.uid
            and before.labels == now.labels
            and before.annotations == now.annotations
            and before.raw_managed_fields == now.raw_managed_fields
        )


class Readings:
    """Of jobs that are not over: of those nothing is to be decided, and there may be many."""

    def __init__(self, frameworks: Mapping[str, Framework]) -> None:
        self._frameworks = frameworks
        self._read: dict[tuple[str, Key], _Reading] = {}

    def of(self, kind: str, found: CustomObject) -> Intake:
        key = kind, found.metadata.key
        known = self._read.get(key)
        if known is not None and known.holds_for(found):
            return known.taken
        taken = intake(self._frameworks[kind], found)
        if not is_over(found):
            self._read[key] = _Reading(found, taken)
        return taken

    def changed(self, kind: str, key: Key, _: CustomObject | None, new: CustomObject | None) -> None:
        """Told by the cache of jobs."""
        if new is None or is_over(new):
            self._read.pop((kind, key), None)


class _Words(Struct, frozen=True):
    state: str = ""


class _Status(Struct, frozen=True):
    tarragon: _Words = _Words()


def is_over(found: CustomObject) -> bool:
    try:
        status: _Status | None = decode(bytes(found.raw_status), _Status | None)  # type: ignore[arg-type]
    except msgspec.DecodeError:
        return False
    return status is not None and status.tarragon.state in {Phase.SUCCEEDED, Phase.FAILED}
