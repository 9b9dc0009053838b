"""What the command line changes in a job before it is created: --set, --cpu-only, annotations for its pods. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from tarragon.cli.jobview.pod_templates import is_template
from tarragon.frameworks.fractions import names_a_fraction
from tarragon.kube.meta import Json, JsonObject

Step = str | int

_STEP = re.compile(r"""\.?(?:"(?P<quoted>[^"]+)"|(?P<plain>[^."\[\]]+)|\[(?P<index>\d+)\]|\[(?P<name>[^\]"]+)\])""")


def assigned(document: JsonObject, path: str, value: Json) -> JsonObject:
    """A copy with the value at `spec.tfReplicaSpecs.Worker.replicas`; `[0]` and `[tensorflow]` are elements of lists.

    Maps on the way are made where they are missing. Raises ValueError for a path that can't be followed.
    """
    steps = steps_of(path)
    result = _with(document, steps, value, path)
    if not isinstance(result, Mapping):
        raise ValueError(f"{path}: must lead into the manifest, not to a list")  # noqa: TRY004 - the user's words
    return result


def steps_of(path: str) -> list[Step]:
    """A segment with dots in it is quoted: `metadata.annotations."tarragon.dev/resize"`."""
    steps: list[Step] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or (position == 0 and path.startswith(".")):
            raise ValueError(f"{path!r} is no path; write for example spec.tfReplicaSpecs.Worker.replicas")
        steps.append(
            int(match["index"]) if match["index"] else match["quoted"] or match["plain"] or f"[{match['name']}]"
        )
        position = match.end()
    if not steps:
        raise ValueError("the path is empty; write for example spec.tfReplicaSpecs.Worker.replicas=3")
    return steps


def without_gpus(job: JsonObject) -> tuple[JsonObject, list[str]]:
    """A copy that asks for no GPU, whole or shared, and the paths of what was taken out."""
    taken: list[str] = []
    return _without(job, "", taken), taken


def annotated(job: JsonObject, annotations: Mapping[str, str]) -> JsonObject:
    """A copy whose every pod template carries these, so that whoever runs the pods can read them there."""
    spec = job.get("spec")
    return {**job, "spec": _annotated(spec, annotations)} if isinstance(spec, Mapping) else job


def without_annotations(job: JsonObject, names: Collection[str]) -> JsonObject:
    """A copy whose pod templates carry none of these."""
    spec = job.get("spec")
    return {**job, "spec": _bare(spec, names)} if isinstance(spec, Mapping) else job


def _with(value: Json, steps: Sequence[Step], new: Json, path: str) -> Json:
    if not steps:
        return new
    step, rest = steps[0], steps[1:]
    if isinstance(value, list):
        position = _position(value, step, path)
        return [*value[:position], _with(value[position], rest, new, path), *value[position + 1 :]]
    if isinstance(step, int) or step.startswith("["):
        raise ValueError(f"{path}: there is no list at {step if isinstance(step, str) else f'[{step}]'}")
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{path}: {step} can't be set within the value {value!r}")
    return {**(value or {}), step: _with((value or {}).get(step), rest, new, path)}


def _position(elements: Sequence[Json], step: Step, path: str) -> int:
    if isinstance(step, int):
        if step < len(elements):
            return step
        raise ValueError(f"{path}: the list has only {len(elements)} elements, counted from 0")
    wanted = step.strip("[]")
    names = [element.get("name") if isinstance(element, Mapping) else None for element in elements]
    if wanted not in names:
        known = ", ".join(str(name) for name in names if name) or "none with a name"
        raise ValueError(f"{path}: no element of the list is called {wanted}; there are {known}")
    return names.index(wanted)


def _is_gpu(name: str) -> bool:
    domain, _, resource = name.rpartition("/")
    is_whole = resource in {"gpu", "nvidia-gpu"} or resource.startswith("mig-")
    return names_a_fraction(name) or (bool(domain) and is_whole)


def _without(value: Json, path: str, taken: list[str]) -> Json:
    if isinstance(value, list):
        return list(_elements_without(value, path, taken))
    if not isinstance(value, Mapping):
        return value
    result = {}
    for name, inner in value.items():
        below = f"{path}.{name}" if path else str(name)
        if _is_gpu(str(name)) and not isinstance(inner, Mapping | list):
            taken.append(below)
        else:
            result[name] = _without(inner, below, taken)
    return result


def _elements_without(elements: Sequence[Json], path: str, taken: list[str]) -> Iterator[Json]:
    """Of environment variables, the switch of DRAGON is taken out."""
    for number, element in enumerate(elements):
        below = f"{path}[{number}]"
        if isinstance(element, Mapping) and names_a_fraction(str(element.get("name", ""))):
            taken.append(below)
        else:
            yield _without(element, below, taken)


def _annotated(value: Json, annotations: Mapping[str, str]) -> Json:
    if isinstance(value, list):
        return [_annotated(element, annotations) for element in value]
    if not isinstance(value, Mapping):
        return value
    if is_template(value):
        metadata = value.get("metadata") or {}
        return {
            **value,
            "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}},
        }
    return {name: _annotated(inner, annotations) for name, inner in value.items()}


def _bare(value: Json, names: Collection[str]) -> Json:
    if isinstance(value, list):
        return [_bare(element, names) for element in value]
    if not isinstance(value, Mapping):
        return value
    if not is_template(value):
        return {name: _bare(inner, names) for name, inner in value.items()}
    metadata = dict(value.get("metadata") or {})
    kept = {name: text for name, text in (metadata.pop("annotations", None) or {}).items() if name not in names}
    if kept:
        metadata["annotations"] = kept
    rest = {name: inner for name, inner in value.items() if name != "metadata"}
    return {"metadata": metadata, **rest} if metadata else rest
