"""What the ServiceAccount admission does to a new pod: its account's token is mounted, where it wants that."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from tarragon.kube.codec import decode
from tarragon.localcluster.api import errors
from tarragon.localcluster.kinds.resource import Served
from tarragon.localcluster.storage.history import Shelf

Json = dict[str, Any]

PLACE = "/var/run/secrets/kubernetes.io/serviceaccount"
DEFAULT = "default"
_PREFIX = "kube-api-access-"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SECONDS = 3607
"""As a real server writes it: an hour, and a mark by which to know it."""


class PodAccounts:
    """`is_strict` refuses a pod whose account is not there, as a real server does.

    Otherwise it runs without a token: where everybody may do everything, accounts in manifests are mere names.
    """

    def __init__(self, shelf: Callable[[str], Shelf], *, is_strict: bool) -> None:
        self._accounts = shelf("serviceaccounts")
        self._is_strict = is_strict

    def admit(self, served: Served, pod: Json) -> None:
        """Changes the pod. Raises Forbidden."""
        spec = pod.setdefault("spec", {})
        namespace = pod["metadata"].get("namespace", "")
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT
        stored = self._accounts.objects.get((namespace, name))
        if stored is not None:
            account: Json = decode(stored.body, dict)
        elif name == DEFAULT:
            account = {}  # a controller makes it: the namespace is a moment old
        elif self._is_strict:
            why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
            raise errors.forbidden(served, pod["metadata"].get("name", ""), why)
        else:
            return
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = account["imagePullSecrets"]
        if _wants_token(spec, account):
            _mount(spec)


def _wants_token(spec: Mapping[str, Any], account: Mapping[str, Any]) -> bool:
    """The pod's word goes before its account's."""
    for said in (spec.get("automountServiceAccountToken"), account.get("automountServiceAccountToken")):
        if said is not None:
            return bool(said)
    return True


def _mount(spec: Json) -> None:
    volumes: list[Json] = spec.get("volumes") or []
    name = next((one["name"] for one in volumes if str(one.get("name", "")).startswith(_PREFIX)), "")
    is_new = not name
    name = name or _PREFIX + "".join(secrets.choice(_LETTERS) for _ in range(5))
    is_needed = False
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        mounts: list[Json] = container.get("volumeMounts") or []
        if not isinstance(container, dict) or any(mount.get("mountPath") == PLACE for mount in mounts):
            continue
        container["volumeMounts"] = [*mounts, {"name": name, "readOnly": True, "mountPath": PLACE}]
        is_needed = True
    if is_new and is_needed:
        spec["volumes"] = [*volumes, _volume(name)]


def _volume(name: str) -> Json:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": _SECONDS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [namespace]}},
            ],
        },
    }
