"""The ConfigMaps, Secrets and claims that a job uses but does not own: they stay when it is deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tarragon.cli.jobview.pod_templates import pod_templates
from tarragon.frameworks.script_job import SCRIPT_VOLUME
from tarragon.kube.meta import Json, JsonObject

_VOLUME_SOURCES = (
    ("ConfigMap", "configMap", "name"),
    ("Secret", "secret", "secretName"),
    ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName"),
)


def used_objects(job: JsonObject) -> Sequence[tuple[str, str]]:
    """Returns the kind and the name of each object, once."""
    found = (each for _, template in pod_templates(job) for each in _objects_of(template))
    return list(dict.fromkeys(found))


def _objects_of(template: JsonObject) -> Iterator[tuple[str, str]]:
    volumes: Json = template["spec"].get("volumes")
    for volume in volumes if isinstance(volumes, list) else ():
        if not isinstance(volume, Mapping) or volume.get("name") == SCRIPT_VOLUME:
            continue
        for kind, field, name in _VOLUME_SOURCES:
            source = volume.get(field)
            if isinstance(source, Mapping) and isinstance(source.get(name), str):
                yield kind, source[name]
