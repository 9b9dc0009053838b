"""core/v1 Events: what happened to an object, told once and counted after that."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass
from typing import Any, Literal

from tarragon.kube.codec import timestamp
from tarragon.kube.meta import Key

MESSAGE_LIMIT = 1024
"""Bytes of an event's message that the API server accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """What the event is about."""

    api_version: str
    kind: str
    key: Key
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`reason` is one CamelCase word that scripts may rely on; the message is for people."""

    about: ObjectReference
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    once: bool = False
    """Of a state that lasts: that it was seen again is no news."""

    @property
    def name(self) -> str:
        """The same for the same words about the same object: a repetition meets the first one and is counted."""
        said = f"{self.about.uid}/{self.type}/{self.reason}/{self.message}"
        return f"{self.about.key.name[:200]}.{hashlib.sha256(said.encode(errors='surrogatepass')).hexdigest()[:16]}"


def body(event: Event, now: dt.datetime, component: str) -> dict[str, Any]:
    """The object to create; on AlreadyExists patch `count` and `lastTimestamp` instead."""
    about = event.about
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": about.key.namespace or "default"},
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.key.name,
            "namespace": about.key.namespace,
            "uid": about.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message.encode(errors="replace")[:MESSAGE_LIMIT].decode(errors="ignore"),
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
    }
