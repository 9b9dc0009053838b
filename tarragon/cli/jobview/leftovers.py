"""What a job uses and does not own: config maps, secrets and claims, which stay when it is deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tarragon.cli.jobview.pod_templates import templates
from tarragon.kube.meta import Json, JsonObject

_NAMED_BY = (
    ("ConfigMap", "configMap", "name"),
    ("Secret", "secret", "secretName"),
    ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName"),
)


def used(job: JsonObject) -> Sequence[tuple[str, str]]:
    """Kind and name of each, once."""
    found = (each for _, template in templates(job) for each in _of_template(template))
    return list(dict.fromkeys(found))


def _of_template(template: JsonObject) -> Iterator[tuple[str, str]]:
    volumes: Json = template["spec"].get("volumes")
    for volume in volumes if isinstance(volumes, list) else ():
        for kind, field, name in _NAMED_BY:
            source = volume.get(field) if isinstance(volume, Mapping) else None
            if isinstance(source, Mapping) and isinstance(source.get(name), str):
                yield kind, source[name]
