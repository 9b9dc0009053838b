"""Recognises changes of a job's progress, which concern neither its pods nor the queue.

Ten thousand jobs may report progress. Each change that is passed over here spares a reconcile and a scheduling cycle.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tarragon.job.progress import TRAINER_STATUS
from tarragon.kube.meta import RAW_NULL, CustomObject, CustomObjectMeta, Json


def changes_progress_only(old: CustomObject, new: CustomObject) -> bool:
    """Whether the two differ in what the program reported, and in nothing else."""
    if bytes(old.raw_status) == bytes(new.raw_status) or bytes(old.raw_spec) != bytes(new.raw_spec):
        return False
    return _lasting(old.metadata) == _lasting(new.metadata) and _without_progress(old) == _without_progress(new)


def _lasting(metadata: CustomObjectMeta) -> CustomObjectMeta:
    return replace(metadata, resource_version="", raw_managed_fields=RAW_NULL)


def _without_progress(job: CustomObject) -> Json:
    status = job.status
    if not isinstance(status, Mapping):
        return status
    kept = {name: value for name, value in status.items() if name != TRAINER_STATUS}
    ours = kept.get("tarragon")
    if isinstance(ours, Mapping):
        kept["tarragon"] = {name: value for name, value in ours.items() if name != "progress"}
    return kept
