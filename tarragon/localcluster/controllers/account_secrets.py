"""Fills Secrets of type kubernetes.io/service-account-token with a token that is valid as long as the Secret exists.

A Secret whose service account is gone is deleted.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tarragon.base.clock import Clock
from tarragon.client.errors import NotFound
from tarragon.client.port import Client, DeleteOptions, Selector
from tarragon.kube.core import SECRETS, SERVICE_ACCOUNTS
from tarragon.kube.meta import Key, ObjectMeta, PartialObject, PartialObjectMetadata
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.reconcile_queue import ReconcileQueue

TYPE = "kubernetes.io/service-account-token"
ACCOUNT_NAME = "kubernetes.io/service-account.name"
ACCOUNT_UID = "kubernetes.io/service-account.uid"

Sign = Callable[[str, Mapping[str, Any], str], str]
"""Signs a token, given a namespace, an account's name and uid, and the name of the Secret."""


class TokenSecret(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class AccountSecretController:
    """Fills token Secrets. `authority` is the certificate of the API server's CA, as PEM."""

    def __init__(self, cluster: Client, sign: Sign, authority: str, clock: Clock, jitter: random.Random) -> None:
        self._cluster = cluster
        self._sign = sign
        self._authority = authority
        ours = Selector(field_selector=f"type={TYPE}")
        self._secrets = logged_cache(cluster, SECRETS.with_model(TokenSecret), clock, jitter, ours)
        self._accounts = logged_cache(cluster, SERVICE_ACCOUNTS, clock, jitter)
        self._queue: ReconcileQueue[Key] = ReconcileQueue(clock)
        self._secrets.add_event_handler(self._follow_secret)
        self._accounts.add_event_handler(self._follow_account)

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._secrets.run())
            tasks.create_task(self._accounts.run())
            await self._secrets.wait_for_sync()
            await self._accounts.wait_for_sync()
            tasks.create_task(self._queue.run(self._reconcile))

    def _follow_secret(self, key: Key, _old: TokenSecret | None, new: TokenSecret | None) -> None:
        if new is not None:
            self._queue.add(key)

    def _follow_account(self, key: Key, _old: PartialObjectMetadata | None, _new: PartialObjectMetadata | None) -> None:
        for secret, found in self._secrets.objects.items():
            if secret.namespace == key.namespace and found.metadata.annotations.get(ACCOUNT_NAME) == key.name:
                self._queue.add(secret)

    async def _reconcile(self, key: Key) -> None:
        secret = self._secrets.objects.get(key)
        if secret is None or secret.metadata.is_being_deleted:
            return
        account = await self._account(key.namespace, secret.metadata.annotations.get(ACCOUNT_NAME, ""))
        known = secret.metadata.annotations.get(ACCOUNT_UID)
        with suppress(NotFound):
            if account is None or known not in {None, account.metadata.uid}:
                await self._cluster.delete(SECRETS, key, DeleteOptions(uid=secret.metadata.uid))
            elif known is None or not {"ca.crt", "namespace", "token"} <= secret.data.keys():
                await self._fill(key, secret, account)

    async def _account(self, namespace: str, name: str) -> PartialObjectMetadata | None:
        """Read the account from the API: the cache may lag behind an account that was created with its Secret."""
        try:
            return await self._cluster.get(SERVICE_ACCOUNTS, Key(namespace, name))
        except NotFound:
            return None

    async def _fill(self, key: Key, secret: TokenSecret, account: PartialObjectMetadata) -> None:
        about = {"name": account.metadata.name, "uid": account.metadata.uid}
        texts = {
            "ca.crt": self._authority,
            "namespace": key.namespace,
            "token": self._sign(key.namespace, about, key.name),
        }
        change = {
            "metadata": {
                "uid": secret.metadata.uid,
                "resourceVersion": secret.metadata.resource_version,
                "annotations": {ACCOUNT_UID: account.metadata.uid},
            },
            "data": {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()},
        }
        await self._cluster.patch(SECRETS, key, change)
