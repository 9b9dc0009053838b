"""What `kubectl get -o yaml` printed, as its user could submit it anew."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.plugin import Dialect, Framework
from tarragon.frameworks.tensorflow.conversion.metadata import annotations_of, manifest, with_annotations
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.meta import JsonObject
from tarragon.plan.input.decode_and_validate import intake

_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_OF_BOUND_CLAIMS = ("pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/storage-provisioner")
_HEADLESS = "None"


def is_dump(body: JsonObject) -> bool:
    """Whether a server has had it: nobody else writes these."""
    metadata = body.get("metadata")
    return isinstance(metadata, Mapping) and bool({"resourceVersion", "uid"} & metadata.keys())


def job_anew(framework: Framework, body: JsonObject, dialect: Dialect | None) -> JsonObject:
    """It stays of its generation, which its version says, or else its mark."""
    if dialect is None or not is_dump(body):
        return body
    plain = {**manifest(body), "apiVersion": dialect.api_version}
    if intake(framework, plain).dialect is dialect:
        return plain
    return with_annotations(plain, {**annotations_of(plain), GENERATION_ANNOTATION: dialect.name})


def companion_anew(body: JsonObject) -> JsonObject:
    """Without the volume and the address that were found for the former one: they may be somebody else's by now."""
    if not is_dump(body):
        return body
    said, plain = annotations_of(body), manifest(body)
    spec = plain.get("spec")
    if isinstance(spec, Mapping):
        volume = {"volumeName"} if _BY_CONTROLLER in said else set()
        address = {"clusterIP", "clusterIPs"} if spec.get("clusterIP") != _HEADLESS else set()
        plain["spec"] = {name: value for name, value in spec.items() if name not in volume | address}
    kept = {name: text for name, text in annotations_of(plain).items() if not name.startswith(_OF_BOUND_CLAIMS)}
    return with_annotations(plain, kept)
