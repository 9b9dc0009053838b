"""Makes the content of objects that must not be known before they are created: the keys of a job."""

from __future__ import annotations

import asyncio
import base64

from tarragon.frameworks.owned_objects import Generated
from tarragon.kube.meta import JsonObject


async def generated_content(kind: Generated) -> JsonObject:
    """The fields to add to the object. They are made in a thread, as keys take milliseconds."""
    match kind:
        case Generated.SSH_KEY_PAIR:
            return await asyncio.to_thread(ssh_key_pair)


def ssh_key_pair() -> JsonObject:
    """A Secret's `data` with an ECDSA key on the curve P-521, as mpi-operator's v2 controller makes it.

    `ssh-privatekey` is a PEM block `EC PRIVATE KEY`, `ssh-publickey` a line for authorized_keys.
    """
    # Imported here: most operators never make a key, and the import takes 50 ms.
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return {"data": {"ssh-privatekey": _encoded(private), "ssh-publickey": _encoded(public + b"\n")}}


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
