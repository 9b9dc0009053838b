"""The objects that a job needs beside its pods and Services: scripts, host files, keys, roles."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tarragon.job.model import ReplicaType
from tarragon.kube.meta import Json, JsonObject, PartialObjectMetadata, Resource

OWNED_OBJECT_LABEL = "tarragon.dev/owned-object"
"""On the objects that are kept current; the operator watches only objects with this label."""


MOUNTED_ANNOTATION = "tarragon.dev/mounted-objects"
"""On pods that must see a change of a mounted object at once: a digest of its content."""


class OwnedContent(PartialObjectMetadata, frozen=True):
    """The content of an object that is kept current: the data of a ConfigMap, the rules of a Role."""

    data: dict[str, str] = {}
    rules: list[Json] | None = None
    """An API server returns an empty list as null."""


class Upkeep(Enum):
    """What the operator does with an object once it exists. All of them go with the job."""

    UNIQUE = "unique"
    """Nothing: it never changes, and its name contains the job's uid, so that an existing one is not even read."""
    CREATE_ONCE = "create once"
    """Nothing: its content is created once for the life of the job, as a key is."""
    CREATE_UNSEEN = "create unseen"
    """Like CREATE_ONCE, but the operator may not read such objects: an existing one is used, whoever owns it."""
    KEEP_CURRENT = "keep current"
    """It is watched, patched where it differs, and created again when somebody deletes it."""


class Generated(Enum):
    """Content that is made at the moment of the create, because it must not be known before."""

    SSH_KEY_PAIR = "ssh key pair"
    """`data` of a Secret of type kubernetes.io/ssh-auth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedObject:
    """An object of a job. `body` has a name and perhaps labels, but no owner and no namespace."""

    resource: Resource[Json]
    body: JsonObject
    upkeep: Upkeep
    generated: Generated | None = None
    urgent_for: frozenset[ReplicaType] = frozenset()
    """The replicas that mount the object and must see a change at once. Of an object that is kept current."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredPermission:
    """What a kind of job needs of the API beyond what all kinds need. `resource` may name a subresource."""

    resource: Resource[Json]
    verbs: tuple[str, ...]
    reason: str
    consequence: str
    """What does not work without it."""
    subresource: str = ""
