"""The ES256 key that signs a home's service account tokens. It is generated when it is first needed.

`cryptography` is imported only when a token is signed or verified, so that the server starts quickly.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tarragon.kube.codec import decode, encode
from tarragon.localcluster.home.home import write_private_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ALGORITHM = "ES256"
_HALF = 32
"""The length in bytes of each of the two numbers in a signature."""
_PARTS = 3
_LONGEST = 16 * 1024

Claims = dict[str, Any]


class SigningKey:
    """A signing key in the PEM file `path`, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def sign(self, claims: Mapping[str, Any]) -> str:
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature  # noqa: PLC0415 - see above

        head = _text(encode({"alg": ALGORITHM, "kid": self.identity}))
        signed = f"{head}.{_text(encode(claims))}"
        first, second = decode_dss_signature(self._key.sign(signed.encode(), _method()))
        return f"{signed}.{_text(first.to_bytes(_HALF, 'big') + second.to_bytes(_HALF, 'big'))}"

    def read(self, token: str) -> Claims | None:
        """Return the claims of a token that this key has signed, expired or not; None for any other token."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - see above
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature  # noqa: PLC0415

        parts = token.split(".")
        if len(parts) != _PARTS or len(token) > _LONGEST:
            return None
        with suppress(ValueError, InvalidSignature, msgspec.MsgspecError):
            head: Claims = decode(_bytes(parts[0]), dict)
            signature = _bytes(parts[2])
            if head.get("alg") != ALGORITHM or len(signature) != 2 * _HALF:
                return None
            numbers = int.from_bytes(signature[:_HALF], "big"), int.from_bytes(signature[_HALF:], "big")
            signed = f"{parts[0]}.{parts[1]}".encode()
            self._key.public_key().verify(encode_dss_signature(*numbers), signed, _method())
            claims: Claims = decode(_bytes(parts[1]), dict)
            return claims
        return None

    @cached_property
    def identity(self) -> str:
        """The key ID in the header of each token."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415 - see above

        public = self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return _text(hashlib.sha256(public).digest())

    def published(self) -> dict[str, str]:
        """Return the public key as a JSON Web Key."""
        numbers = self._key.public_key().public_numbers()
        place = {name: _text(n.to_bytes(_HALF, "big")) for name, n in (("x", numbers.x), ("y", numbers.y))}
        return {"use": "sig", "kty": "EC", "kid": self.identity, "crv": "P-256", "alg": ALGORITHM, **place}

    @cached_property
    def _key(self) -> EllipticCurvePrivateKey:
        """Raises OSError."""
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - see above
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

        with suppress(FileNotFoundError, ValueError):
            known = load_pem_private_key(self._path.read_bytes(), None)
            if isinstance(known, ec.EllipticCurvePrivateKey) and isinstance(known.curve, ec.SECP256R1):
                return known
        made = ec.generate_private_key(ec.SECP256R1())
        write_private_file(self._path, _pem(made))
        return made


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - see above
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _method() -> Any:
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    return ec.ECDSA(hashes.SHA256())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    """Raises ValueError."""
    return base64.b64decode((text + "=" * (-len(text) % 4)).encode("ascii"), altchars=b"-_", validate=True)
