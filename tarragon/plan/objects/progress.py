"""Lets the programs of a pod report progress, by the contract of Kubeflow Trainer (KEP-2779).

Every container gets the address to report to, and a volume with a token and the certificate of the authority to trust.
The token is for this purpose only: it opens nothing in the API server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tarragon.kube.meta import Json, JsonObject, Key, Resource

AUDIENCE = "trainer.kubeflow.org"
URL_VARIABLE = "KUBEFLOW_TRAINER_SERVER_URL"
CA_VARIABLE = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TOKEN_VARIABLE = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable with the path of a file
MOUNT_PATH = "/var/run/secrets/kubeflow/trainer"
TOKEN_SECONDS = 3600
VOLUME = "kubeflow-trainer-token"
AUTHORITY_ANNOTATION = "tarragon.dev/progress-ca"
"""On a pod: the certificate of the authority, in PEM. A volume projects it, so that no namespace needs a ConfigMap."""

_VARIABLES = frozenset({URL_VARIABLE, CA_VARIABLE, TOKEN_VARIABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressEndpoint:
    """Where programs report progress: `https://HOST:PORT`, and the certificate of the authority to trust, in PEM."""

    url: str
    authority: str


def report_path(resource: Resource[Json], job: Key) -> str:
    """Return the path to report to: as Kubeflow Trainer's, but with the plural of the job's kind."""
    return f"/apis/{AUDIENCE}/v1alpha1/namespaces/{job.namespace}/{resource.plural}/{job.name}/status"


def with_progress_reports(body: JsonObject, url: str, endpoint: ProgressEndpoint) -> JsonObject:
    """Return the pod with what its programs need to report to `url`. What the user set or mounted there is kept."""
    spec = body["spec"]
    containers = [_with_access(each, url) for each in spec["containers"]]
    has_volume = any(volume.get("name") == VOLUME for volume in spec.get("volumes", []))
    if containers == spec["containers"] or has_volume:
        return body
    metadata = body["metadata"]
    annotations = {**metadata.get("annotations", {}), AUTHORITY_ANNOTATION: endpoint.authority}
    volumes = [*spec.get("volumes", []), _volume()]
    return {
        **body,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**spec, "containers": containers, "volumes": volumes},
    }


def _with_access(container: JsonObject, url: str) -> JsonObject:
    if not _VARIABLES.isdisjoint(variable.get("name") for variable in container.get("env", [])):
        return container
    if any(_overlaps(path) for path in _mount_paths(container)):
        return container
    values = {URL_VARIABLE: url, CA_VARIABLE: f"{MOUNT_PATH}/ca.crt", TOKEN_VARIABLE: f"{MOUNT_PATH}/token"}
    env = [*container.get("env", []), *({"name": name, "value": value} for name, value in values.items())]
    mount = {"name": VOLUME, "mountPath": MOUNT_PATH, "readOnly": True}
    return {**container, "env": env, "volumeMounts": [*container.get("volumeMounts", []), mount]}


def _mount_paths(container: JsonObject) -> Iterator[str]:
    return (str(mount.get("mountPath", "")) for mount in container.get("volumeMounts", []))


def _overlaps(path: str) -> bool:
    """Whether a mount there is ours or inside of ours. One above it, such as of /var/run, is mounted before it."""
    return f"{path.rstrip('/')}/".startswith(f"{MOUNT_PATH}/")


def _volume() -> JsonObject:
    authority = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{AUTHORITY_ANNOTATION}']"}
    return {
        "name": VOLUME,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"downwardAPI": {"items": [{"path": "ca.crt", "fieldRef": authority}]}},
            ],
        },
    }
