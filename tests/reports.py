"""Sends a report of progress as a client does that knows nothing of Tarragon: with the standard library."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
STEPS: Json = {
    "trainerStatus": {
        "estimatedRemainingSeconds": 120,
        "metrics": [
            {"name": "loss", "value": "0.11"},
            {"name": "step", "value": "1200"},
            {"name": "total_steps", "value": "4000"},
        ],
    }
}
"""A report that 1,200 of 4,000 steps are done."""


@dataclass(frozen=True)
class Reply:
    code: int
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


async def send(url: str, body: Any, *, token: str, authority: str, method: str = "POST") -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, data=data, headers=headers, method=method)  # noqa: S310 - it is https
    return await asyncio.to_thread(_send, request, authority)


def _send(request: urllib.request.Request, authority: str) -> Reply:
    trust = ssl.create_default_context(cadata=authority)
    trust.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does by default
    try:
        with urllib.request.urlopen(request, context=trust, timeout=20) as reply:  # noqa: S310 - as above
            return Reply(reply.status, json.loads(reply.read()), dict(reply.headers))
    except urllib.error.HTTPError as error:
        return Reply(error.code, json.loads(error.read()), dict(error.headers))
