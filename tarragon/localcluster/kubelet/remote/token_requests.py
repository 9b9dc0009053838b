"""Requests tokens of pods' service accounts from an API server, as kubelets do since Kubernetes 1.21 mounts them."""

from __future__ import annotations

from typing import Any

import msgspec

from tarragon.client.port import Client
from tarragon.kube.meta import PartialObject, Resource
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.volumes.tokens import TokenProjection


class TokenRequestStatus(PartialObject, frozen=True):
    token: str = ""


class TokenRequest(PartialObject, frozen=True):
    status: TokenRequestStatus = msgspec.field(default_factory=TokenRequestStatus)


class ApiTokenIssuer:
    """The `TokenIssuer` of a node of a cluster that others run."""

    def __init__(self, cluster: Client) -> None:
        self._cluster = cluster

    async def token(self, pod: Pod, wish: TokenProjection) -> str:
        request = await self._cluster.create(_tokens_of(pod.spec.service_account_name or "default"), _body(pod, wish))
        return request.status.token


def _tokens_of(account: str) -> Resource[TokenRequest]:
    """The subresource `token`, to which requests are posted as to a collection."""
    plural = f"serviceaccounts/{account}/token"
    return Resource(group="", version="v1", plural=plural, kind="TokenRequest", model=TokenRequest)


def _body(pod: Pod, wish: TokenProjection) -> dict[str, Any]:
    metadata = pod.metadata
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"namespace": metadata.namespace},
        "spec": {
            "audiences": [wish.audience] if wish.audience else [],
            "expirationSeconds": wish.seconds,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid},
        },
    }
