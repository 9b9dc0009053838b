"""Whom the HTTP client trusts, and how it shows who it is."""

from __future__ import annotations

import datetime as dt
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tarragon.base.clock import SystemClock
from tarragon.client.errors import Unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.credentials import ClientIdentity as ShownIdentity
from tarragon.client.http.transport import RestConfig
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tarragon.localcluster.daemon.certificates import CertificateFiles, ensure_certificates
from tarragon.localcluster.home.home import Home
from tests.localcluster.apiserver.scripted_server import says, serving

POD = {"metadata": {"name": "a", "namespace": "default"}}


@dataclass
class Identity:
    """A client's certificate and key in PEM."""

    certificate: bytes
    key: bytes


@pytest.fixture
def identity() -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody")])
    now = SystemClock().now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Identity(certificate.public_bytes(pem), private)


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    home = Home(tmp_path / "home")
    home.prepare()
    return ensure_certificates(home, SystemClock().now())


@dataclass
class Changing:
    """Credentials that are changed by hand."""

    now: ShownIdentity

    async def identity(self, refused: ShownIdentity | None = None) -> ShownIdentity:  # noqa: ARG002 - as the port has it
        return self.now


@asynccontextmanager
async def server(files: CertificateFiles, *, welcome: Identity | None = None) -> AsyncIterator[RestConfig]:
    """Trusted by its authority; it lets in only whom it knows, if it knows anybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.chain, files.key)
    if welcome is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=welcome.certificate.decode())
    async with serving(says(POD), context) as script:
        yield RestConfig(url=script.url, ca_data=files.authority.read_bytes())


def talking(server: RestConfig) -> HttpClient:
    return HttpClient(server, random.Random(1))


async def read_from(server: RestConfig) -> str:
    async with HttpClient(server, random.Random(1)) as http:
        return (await http.get(PODS, Key("default", "a"))).metadata.name


async def test_a_server_is_trusted_by_the_given_authority_alone(
    files: CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(files.chain))  # what others may have set for other programs
    async with server(files) as trusted:
        assert await read_from(trusted) == "a"

        with pytest.raises(Unavailable, match=r"is not trusted: .*unable to get local issuer"):
            await read_from(replace(trusted, ca_data=b""))
        assert await read_from(replace(trusted, ca_data=b"", skip_tls_verify=True)) == "a"


async def test_the_certificate_may_be_for_another_name_than_the_address(files: CertificateFiles) -> None:
    async with server(files) as trusted:
        assert await read_from(replace(trusted, tls_server_name="kubernetes.default.svc")) == "a"

        with pytest.raises(Unavailable, match=r"is not trusted: .*elsewhere\.example"):
            await read_from(replace(trusted, tls_server_name="elsewhere.example"))


async def test_a_client_shows_its_own_certificate_and_leaves_no_key_behind(
    files: CertificateFiles, identity: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    async with server(files, welcome=identity) as strict:
        known = replace(strict, client_certificate=identity.certificate, client_key=identity.key)
        assert await read_from(known) == "a"

        with pytest.raises(Unavailable):
            await read_from(strict)
    assert list(scratch.iterdir()) == []


async def test_a_renewed_authority_is_trusted_from_the_next_connection_on(files: CertificateFiles) -> None:
    """As in a pod whose cluster gets a new one; a file that is half written is not the end."""
    good = files.authority.read_bytes()
    credentials = Changing(ShownIdentity(authority=good))
    async with server(files) as trusted, talking(replace(trusted, ca_data=b"", credentials=credentials)) as http:
        assert (await http.get(PODS, Key("default", "a"))).metadata.name == "a"
        credentials.now = ShownIdentity(authority=good[:100])
        with pytest.raises(Unavailable, match="its certificate authority is not valid PEM"):
            await http.get(PODS, Key("default", "a"))
        credentials.now = ShownIdentity(authority=good)
        assert (await http.get(PODS, Key("default", "a"))).metadata.name == "a"


async def test_a_renewed_client_certificate_is_shown_from_the_next_connection_on(
    files: CertificateFiles, identity: Identity
) -> None:
    credentials = Changing(ShownIdentity())
    async with server(files, welcome=identity) as strict, talking(replace(strict, credentials=credentials)) as http:
        with pytest.raises(Unavailable):
            await http.get(PODS, Key("default", "a"))
        credentials.now = ShownIdentity(certificate=identity.certificate, key=identity.key)
        assert (await http.get(PODS, Key("default", "a"))).metadata.name == "a"
