"""Defaults and validation of a pod's volumes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tarragon.localcluster.schema.field_errors import FieldError, forbidden_value, invalid_value, required

Json = dict[str, Any]

_TOKEN_SECONDS = 3600
_MIN_TOKEN_SECONDS = 600
_MAX_TOKEN_SECONDS = 2**32
_NAME_FIELDS = (("secret", "secretName"), ("configMap", "name"), ("persistentVolumeClaim", "claimName"))


def default_volume(volume: Json) -> None:
    if not volume.keys() - {"name"}:
        volume["emptyDir"] = {}
    for source in ("configMap", "secret", "projected", "downwardAPI"):
        if volume.get(source) is not None:
            volume[source].setdefault("defaultMode", 0o644)
    if volume.get("hostPath") is not None:
        volume["hostPath"].setdefault("type", "")
    _default_fields(volume.get("downwardAPI"))
    for source in (volume.get("projected") or {}).get("sources") or ():
        _default_fields(source.get("downwardAPI"))
        if source.get("serviceAccountToken") is not None:
            source["serviceAccountToken"].setdefault("expirationSeconds", _TOKEN_SECONDS)


def faults(path: str, volumes: Sequence[Json]) -> Iterator[FieldError]:
    for index, volume in enumerate(volumes):
        place = f"{path}[{index}]"
        sources = [name for name in volume if name != "name"]
        for more in sources[1:]:
            yield forbidden_value(f"{place}.{more}", "may not specify more than 1 volume type")
        for source, field in _NAME_FIELDS:
            if volume.get(source) is not None and not volume[source].get(field):
                yield required(f"{place}.{source}.{field}")
        for number, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if source.get("serviceAccountToken") is not None:
                yield from _token_faults(f"{place}.projected.sources[{number}]", source["serviceAccountToken"])
        if volume.get("hostPath") is not None and not volume["hostPath"].get("path"):
            yield required(f"{place}.hostPath.path")


def _token_faults(path: str, token: Json) -> Iterator[FieldError]:
    field, seconds = f"{path}.expirationSeconds", token["expirationSeconds"]
    if seconds < _MIN_TOKEN_SECONDS:
        yield invalid_value(field, seconds, "may not specify a duration less than 10 minutes")
    elif seconds > _MAX_TOKEN_SECONDS:
        yield invalid_value(field, seconds, "may not specify a duration larger than 2^32 seconds")
    if not token.get("path"):
        yield required(f"{path}.path")


def _default_fields(source: Json | None) -> None:
    for item in (source or {}).get("items") or ():
        if item.get("fieldRef") is not None:
            item["fieldRef"].setdefault("apiVersion", "v1")
