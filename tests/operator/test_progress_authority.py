"""The certificate authority of the server of reports, which the operators of a cluster share through a Secret."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from tarragon.base.certificate_authority import new_authority
from tarragon.client.errors import NotFound
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.kube.core import SECRETS
from tarragon.kube.meta import Key
from tarragon.operator.progress.authority import RENEW_BEFORE, SecretAuthority
from tests.operator.stage import Stage

KEY = Key("default", "tarragon-progress")
NOW = dt.datetime(2026, 11, 24, tzinfo=dt.UTC)


def authority() -> SecretAuthority:
    """That of one operator."""
    return SecretAuthority(secret=KEY, host="tarragon-progress.default.svc")


async def make_secret(stage: Stage, **data: bytes) -> None:
    encoded = {name.replace("_", "."): base64.b64encode(value).decode() for name, value in data.items()}
    await stage.world.create(SECRETS, KEY.name, type="Opaque", data=encoded)


async def test_the_authority_is_written_once_and_all_operators_use_it(stage: Stage) -> None:
    await make_secret(stage)
    client = stage.world.client
    first = await authority().certificate(client, NOW)
    before = await client.get(SECRETS.with_model(dict), KEY)
    second = await authority().certificate(client, NOW)
    after = await client.get(SECRETS.with_model(dict), KEY)

    assert first.authority == second.authority
    assert before == after
    assert base64.b64decode(after["data"]["ca.crt"]).decode() == first.authority


async def test_the_certificate_is_for_the_host_and_passes_the_strict_checks_of_python_3_13(stage: Stage) -> None:
    await make_secret(stage)
    issued = await authority().certificate(stage.world.client, NOW)
    chain = x509.load_pem_x509_certificate(issued.chain)
    trusted = x509.load_pem_x509_certificate(issued.authority.encode())
    verifier = PolicyBuilder().store(Store([trusted])).time(NOW)

    assert verifier.build_server_verifier(x509.DNSName("tarragon-progress.default.svc")).verify(chain, [])
    with pytest.raises(VerificationError):
        verifier.build_server_verifier(x509.DNSName("elsewhere.default.svc")).verify(chain, [])


@pytest.mark.parametrize("data", [{"ca_crt": b"x"}, {"ca_crt": b"x", "ca_key": b"y"}])
async def test_a_secret_that_makes_no_sense_is_filled_anew(stage: Stage, data: dict[str, bytes]) -> None:
    await make_secret(stage, **data)

    assert "BEGIN CERTIFICATE" in (await authority().certificate(stage.world.client, NOW)).authority


async def test_an_authority_is_replaced_before_its_end(stage: Stage) -> None:
    made = new_authority("old", NOW)
    await make_secret(stage, ca_crt=made.certificate, ca_key=made.key)
    client = stage.world.client
    lasting = await authority().certificate(client, made.expires_at - RENEW_BEFORE - dt.timedelta(days=1))
    ending = await authority().certificate(client, made.expires_at - RENEW_BEFORE)

    assert lasting.authority == made.certificate.decode()
    assert ending.authority != lasting.authority


async def test_of_two_operators_that_begin_together_one_decides(stage: Stage) -> None:
    await make_secret(stage)

    class Late(DelegatingClient):
        """Another operator writes between its read and its write."""

        others = ""

        async def patch(self, resource: Any, key: Any, patch: Any, *, subresource: str = "") -> Any:
            if not self.others:
                self.others = (await authority().certificate(stage.world.client, NOW)).authority
            return await super().patch(resource, key, patch, subresource=subresource)

    late = Late(stage.world.client)

    assert (await authority().certificate(late, NOW)).authority == late.others


async def test_a_secret_that_is_missing_is_said_to_be(stage: Stage) -> None:
    with pytest.raises(NotFound, match="tarragon-progress"):
        await authority().certificate(stage.world.client, NOW)
