"""Turns the output of `kubectl get -o yaml` into manifests that can be submitted again."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.manifest_metadata import annotations_of, as_manifest, with_annotations
from tarragon.frameworks.plugin import Dialect, Framework
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.meta import JsonObject
from tarragon.plan.input.decode_and_validate import decode_and_validate

_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_OF_BOUND_CLAIMS = ("pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/storage-provisioner")
_HEADLESS = "None"


def is_exported(body: JsonObject) -> bool:
    """Whether the object was read from a server: only servers set these fields."""
    metadata = body.get("metadata")
    return isinstance(metadata, Mapping) and bool({"resourceVersion", "uid"} & metadata.keys())


def as_new_job(framework: Framework, body: JsonObject, dialect: Dialect | None) -> JsonObject:
    """Returns the job as a new manifest of the same API generation, by its apiVersion or by an annotation."""
    if dialect is None or not is_exported(body):
        return body
    plain = {**as_manifest(framework.editable_fields.without_derived_fields(body)), "apiVersion": dialect.api_version}
    if decode_and_validate(framework, plain).dialect is dialect:
        return plain
    return with_annotations(plain, {**annotations_of(plain), GENERATION_ANNOTATION: dialect.name})


def as_new_object(body: JsonObject) -> JsonObject:
    """Returns the object as a new manifest, without its bound volume and cluster IP: others may use them by now."""
    if not is_exported(body):
        return body
    annotations, plain = annotations_of(body), as_manifest(body)
    spec = plain.get("spec")
    if isinstance(spec, Mapping):
        volume = {"volumeName"} if _BY_CONTROLLER in annotations else set()
        address = {"clusterIP", "clusterIPs"} if spec.get("clusterIP") != _HEADLESS else set()
        plain["spec"] = {name: value for name, value in spec.items() if name not in volume | address}
    kept = {name: text for name, text in annotations_of(plain).items() if not name.startswith(_OF_BOUND_CLAIMS)}
    return with_annotations(plain, kept)
