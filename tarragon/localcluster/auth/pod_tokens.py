"""Tokens for pods, asked for by the kubelets of this process."""

from __future__ import annotations

from tarragon.localcluster.api import errors
from tarragon.localcluster.auth.accounts import ISSUER, Accounts, Grant
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.volumes.tokens import Wish


class PodTokens:
    """The `TokenSource` of an embedded cluster."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def token(self, pod: Pod, wish: Wish) -> str:
        """Raises NotFound."""
        metadata, account = pod.metadata, pod.spec.service_account_name or "default"
        if self._accounts.stored("serviceaccounts", metadata.namespace, account) is None:
            details = {"name": account, "kind": "serviceaccounts"}
            raise errors.failure(404, "NotFound", f'serviceaccounts "{account}" not found', details)
        node = self._accounts.stored("nodes", "", pod.spec.node_name)
        told = {"name": pod.spec.node_name, "uid": node["metadata"]["uid"]} if node else {}
        token, _ = self._accounts.issue(
            Grant(
                namespace=metadata.namespace,
                account=account,
                audiences=(wish.audience or ISSUER,),
                seconds=wish.seconds,
                bound_kind="pod",
                bound={"name": metadata.name, "uid": metadata.uid},
                node=told,
            )
        )
        return token
