"""The files of the embedded cluster's certificates: which there are, and when they are made anew."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tarragon.kube.codec import moment, timestamp
from tarragon.localcluster.home.home import Home, write_private
from tarragon.localcluster.registry.service_addresses import KUBERNETES, address_of

_RENEW_BEFORE = dt.timedelta(days=60)
_MARK = "renew after "
_PLACE = "also for "


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM. `authority` is what clients have to trust."""

    authority: Path
    chain: Path
    key: Path


def certificates(home: Home, now: dt.datetime) -> Certificates:
    """Those of the home; made, or made anew, when they are missing or near their end. Raises OSError."""
    files = Certificates(home.ca, home.folder / "server.crt", home.folder / "server.key")
    authority_key = home.folder / "ca.key"
    if not _is_good(files.authority, now) or not authority_key.exists():
        _make_authority(files, authority_key, now)
    address = address_of(home.store, KUBERNETES)
    if not (_is_good(files.chain, now) and _names(files.chain, address) and files.key.exists()):
        _make_server(files, authority_key, address, now)
    return files


def _is_good(certificate: Path, now: dt.datetime) -> bool:
    """By the note above the certificate: to read what is in it takes a library, and starting is to be quick."""
    with suppress(OSError, ValueError):
        first, _, rest = certificate.read_text().partition("\n")
        return first.startswith(_MARK) and now < moment(first.removeprefix(_MARK)) and "END CERTIFICATE" in rest
    return False


def _names(certificate: Path, address: str) -> bool:
    """By the second note."""
    return f"{_PLACE}{address}\n" in certificate.read_text()


def _make_authority(files: Certificates, authority_key: Path, now: dt.datetime) -> None:
    """What it signed goes first and the certificate comes last: if we are stopped in between, all are made anew."""
    # A tenth of a second, needed once in two years.
    from tarragon.localcluster.home import certificate_authority  # noqa: PLC0415

    files.chain.unlink(missing_ok=True)
    files.authority.unlink(missing_ok=True)
    made = certificate_authority.new_authority(now)
    write_private(authority_key, made.key)
    write_private(files.authority, _noted(made.certificate, made.end))


def _make_server(files: Certificates, authority_key: Path, address: str, now: dt.datetime) -> None:
    from tarragon.localcluster.home import certificate_authority  # noqa: PLC0415 - as above

    files.chain.unlink(missing_ok=True)
    made = certificate_authority.new_server(files.authority.read_bytes(), authority_key.read_bytes(), address, now)
    write_private(files.key, made.key)
    write_private(files.chain, _noted(f"{_PLACE}{address}\n".encode() + made.certificate, made.end))


def _noted(pem: bytes, end: dt.datetime) -> bytes:
    """Text outside of the armour is allowed in PEM files, and ignored."""
    return f"{_MARK}{timestamp(end - _RENEW_BEFORE)}\n".encode() + pem
