"""Remembers which jobs Tarragon managed when the record of it was lost: somebody has overwritten their status."""

from __future__ import annotations

from tarragon.frameworks.dialect_detection import recorded_generation
from tarragon.kube.meta import CustomObject, Key


class LostRecords:
    """The uids of such jobs. In memory: an operator that starts later takes their pods for those of another one."""

    def __init__(self) -> None:
        self._uids: set[str] = set()

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def on_job_change(self, _: Key, old: CustomObject | None, new: CustomObject | None) -> None:
        """Handler for changes in the job caches."""
        if new is None or recorded_generation(new) is not None:
            if old is not None:
                self._uids.discard(old.metadata.uid)
        elif old is not None and recorded_generation(old) is not None:
            self._uids.add(new.metadata.uid)
