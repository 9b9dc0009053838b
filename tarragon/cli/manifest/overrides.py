"""Changes to a job's manifest before it is created: --set, -e, --cpu-only, and annotations of its pods. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tarragon.cli.jobview.pod_templates import is_pod_template
from tarragon.frameworks.gpu_shares import is_gpu_share_name
from tarragon.kube.expansion import literal
from tarragon.kube.meta import Json, JsonObject
from tarragon.kube.pod_validation import main_container

Step = str | int

_STEP = re.compile(r"""\.?(?:"(?P<quoted>[^"]+)"|(?P<plain>[^."\[\]]+)|\[(?P<index>\d+)\]|\[(?P<name>[^\]"]+)\])""")


def set_path(document: JsonObject, path: str, value: Json) -> JsonObject:
    """Returns a copy with the value set at a path such as `spec.tfReplicaSpecs.Worker.replicas`.

    `[0]` and `[tensorflow]` select an element of a list by index or name. Missing maps are created. Raises ValueError
    for a path that can't be followed.
    """
    steps = parse_path(path)
    result = _with_value(document, steps, value, path)
    if not isinstance(result, Mapping):
        raise ValueError(f"{path}: must start with a field of the manifest")  # noqa: TRY004 - an error in the user's input
    return result


def parse_path(path: str) -> list[Step]:
    """Splits a path. A segment with dots is quoted: `metadata.annotations."tarragon.dev/resize"`."""
    steps: list[Step] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or (position == 0 and path.startswith(".")):
            raise ValueError(f"{path!r} is not a path; use for example spec.tfReplicaSpecs.Worker.replicas")
        steps.append(
            int(match["index"]) if match["index"] else match["quoted"] or match["plain"] or f"[{match['name']}]"
        )
        position = match.end()
    if not steps:
        raise ValueError("the path is empty; use for example spec.tfReplicaSpecs.Worker.replicas=3")
    return steps


def without_gpus(job: JsonObject) -> tuple[JsonObject, list[str]]:
    """Returns a copy without GPU requests, whole or shared, and the paths that were removed."""
    removed: list[str] = []
    return _without_gpus(job, "", removed), removed


def cpu_only_hint(spec: Json) -> str:
    """Returns how to run the job on this machine without the GPUs that it requests; empty if it requests none."""
    requests_gpus = bool(without_gpus({"spec": spec})[1])
    return "`tarragon run FILE --cpu-only` runs it without the GPUs that it requests" if requests_gpus else ""


def with_environment(job: JsonObject, variables: Mapping[str, str], container: str) -> JsonObject:
    """Returns a copy with these variables in the main container of every replica, in place of those of their names.

    `container` is the main container's name; without one of that name, it is the first.
    """
    if not variables:
        return job
    return _with_main_containers(job, container, lambda main: _with_variables(main, variables))


def with_env_sources(job: JsonObject, sources: Sequence[tuple[str, str]], container: str) -> JsonObject:
    """Returns a copy whose main containers have all variables of these objects, besides those that they have.

    A source is a field of envFrom and a name: `("secretRef", "tracker")`.
    """
    if not sources:
        return job
    given = [{field: {"name": name}} for field, name in sources]

    def changed(main: JsonObject) -> JsonObject:
        former = list(main.get("envFrom") or ())
        return {**main, "envFrom": [*former, *(each for each in given if each not in former)]}

    return _with_main_containers(job, container, changed)


def with_annotations_in_templates(job: JsonObject, annotations: Mapping[str, str]) -> JsonObject:
    """Returns a copy with these annotations in every pod template, where the kubelet reads them."""

    def changed(template: JsonObject) -> JsonObject:
        metadata = template.get("metadata") or {}
        return {
            **template,
            "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}},
        }

    return _with_templates(job, changed)


def without_template_annotations(job: JsonObject, names: Collection[str]) -> JsonObject:
    """Returns a copy without these annotations in its pod templates."""

    def changed(template: JsonObject) -> JsonObject:
        metadata = dict(template.get("metadata") or {})
        kept = {name: text for name, text in (metadata.pop("annotations", None) or {}).items() if name not in names}
        if kept:
            metadata["annotations"] = kept
        changes = {**template, "metadata": metadata}  # in the same place: this may be a pod, which is printed
        return {name: changes[name] for name in template if name != "metadata" or metadata}

    return _with_templates(job, changed)


def _with_value(value: Json, steps: Sequence[Step], new: Json, path: str) -> Json:
    if not steps:
        return new
    step, rest = steps[0], steps[1:]
    if isinstance(value, list):
        position = _position(value, step, path)
        return [*value[:position], _with_value(value[position], rest, new, path), *value[position + 1 :]]
    if isinstance(step, int) or step.startswith("["):
        raise ValueError(f"{path}: not a list at {step if isinstance(step, str) else f'[{step}]'}")
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{path}: can't set {step} in {value!r}, which is not a map")
    return {**(value or {}), step: _with_value((value or {}).get(step), rest, new, path)}


def _position(elements: Sequence[Json], step: Step, path: str) -> int:
    if isinstance(step, int):
        if step < len(elements):
            return step
        raise ValueError(f"{path}: index out of range, the list has {len(elements)} elements")
    wanted = step.strip("[]")
    names = [element.get("name") if isinstance(element, Mapping) else None for element in elements]
    if wanted not in names:
        existing = ", ".join(str(name) for name in names if name) or "none"
        raise ValueError(f"{path}: the list has no element {wanted}; named elements: {existing}")
    return names.index(wanted)


def _is_gpu(name: str) -> bool:
    domain, _, resource = name.rpartition("/")
    is_whole = resource in {"gpu", "nvidia-gpu"} or resource.startswith("mig-")
    return is_gpu_share_name(name) or (bool(domain) and is_whole)


def _without_gpus(value: Json, path: str, removed: list[str]) -> Json:
    if isinstance(value, list):
        return list(_elements_without(value, path, removed))
    if not isinstance(value, Mapping):
        return value
    result = {}
    for name, inner in value.items():
        below = f"{path}.{name}" if path else str(name)
        if _is_gpu(str(name)) and not isinstance(inner, Mapping | list):
            removed.append(below)
        else:
            result[name] = _without_gpus(inner, below, removed)
    return result


def _elements_without(elements: Sequence[Json], path: str, removed: list[str]) -> Iterator[Json]:
    """Removes GPU requests from a list, also the environment variable by which DRAGON requests a share of a GPU."""
    for number, element in enumerate(elements):
        below = f"{path}[{number}]"
        if isinstance(element, Mapping) and is_gpu_share_name(str(element.get("name", ""))):
            removed.append(below)
        else:
            yield _without_gpus(element, below, removed)


def _with_variables(container: JsonObject, variables: Mapping[str, str]) -> JsonObject:
    former = [each for each in container.get("env") or () if each.get("name") not in variables]
    # A shell has expanded them already.
    given = ({"name": name, "value": literal(value)} for name, value in variables.items())
    return {**container, "env": [*former, *given]}


def _with_main_containers(job: JsonObject, name: str, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    def changed(template: JsonObject) -> JsonObject:
        main = main_container(template, name) or {}
        containers = [change(each) if each is main else each for each in template["spec"]["containers"]]
        return {**template, "spec": {**template["spec"], "containers": containers}}

    return _with_templates(job, changed)


def _with_templates(job: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    """Returns a copy in which every pod template is changed. A SharePod is itself its template."""
    if is_pod_template(job):
        return change(job)
    spec = job.get("spec")
    return {**job, "spec": _changed(spec, change)} if isinstance(spec, Mapping) else job


def _changed(value: Json, change: Callable[[JsonObject], JsonObject]) -> Json:
    if isinstance(value, list):
        return [_changed(element, change) for element in value]
    if not isinstance(value, Mapping):
        return value
    if is_pod_template(value):
        return change(value)
    return {name: _changed(inner, change) for name, inner in value.items()}
