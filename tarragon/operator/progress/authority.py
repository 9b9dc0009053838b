"""The certificate of the server of reports, from an authority whose key is in a Secret of the operator's namespace.

All replicas share the authority: a pod trusts the one that its annotation names, and its reports reach any replica.
Each replica issues itself a certificate, which it keeps to itself.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import datetime as dt
from contextlib import suppress
from dataclasses import dataclass

from tarragon.client.errors import Conflict
from tarragon.client.port import Client
from tarragon.kube.core import SECRETS
from tarragon.kube.meta import Key, ObjectMeta, PartialObject

SECRET_NAME = "tarragon-progress"  # noqa: S105 - the name of an object
"""Of the Secret, and of the Service that leads to the server."""
RENEW_BEFORE = dt.timedelta(days=365)
"""The authority is replaced this long before its end. Older pods, which trust the former one, can't report then."""
_CERTIFICATE, _KEY = "ca.crt", "ca.key"


class _Secret(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


_TYPED_SECRETS = SECRETS.with_model(_Secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCertificate:
    """The server's certificate and key, and the authority that clients must trust, in PEM."""

    authority: str
    chain: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretAuthority:
    """Issues certificates for `host`. The Secret must exist; its content is written here."""

    secret: Key
    host: str

    async def certificate(self, cluster: Client, now: dt.datetime) -> ServerCertificate:
        """Issue a certificate. Raises ApiError and OSError."""
        authority = await self._authority(cluster, now)
        return await asyncio.to_thread(self._issue, authority, now)

    async def _authority(self, cluster: Client, now: dt.datetime) -> _Authority:
        found = await cluster.get(_TYPED_SECRETS, self.secret)
        current = await asyncio.to_thread(_usable, found, now)
        if current is not None:
            return current
        made = await asyncio.to_thread(_new, now)
        with suppress(Conflict):  # another replica was faster
            found = await cluster.patch(_TYPED_SECRETS, self.secret, _patch(made, found))
            return made
        return await self._authority(cluster, now)

    def _issue(self, authority: _Authority, now: dt.datetime) -> ServerCertificate:
        # The import takes a tenth of a second, and many operators serve no reports.
        from tarragon.base.certificate_authority import ServerName, new_server  # noqa: PLC0415

        server = ServerName(name="Tarragon progress reports", hosts=[self.host])
        issued = new_server(authority.certificate, authority.key, server, now)
        return ServerCertificate(authority=authority.certificate.decode(), chain=issued.certificate, key=issued.key)


def _usable(secret: _Secret, now: dt.datetime) -> _Authority | None:
    """Return the authority in the Secret; None if there is none, or if its end is near."""
    from tarragon.base.certificate_authority import ServerName, expiry, new_server  # noqa: PLC0415 - as above

    data = secret.data or {}
    try:
        certificate, key = (base64.b64decode(data[name], validate=True) for name in (_CERTIFICATE, _KEY))
        is_lasting = now + RENEW_BEFORE < expiry(certificate)
        new_server(certificate, key, ServerName(name="a trial", hosts=["localhost"]), now)
    except (KeyError, ValueError, TypeError, binascii.Error):
        return None
    return _Authority(certificate, key) if is_lasting else None


def _new(now: dt.datetime) -> _Authority:
    from tarragon.base.certificate_authority import new_authority  # noqa: PLC0415 - as above

    issued = new_authority("Tarragon progress reports", now)
    return _Authority(issued.certificate, issued.key)


def _patch(authority: _Authority, found: _Secret) -> dict[str, object]:
    encoded = {_CERTIFICATE: authority.certificate, _KEY: authority.key}
    return {
        "metadata": {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version},
        "data": {name: base64.b64encode(value).decode() for name, value in encoded.items()},
    }
