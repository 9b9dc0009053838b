"""core/v1 Events about objects. A repeated event increments the count of the first one."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass
from typing import Any, Literal

from tarragon.kube.codec import format_time
from tarragon.kube.meta import CustomObject, Key, Resource

MESSAGE_LIMIT = 1024
"""The maximum length of an event's message in bytes: the limit that events.k8s.io/v1 has for notes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """The object that an event is about."""

    api_version: str
    kind: str
    key: Key
    uid: str


def reference_to(resource: Resource[CustomObject], found: CustomObject) -> ObjectReference:
    """A reference to a custom object in its storage version, in whichever version it was read."""
    metadata = found.metadata
    return ObjectReference(api_version=resource.api_version, kind=resource.kind, key=metadata.key, uid=metadata.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event about an object. `reason` is a CamelCase word for programs; the message is for humans."""

    involved_object: ObjectReference
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    is_lasting_state: bool = False
    """Whether repetitions are dropped, because the event reports a lasting state."""

    @property
    def name(self) -> str:
        """The name, derived from object and content: creating a repetition fails, and then the first one is counted."""
        content = f"{self.involved_object.uid}/{self.type}/{self.reason}/{self.message}"
        digest = hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()
        return f"{self.involved_object.key.name[:200]}.{digest[:16]}"


def event_object(event: Event, now: dt.datetime, component: str) -> dict[str, Any]:
    """The Event object to create. On AlreadyExists, patch `count` and `lastTimestamp` instead."""
    about = event.involved_object
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
        "firstTimestamp": format_time(now),
        "lastTimestamp": format_time(now),
        "count": 1,
    }
