"""Records a job's provenance: the digest of the submitted manifest, the operator version, the image digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tarragon import __version__
from tarragon.job.model import MANIFEST_ANNOTATION, ReplicaType
from tarragon.job.status import JobStatus, Provenance
from tarragon.kube.merge_patch import apply_merge_patch
from tarragon.kube.meta import CustomObject, Json, JsonObject
from tarragon.plan.view.job_view import JobView


def spec_digest(spec: Json) -> str:
    """Return the SHA-256 of the spec's canonical JSON (sorted keys, no spaces, UTF-8), as `jq -cjS .spec | sha256sum`.

    Empty for a spec that is nested deeper than Python's recursion limit: that is no reason to stop the job.
    """
    try:
        text = json.dumps(_normalized(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:
        return ""
    return f"sha256:{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


def provenance_annotations(spec: JsonObject, spec_patch: JsonObject) -> dict[str, str]:
    """Return the annotation that keeps the digest of the submitted spec when the operator writes fields into it.

    It has the digests before and after the write, so that an edited copy of the object is not taken for the original.
    """
    return (
        {MANIFEST_ANNOTATION: f"{spec_digest(spec)} {spec_digest(apply_merge_patch(spec, spec_patch))}"}
        if spec_patch
        else {}
    )


def record_provenance(view: JobView, status: JobStatus) -> JobStatus:
    """Record manifest and operator version on the first reconcile, and image digests as nodes report them."""
    provenance = status.provenance or Provenance(
        manifest_digest=_submitted_digest(view.observed.object), operator_version=__version__
    )
    images = dict(provenance.image_digests)
    for image, image_digest in _images(view):
        # A tag may move while a job runs: then its replicas ran different images, and all digests are kept.
        known = images.get(image, image_digest)
        # A node that runs processes reports a folder, whose name may have spaces.
        images[image] = known if known == image_digest else " ".join(sorted({*known.split(), image_digest}))
    return replace(status, provenance=replace(provenance, image_digests=images))


def _submitted_digest(found: CustomObject) -> str:
    current_digest = spec_digest(found.spec)
    submitted, _, rewritten = found.metadata.annotations.get(MANIFEST_ANNOTATION, "").partition(" ")
    return submitted if rewritten == current_digest else current_digest


def _images(view: JobView) -> Iterator[tuple[str, str]]:
    """Yield the image as the manifest names it and its digest, for all containers whose image was pulled."""
    names: dict[ReplicaType, dict[str, str]] = {
        group.type: dict(_container_images(group.template.get("spec", {}))) for group in view.job.replica_specs
    }
    for replica, member in view.members.items():
        status = member.pod.status
        for container in (*status.init_container_statuses, *status.container_statuses):
            image = names.get(replica.type, {}).get(container.name)
            if image and container.image_id:
                yield image, _digest_of(container.image_id)


def _container_images(spec: JsonObject) -> Iterator[tuple[str, str]]:
    for container in (*spec.get("initContainers", []), *spec.get("containers", [])):
        yield str(container.get("name", "")), str(container.get("image", ""))


def _digest_of(image_id: str) -> str:
    """Return the digest: `sha256:…`, or what follows the `@` in `docker.io/library/train@sha256:…` and the like.

    Some runtimes write `docker-pullable://train@sha256:…`. A node that runs processes reports a folder.
    """
    return image_id if image_id.startswith("/") else image_id.rpartition("@")[2].rpartition("://")[2]


def _normalized(value: Json) -> Json:
    """Return the value with integral floats as integers: an API server stores 1.0 as 1."""
    if isinstance(value, Mapping):
        return {name: _normalized(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_normalized(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
