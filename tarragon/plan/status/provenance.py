"""What a job was made of: its manifest as it was submitted, the operator that took it, the images that ran."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tarragon import __version__
from tarragon.job.model import MANIFEST_ANNOTATION, ReplicaType
from tarragon.job.status import JobStatus, Provenance
from tarragon.kube.meta import CustomObject, Json, JsonObject
from tarragon.kube.patch import merged
from tarragon.plan.view.job_view import Scene


def digest(spec: Json) -> str:
    """Of the spec's canonical JSON: sorted keys, no spaces, UTF-8. `jq -cjS .spec | sha256sum` has the same.

    Empty for one that is nested deeper than Python follows: no reason to stop its job.
    """
    try:
        text = json.dumps(_plain(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:
        return ""
    return f"sha256:{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


def marks(spec: JsonObject, written: JsonObject) -> dict[str, str]:
    """Annotations to write along with fields of our own: without them, what was submitted could not be told any more.

    With both digests, so that a copy of the object that was edited is not taken for the original.
    """
    return {MANIFEST_ANNOTATION: f"{digest(spec)} {digest(merged(spec, written))}"} if written else {}


def traced(scene: Scene, status: JobStatus) -> JobStatus:
    """The manifest and the operator once, at first sight; images as nodes report them."""
    known = status.provenance or Provenance(manifest=_submitted(scene.observed.object), operator=__version__)
    images = dict(known.images)
    for image, found in _images(scene):
        # A tag may be moved while a job runs: then its replicas ran different images.
        digests = {*images.get(image, "").split(), found}
        images[image] = " ".join(sorted(digests))
    return replace(status, provenance=replace(known, images=images))


def _submitted(found: CustomObject) -> str:
    current = digest(found.spec)
    before, _, after = found.metadata.annotations.get(MANIFEST_ANNOTATION, "").partition(" ")
    return before if after == current else current


def _images(scene: Scene) -> Iterator[tuple[str, str]]:
    """Of all containers that have been pulled: the image as the manifest names it, and its digest."""
    names: dict[ReplicaType, dict[str, str]] = {
        group.type: dict(_named(group.template.get("spec", {}))) for group in scene.job.groups
    }
    for replica, member in scene.members.items():
        status = member.pod.status
        for container in (*status.init_container_statuses, *status.container_statuses):
            image = names.get(replica.type, {}).get(container.name)
            if image and container.image_id:
                yield image, _digest_of(container.image_id)


def _named(spec: JsonObject) -> Iterator[tuple[str, str]]:
    for container in (*spec.get("initContainers", []), *spec.get("containers", [])):
        yield str(container.get("name", "")), str(container.get("image", ""))


def _digest_of(image_id: str) -> str:
    """Runtimes write `sha256:…`, `docker.io/library/train@sha256:…`, `docker-pullable://train@sha256:…`."""
    return image_id.rpartition("@")[2].rpartition("://")[2]


def _plain(value: Json) -> Json:
    """An API server stores 1.0 as 1."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
