from __future__ import annotations

import asyncio
import datetime as dt
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from tarragon.localcluster.daemon.certificates import CertificateFiles, ensure_certificates
from tarragon.localcluster.home.home import Home

NOW = dt.datetime.now(dt.UTC)  # noqa: TID251 - TLS looks at the real clock, too
YEAR = dt.timedelta(days=365)


async def shake_hands(files: CertificateFiles, name: str) -> str:
    """The answer of a server with our certificate to a client that trusts only our authority."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(files.chain, files.key)
    outside = ssl.create_default_context(cafile=str(files.authority))
    outside.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=inside)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=outside, server_hostname=name)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return answer.decode()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "kubernetes.default.svc"])
async def test_a_client_that_trusts_the_authority_trusts_the_server(tmp_path: Path, name: str) -> None:
    assert await shake_hands(ensure_certificates(Home(tmp_path), NOW), name) == "hello"


async def test_other_host_names_are_not_trusted(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await shake_hands(ensure_certificates(Home(tmp_path), NOW), "example.org")


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    ensure_certificates(Home(tmp_path), NOW)

    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_a_server_and_the_client_that_starts_it_agree_on_one_authority(tmp_path: Path) -> None:
    both = (asyncio.to_thread(ensure_certificates, Home(tmp_path), NOW) for _ in range(2))
    first, _ = await asyncio.gather(*both)

    assert await shake_hands(first, "localhost") == "hello"


def test_valid_certificates_are_kept(tmp_path: Path) -> None:
    ensure_certificates(Home(tmp_path), NOW)
    before = content(tmp_path)
    ensure_certificates(Home(tmp_path), NOW + YEAR)

    assert content(tmp_path) == before


async def test_an_expiring_server_certificate_is_renewed_without_breaking_clients(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ensure_certificates(home, NOW - 2 * YEAR)
    before = content(tmp_path)
    files = ensure_certificates(home, NOW)

    assert home.ca.read_bytes() == before["ca.crt"]
    assert files.chain.read_bytes() != before["server.crt"]
    assert await shake_hands(files, "127.0.0.1") == "hello"


def test_a_server_certificate_does_not_outlive_its_authority(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ensure_certificates(home, NOW - 9 * YEAR)
    files = ensure_certificates(home, NOW)

    server = x509.load_pem_x509_certificate(files.chain.read_bytes())
    authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
    assert server.not_valid_after_utc <= authority.not_valid_after_utc


@pytest.mark.parametrize("lost", ["ca.crt", "ca.key", "server.crt", "server.key"])
async def test_lost_certificate_files_are_created_again(tmp_path: Path, lost: str) -> None:
    ensure_certificates(Home(tmp_path), NOW)
    (tmp_path / lost).unlink()

    assert await shake_hands(ensure_certificates(Home(tmp_path), NOW), "127.0.0.1") == "hello"


@pytest.mark.parametrize("cut", ["ca.crt", "server.crt"])
async def test_a_truncated_certificate_is_created_again(tmp_path: Path, cut: str) -> None:
    ensure_certificates(Home(tmp_path), NOW)
    (tmp_path / cut).write_bytes((tmp_path / cut).read_bytes()[:100])

    assert await shake_hands(ensure_certificates(Home(tmp_path), NOW), "127.0.0.1") == "hello"
