"""Service accounts of pods: the admission plugin that mounts a token, and the tokens that kubelets request."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from tarragon.kube.codec import decode
from tarragon.localcluster.api import errors
from tarragon.localcluster.auth.service_account_tokens import ISSUER, TokenAuthority, TokenSpec
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.volumes.tokens import TokenProjection
from tarragon.localcluster.storage.watch_cache import WatchCache

Json = dict[str, Any]

PLACE = "/var/run/secrets/kubernetes.io/serviceaccount"
DEFAULT = "default"
_PREFIX = "kube-api-access-"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SECONDS = 3607
"""The expiry that Kubernetes' admission plugin writes: one hour plus 7 s, which identify tokens mounted by it."""


class ServiceAccountAdmission:
    """Mounts a token into each new pod, unless the pod or its service account declines one.

    A real server rejects a pod whose service account does not exist. Here such a pod is admitted without a token:
    manifests written for another cluster name accounts that a laptop does not need.
    """

    def __init__(self, shelf: Callable[[str], WatchCache]) -> None:
        self._accounts = shelf("serviceaccounts")

    def admit(self, pod: Json) -> None:
        """Change the pod in place."""
        spec = pod.setdefault("spec", {})
        namespace = pod["metadata"].get("namespace", "")
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT
        stored = self._accounts.objects.get((namespace, name))
        if stored is not None:
            account: Json = decode(stored.body, dict)
        elif name == DEFAULT:
            account = {}  # the namespace is new, and its controller has not created the account yet
        else:
            return
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = account["imagePullSecrets"]
        if _wants_token(spec, account):
            _mount(spec)


def _wants_token(spec: Mapping[str, Any], account: Mapping[str, Any]) -> bool:
    """Whether a token is mounted: the pod's setting takes precedence over its account's."""
    for wanted in (spec.get("automountServiceAccountToken"), account.get("automountServiceAccountToken")):
        if wanted is not None:
            return bool(wanted)
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


class PodTokens:
    """The `TokenIssuer` of an embedded cluster: its kubelets get tokens in process, without a request."""

    def __init__(self, accounts: TokenAuthority) -> None:
        self._accounts = accounts

    async def token(self, pod: Pod, wish: TokenProjection) -> str:
        """Return a new token bound to the pod. Raises NotFound when the pod's service account does not exist."""
        metadata, account = pod.metadata, pod.spec.service_account_name or "default"
        if self._accounts.stored("serviceaccounts", metadata.namespace, account) is None:
            details = {"name": account, "kind": "serviceaccounts"}
            raise errors.failure(404, "NotFound", f'serviceaccounts "{account}" not found', details)
        node = self._accounts.stored("nodes", "", pod.spec.node_name)
        token, _ = self._accounts.issue(
            TokenSpec(
                namespace=metadata.namespace,
                account=account,
                audiences=(wish.audience or ISSUER,),
                seconds=wish.seconds,
                bound_kind="pod",
                bound={"name": metadata.name, "uid": metadata.uid},
                node={"name": pod.spec.node_name, "uid": node["metadata"]["uid"]} if node else {},
            )
        )
        return token
