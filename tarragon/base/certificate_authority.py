"""Certificate authorities of our own, and their certificates. Import this late: it imports cryptography."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_AUTHORITY_LIFE = dt.timedelta(days=3650)
_SERVER_LIFE = dt.timedelta(days=700)
_SKEW = dt.timedelta(days=1)
"""Certificates are valid from this long ago, because clocks are set back and virtual machines wake up late."""


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate and its key in PEM, and the time at which the certificate expires."""

    certificate: bytes
    key: bytes
    expires_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerName:
    """What a server is called in its certificate, and the host names and IP addresses at which clients reach it."""

    name: str
    hosts: Sequence[str]


def new_authority(name: str, now: dt.datetime) -> IssuedCertificate:
    key = ec.generate_private_key(ec.SECP256R1())
    # The name has a random number, so that clients do not mistake this authority for an older one.
    subject = _name(f"{name} {x509.random_serial_number() % 10**9}")
    end = now + _AUTHORITY_LIFE
    certificate = (
        _builder(subject, key.public_key(), now, end)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(_signed_by(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _encoded(certificate, key, end)


def new_server(
    authority_certificate: bytes, authority_key: bytes, server: ServerName, now: dt.datetime
) -> IssuedCertificate:
    """A certificate for all hosts of the server. Raises ValueError if the authority is invalid."""
    authority = x509.load_pem_x509_certificate(authority_certificate)
    signing = load_pem_private_key(authority_key, None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise TypeError("the key of the certificate authority is not an elliptic-curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + _SERVER_LIFE, authority.not_valid_after_utc)
    certificate = (
        _builder(_name(server.name), key.public_key(), now, end)
        .issuer_name(authority.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(each) for each in server.hosts]), critical=False)
        .add_extension(_signed_by(signing.public_key()), critical=False)
        .sign(signing, hashes.SHA256())
    )
    return _encoded(certificate, key, end)


def new_kubelet(node: str, address: str, now: dt.datetime) -> IssuedCertificate:
    """A self-signed certificate, as a kubelet generates one that was given none."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(node)
    end = now + _SERVER_LIFE
    subject_names: list[x509.GeneralName] = [x509.DNSName(node), x509.IPAddress(ipaddress.ip_address(address))]
    certificate = (
        _builder(name, key.public_key(), now, end)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(subject_names), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _encoded(certificate, key, end)


def expiry(certificate: bytes) -> dt.datetime:
    """When the certificate expires. Raises ValueError if it is none."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime, end: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _signed_by(key: ec.EllipticCurvePublicKey) -> x509.AuthorityKeyIdentifier:
    """The authority key identifier. Python 3.13 verifies strictly and requires it in every certificate."""
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _encoded(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, end: dt.datetime) -> IssuedCertificate:
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return IssuedCertificate(certificate.public_bytes(Encoding.PEM), plain, end)
