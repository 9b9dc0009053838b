"""The certificate files of the embedded cluster, and when they are renewed."""

from __future__ import annotations

import datetime as dt
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tarragon.kube.codec import format_time, parse_time
from tarragon.localcluster.home.home import Home, write_private_file
from tarragon.localcluster.registry.service_allocator import KUBERNETES, preferred_address

_RENEW_BEFORE = dt.timedelta(days=60)
_RENEW_NOTE = "renew after "
_ADDRESS_NOTE = "also for "
_HOSTS = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The certificate files, in PEM. Clients must trust `authority`."""

    authority: Path
    chain: Path
    key: Path


def ensure_certificates(home: Home, now: dt.datetime) -> CertificateFiles:
    """The certificate files of the home, issued if they are missing or about to expire. Raises OSError.

    The server and the client that starts it both call this: one issues them, and the other waits.
    """
    files = CertificateFiles(home.ca, home.folder / "server.crt", home.folder / "server.key")
    authority_key = home.folder / "ca.key"
    with _locked(home.certificates_lock):
        if not _is_valid(files.authority, now) or not authority_key.exists():
            _make_authority(files, authority_key, now)
        address = preferred_address(home.store_path, KUBERNETES)
        if not (_is_valid(files.chain, now) and _has_address(files.chain, address) and files.key.exists()):
            _make_server(files, authority_key, address, now)
    return files


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_valid(certificate: Path, now: dt.datetime) -> bool:
    """Whether the note above the certificate says that it is current. Parsing the certificate would slow the start."""
    with suppress(OSError, ValueError):
        first, _, rest = certificate.read_text().partition("\n")
        is_current = first.startswith(_RENEW_NOTE) and now < parse_time(first.removeprefix(_RENEW_NOTE))
        return is_current and "END CERTIFICATE" in rest
    return False


def _has_address(certificate: Path, address: str) -> bool:
    """Whether the second note above the certificate names the address."""
    return f"{_ADDRESS_NOTE}{address}\n" in certificate.read_text()


def _make_authority(files: CertificateFiles, authority_key: Path, now: dt.datetime) -> None:
    """Issue an authority. Old files go first and its certificate comes last, so that an interruption renews all."""
    # The import takes a tenth of a second and is needed once in two years.
    from tarragon.base import certificate_authority  # noqa: PLC0415

    files.chain.unlink(missing_ok=True)
    files.authority.unlink(missing_ok=True)
    issued = certificate_authority.new_authority("Tarragon local authority", now)
    write_private_file(authority_key, issued.key)
    write_private_file(files.authority, _with_note(issued.certificate, issued.expires_at))


def _make_server(files: CertificateFiles, authority_key: Path, address: str, now: dt.datetime) -> None:
    from tarragon.base import certificate_authority  # noqa: PLC0415 - as above

    files.chain.unlink(missing_ok=True)
    server = certificate_authority.ServerName(name="Tarragon local API server", hosts=(*_HOSTS, address))
    issued = certificate_authority.new_server(files.authority.read_bytes(), authority_key.read_bytes(), server, now)
    write_private_file(files.key, issued.key)
    write_private_file(
        files.chain, _with_note(f"{_ADDRESS_NOTE}{address}\n".encode() + issued.certificate, issued.expires_at)
    )


def _with_note(pem: bytes, end: dt.datetime) -> bytes:
    """Prepend a note with the time of renewal. PEM files may have text outside of the armour."""
    return f"{_RENEW_NOTE}{format_time(end - _RENEW_BEFORE)}\n".encode() + pem
