"""Turns a live TFJob into a manifest, as for any kind, and without its derived runtime id."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.manifest_metadata import as_manifest
from tarragon.frameworks.plugin import Manifest
from tarragon.frameworks.tensorflow.replica_list.decoding import RUNTIME_ID
from tarragon.frameworks.tensorflow.replica_list.runtime_id import runtime_id
from tarragon.kube.meta import Json


def manifest(found: Manifest) -> dict[str, Json]:
    """The job as a user could submit it again."""
    return as_manifest(without_derived_id(found))


def without_derived_id(found: Manifest) -> Manifest:
    """The job without a runtime id that was derived from its uid, because a new job gets its own."""
    spec, metadata = found.get("spec"), found.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(uid, str) or spec.get(RUNTIME_ID) != runtime_id(uid):
        return found
    return {**found, "spec": {name: value for name, value in spec.items() if name != RUNTIME_ID}}
