"""A pod's share of one GPU, in the forms of KubeShare 1 and 2 and of HAMi, each with one meaning.

KubeShare 1 uses annotations (`kubeshare/gpu_request`), KubeShare 2 labels (`sharedgpu/gpu_request`), HAMi resources
(`nvidia.com/gpumem`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from tarragon.base.errors import Problem
from tarragon.base.gpu_constraints import (
    AFFINITY,
    ANTI_AFFINITY,
    EXCLUSION,
    GPU_ID,
    UNCONSTRAINED,
    GpuConstraints,
)
from tarragon.base.quantity import parse_milli
from tarragon.base.resources import GPU_MEMORY_LABEL, NVIDIA_GPU, WHOLE_GPU
from tarragon.kube.core import Container, Pod
from tarragon.kube.field_reader import INT64, CollectedProblems, FieldReader, describe_value, nearest_name
from tarragon.kube.meta import Json, JsonObject

VGPU_ANNOTATION = "tarragon.dev/vgpu"
"""The annotation of a replica's pod with the number of its vGPU. A vGPU is a GPU that is shared; each node numbers its
own from 0.
"""
GPU_UUID_ANNOTATION = "tarragon.dev/gpu-uuid"
"""The annotation of a pod with the UUID of the GPU that it shares, or holds for others."""
GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"
"""The label in which NVIDIA's GPU feature discovery reports the model of a node's GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuShare:
    """A share of one GPU. Amounts of compute are in thousandths of the GPU."""

    request: int
    """The guaranteed part, 1 to 1000. KubeShare permits 0, which counts as 1: at most 1,000 pods share a GPU."""
    limit: int
    """The most that the pod may use, `request` to 1000."""
    memory: int | None = None
    """Bytes of the GPU's memory; None for the same part of the memory as `request` is of the GPU."""
    constraints: GpuConstraints = UNCONSTRAINED
    """With whom the pod may share the GPU."""
    model: str = ""
    """sharedgpu/gpu_model: the model of the GPU, as in the node's label `nvidia.com/gpu.product`."""


_REQUEST, _LIMIT, _MEMORY, _MODEL = "gpu_request", "gpu_limit", "gpu_mem", "gpu_model"
GPU_MEMORY, GPU_MEMORY_PERCENTAGE, GPU_CORES = (
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
)
"""HAMi's resources: MiB, and percent of the memory and of the compute of a GPU."""
_HAMI_PRIORITY = "nvidia.com/priority"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Domain:
    """The names of one version of KubeShare."""

    prefix: str
    field: str
    """The field of metadata to which the names belong."""
    noun: str
    """What one of the names is, with the article."""
    settings: tuple[str, ...]
    """The names that request a share, without the prefix."""
    ignored: Mapping[str, str]
    """The names without effect, with the reason."""

    @property
    def names(self) -> list[str]:
        return [*self.settings, *self.ignored]


_PRIORITY_CLASS = "the priority is that of the job's PriorityClass"
_GANG = "the job itself is scheduled as a gang"
_KUBESHARE_1 = _Domain(
    prefix="kubeshare",
    field="annotations",
    noun="an annotation",
    settings=(_REQUEST, _LIMIT, _MEMORY, GPU_ID, AFFINITY, ANTI_AFFINITY, EXCLUSION),
    ignored={},
)
_KUBESHARE_2 = _Domain(
    prefix="sharedgpu",
    field="labels",
    noun="a label",
    settings=(_REQUEST, _LIMIT, _MEMORY, _MODEL),
    ignored={
        "priority": _PRIORITY_CLASS,
        "group_name": _GANG,
        "group_headcount": _GANG,
        "group_threshold": _GANG,
        "min_available": _GANG,
    },
)
_DOMAINS = {domain.prefix: domain for domain in (_KUBESHARE_1, _KUBESHARE_2)}

SHARE_ANNOTATIONS = frozenset(f"{_KUBESHARE_1.prefix}/{name}" for name in _KUBESHARE_1.settings)
"""The annotations by which KubeShare 1 requests a share."""
SHARE_LABELS = frozenset(f"{_KUBESHARE_2.prefix}/{name}" for name in _KUBESHARE_2.settings)
"""The labels by which KubeShare 2 requests a share."""
SHARE_RESOURCES = frozenset({GPU_MEMORY, GPU_MEMORY_PERCENTAGE, GPU_CORES})
"""The resources by which HAMi requests a share. Without HAMi no node offers them."""
_GPU_RESOURCES = (NVIDIA_GPU, *sorted(SHARE_RESOURCES))
_PREFIXES = (*(f"{prefix}/" for prefix in _DOMAINS), *sorted(SHARE_RESOURCES), _HAMI_PRIORITY)

_DECIMAL = re.compile(r"[+-]?(?:\d{1,20}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,2})?", re.ASCII)
_BYTES = re.compile(r"\d{1,19}", re.ASCII)
_VGPU = re.compile(r"[a-z]{5}")
_EXAMPLE = 'write for example "0.5"'
_FORMS = f"the annotations kubeshare/…, the labels sharedgpu/… and the resources {GPU_MEMORY} and {GPU_CORES}"
_MIB = 2**20
_LONGEST_MEMORY = 9
"""The number of digits of a number of MiB that no GPU has more than."""
_PERCENT = 100


def gpu_memory(labels: Mapping[str, str]) -> int:
    """Return the memory of each GPU of a node with these labels, in bytes; 0 if it is not known."""
    value = labels.get(GPU_MEMORY_LABEL, "")
    return int(value) * _MIB if value.isascii() and value.isdecimal() and len(value) <= _LONGEST_MEMORY else 0


def share_of_pod(pod: Pod) -> GpuShare | None:
    """Return the pod's share; None if it requests none, or an invalid one."""
    return share_of(pod.metadata.annotations, pod.metadata.labels, pod.spec.containers, pod.spec.init_containers)


def share_of(
    annotations: Mapping[str, str],
    labels: Mapping[str, str],
    containers: Sequence[Container] = (),
    init_containers: Sequence[Container] = (),
) -> GpuShare | None:
    """Return the share that a pod with these annotations, labels and containers requests, as `share_of_pod` does.

    Names that belong somewhere else are no request, and do no harm: KubeShare itself writes some on its pods. A pod
    that Tarragon has created may have HAMi's resources as well, which say the same as its annotations or labels, less
    exactly. A pod that names a GPU and no vGPU has it whole.
    """
    if VGPU_ANNOTATION in annotations:
        if not (SHARE_ANNOTATIONS.isdisjoint(annotations) and SHARE_LABELS.isdisjoint(labels)):
            containers, init_containers = (), ()
    elif GPU_UUID_ANNOTATION in annotations:
        return None
    if (
        SHARE_ANNOTATIONS.isdisjoint(annotations)
        and SHARE_LABELS.isdisjoint(labels)
        and all(
            SHARE_RESOURCES.isdisjoint(each.resources.limits) and SHARE_RESOURCES.isdisjoint(each.resources.requests)
            for each in containers
        )
    ):
        return None
    return _cached_share(
        _entries(annotations, SHARE_ANNOTATIONS),
        _entries(labels, SHARE_LABELS),
        tuple(_amounts(each) for each in containers),
        tuple(_amounts(each) for each in init_containers),
    )


def share_of_template(template: JsonObject) -> GpuShare | None:
    """Return the share that each pod of a template requests, as `share_of_pod` does."""
    if not _mentions_shares(template):
        return None
    found = _fields_of("", template)
    share = _read_share(found)
    return None if found.notes.problems else share


def share_problems(path: str, template: JsonObject) -> Iterator[Problem]:
    """Yield a Problem for each violation in a pod template, or in an object with the fields of one, at `path`."""
    if not _mentions_shares(template):
        return
    found = _fields_of(path, template)
    _read_share(found)
    _note_misplaced_names(found)
    yield from found.notes.problems


def ignored_settings(path: str, template: JsonObject) -> Iterator[Problem]:
    """Yield a Problem for each setting that has no effect in Tarragon."""
    if not _mentions_shares(template):
        return
    found = _fields_of(path, template)
    for name, reason in _KUBESHARE_2.ignored.items():
        label = found.labels.field(f"{_KUBESHARE_2.prefix}/{name}")
        if not label.is_missing:
            label.add_problem(f"is ignored: {reason}", "remove it")
    for container in found.containers:
        priority = _resource(container, _HAMI_PRIORITY)
        if not priority.is_missing:
            priority.add_problem(f"is ignored: {_PRIORITY_CLASS}", "remove it")
    yield from found.notes.problems


def is_share_name(name: str) -> bool:
    """Whether an annotation, label or resource of this name is part of a request for a share."""
    return kubeshare_field(name) is not None or name in SHARE_RESOURCES or name == _HAMI_PRIORITY


def kubeshare_field(name: str) -> str | None:
    """Return the field of a pod's metadata to which a name of KubeShare belongs; None for all other names."""
    domain, _ = _split(name)
    return None if domain is None else domain.field


def _mentions_shares(template: Json) -> bool:
    """Whether there is something to read. Few templates have it, and reading takes much longer than this."""
    return any(isinstance(name, str) and name.startswith(_PREFIXES) for name in _names(template))


def _names(template: Json) -> Iterator[Json]:
    """Yield the names of the template's annotations, labels and resources."""
    pod = _map(template)
    metadata, spec = _map(pod.get("metadata")), _map(pod.get("spec"))
    yield from _map(metadata.get("annotations"))
    yield from _map(metadata.get("labels"))
    for kind in ("containers", "initContainers"):
        containers = spec.get(kind)
        for container in containers if isinstance(containers, list) else ():
            resources = _map(_map(container).get("resources"))
            yield from _map(resources.get("limits"))
            yield from _map(resources.get("requests"))


def _map(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _PodFields:
    """The fields of a pod template that matter for shares. Fields of a wrong type are missing."""

    annotations: FieldReader
    labels: FieldReader
    containers: Sequence[FieldReader]
    init_containers: Sequence[FieldReader]
    notes: CollectedProblems

    @property
    def all_containers(self) -> Sequence[FieldReader]:
        return (*self.containers, *self.init_containers)


def _fields_of(path: str, template: JsonObject) -> _PodFields:
    notes = CollectedProblems()
    found = FieldReader(template, path, notes)
    metadata, spec = found.field("metadata"), found.field("spec")
    return _PodFields(
        annotations=metadata.field("annotations"),
        labels=metadata.field("labels"),
        containers=_items(spec.field("containers")),
        init_containers=_items(spec.field("initContainers")),
        notes=notes,
    )


def _items(found: FieldReader) -> Sequence[FieldReader]:
    return list(found.items()) if isinstance(found.value, list) else []


_Entries = tuple[tuple[str, str | int | float], ...]


@lru_cache(maxsize=4096)  # the same few requests recur in all pods of a job
def _cached_share(
    annotations: _Entries, labels: _Entries, containers: tuple[_Entries, ...], init_containers: tuple[_Entries, ...]
) -> GpuShare | None:
    return share_of_template(
        {
            "metadata": {"annotations": dict(annotations), "labels": dict(labels)},
            "spec": {
                "containers": [{"resources": {"limits": dict(each)}} for each in containers],
                "initContainers": [{"resources": {"limits": dict(each)}} for each in init_containers],
            },
        }
    )


def _entries(values: Mapping[str, str] | Mapping[str, str | int | float], names: Iterable[str]) -> _Entries:
    return tuple((name, values[name]) for name in names if name in values)


def _amounts(container: Container) -> _Entries:
    return _entries({**container.resources.requests, **container.resources.limits}, _GPU_RESOURCES)


def _read_share(found: _PodFields) -> GpuShare | None:
    """Read the share, and note everything that is wrong with it."""
    annotations = [mark for mark in _settings(found.annotations, _KUBESHARE_1) if _is_set(mark)]
    labels = [mark for mark in _settings(found.labels, _KUBESHARE_2) if _is_set(mark)]
    if _is_switched_off(found.labels):
        labels = []
    resources = [mark for each in found.all_containers for mark in _share_resources(each)]
    forms = [marks for marks in (annotations, labels, resources) if marks]
    for marks in forms[1:]:
        marks[0].add_problem("requests a second share of a GPU", f"use one of {_FORMS}")
    share = None
    if annotations:
        share = _read_kubeshare_1(found.annotations)
    if labels:
        share = _read_kubeshare_2(found.labels)
    if resources:
        share = _read_hami(found)
    elif forms:
        _note_whole_gpus(found.all_containers)
    return share


def _settings(found: FieldReader, domain: _Domain) -> Iterator[FieldReader]:
    return (found.field(f"{domain.prefix}/{name}") for name in domain.settings)


def _is_set(mark: FieldReader) -> bool:
    """Whether an annotation or label has a value. For KubeShare an empty one is a missing one."""
    return not mark.is_missing and mark.value != ""


def _read_kubeshare_1(annotations: FieldReader) -> GpuShare | None:
    request, limit, memory, vgpu, *constraints = _settings(annotations, _KUBESHARE_1)
    affinity, anti_affinity, exclusion = (each.string() for each in constraints)
    bounds, amount, number = _bounds(request, limit), _memory(memory), vgpu.string()
    if number and not _VGPU.fullmatch(number):
        vgpu.add_problem(f"must be 5 lower-case letters, not {describe_value(number)}")
    if bounds is None:
        return None
    return GpuShare(
        request=bounds[0],
        limit=bounds[1],
        memory=amount,
        constraints=GpuConstraints(gpu_id=number, affinity=affinity, anti_affinity=anti_affinity, exclusion=exclusion),
    )


def _read_kubeshare_2(labels: FieldReader) -> GpuShare | None:
    """KubeShare 2 takes a missing request for 0."""
    request, limit, memory, model = _settings(labels, _KUBESHARE_2)
    bounds = _bounds(request if _is_set(request) else replace(request, value="0"), limit)
    amount, name = _memory(memory), model.string()
    return None if bounds is None else GpuShare(request=bounds[0], limit=bounds[1], memory=amount, model=name)


def _is_switched_off(labels: FieldReader) -> bool:
    """Whether request and limit are 0, by which a pod of KubeShare 2 becomes an ordinary one."""
    request, limit, *_ = _settings(labels, _KUBESHARE_2)
    return _decimal(limit.value) == 0 and (not _is_set(request) or _decimal(request.value) == 0)


def _bounds(request: FieldReader, limit: FieldReader) -> tuple[int, int] | None:
    """Return request and limit in thousandths, or note what is wrong with them."""
    least, most = _part(request), _part(limit)
    if least is None or most is None:
        return None
    if least > most:
        limit.add_problem(f"must be {request.value} or more, as {request.name} is, not {limit.value}")
    return _thousandths(least), _thousandths(most)


def _part(mark: FieldReader) -> Fraction | None:
    if not _is_set(mark):
        mark.add_problem("is missing", _EXAMPLE)
        return None
    text = mark.string()
    part = _decimal(text)
    if not text or (part is not None and 0 <= part <= 1):
        return part
    is_whole = part is not None and part > 1 and part.denominator == 1
    remedy = f"ask for whole GPUs with {NVIDIA_GPU}: {part}" if is_whole else _EXAMPLE
    mark.add_problem(f"must be a number from 0 to 1, not {describe_value(text)}", remedy)
    return None


def _decimal(value: Json) -> Fraction | None:
    return Fraction(Decimal(value)) if isinstance(value, str) and _DECIMAL.fullmatch(value) else None


def _thousandths(part: Fraction) -> int:
    """Return thousandths, rounded up as DRAGON does, but without the error of its floating point numbers."""
    return max(1, math.ceil(part * WHOLE_GPU))


def _memory(mark: FieldReader) -> int | None:
    """Return a number of bytes. 0 means the same as none: the pod gets the memory that belongs to its request."""
    text = mark.string()
    if not text:
        return None
    if not _BYTES.fullmatch(text) or int(text) > INT64:
        mark.add_problem(f"must be a whole number of bytes, not {describe_value(text)}", 'write "1073741824" for 1 GiB')
        return None
    return int(text) or None


def _read_hami(found: _PodFields) -> GpuShare | None:
    sharing = [each for each in found.containers if any(_share_resources(each))]
    for mark in (mark for each in found.init_containers for mark in _share_resources(each)):
        mark.add_problem("is requested by an init container", "move it to a container")
    for mark in (mark for each in sharing[1:] for mark in _share_resources(each)):
        mark.add_problem("is requested by a second container", "only one container of a pod can share a GPU")
    _note_whole_gpus([each for each in found.all_containers if not any(_share_resources(each))])
    if not sharing:
        return None
    gpus = _resource(sharing[0], NVIDIA_GPU)
    if _whole(gpus) > 1:
        gpus.add_problem(f"must be 1 beside {GPU_MEMORY} or {GPU_CORES}", "only one GPU of a pod can be shared")
    return _hami_share(sharing[0])


def _hami_share(container: FieldReader) -> GpuShare:
    """Return the share of a container.

    GpuShare has no percentage of memory apart from that of compute, so the greater of both is guaranteed. gpucores is
    the limit, too; without it, there is none. As in HAMi, gpumem comes before gpumem-percentage.
    """
    memory = _resource(container, GPU_MEMORY)
    mebibytes = _whole(memory)
    if mebibytes > INT64 // _MIB:
        memory.add_problem(f"must be a number of MiB, not {describe_value(memory.value)}")
    cores, percentage = (_percentage(_resource(container, name)) for name in (GPU_CORES, GPU_MEMORY_PERCENTAGE))
    request = max(cores, 0 if mebibytes else percentage) * WHOLE_GPU // _PERCENT
    return GpuShare(
        request=max(1, request), limit=request if cores else WHOLE_GPU, memory=mebibytes * _MIB if mebibytes else None
    )


def _share_resources(container: FieldReader) -> Iterator[FieldReader]:
    """Yield the resources of HAMi that the container requests. An amount of 0 requests nothing."""
    for name in (GPU_MEMORY, GPU_MEMORY_PERCENTAGE, GPU_CORES):
        resource = _resource(container, name)
        if not resource.is_missing and _quantity(resource.value) != 0:
            yield resource


def _resource(container: FieldReader, name: str) -> FieldReader:
    """Return a resource of a container; its limit comes first, as a device's request has to be the same."""
    resources = container.field("resources")
    limit = resources.field("limits").field(name)
    return resources.field("requests").field(name) if limit.is_missing else limit


def _whole(resource: FieldReader) -> int:
    """Return the amount; 0 for one that is missing or, with a problem, invalid."""
    if resource.is_missing:
        return 0
    amount = _quantity(resource.value)
    if amount is None or amount < 0 or amount % 1000:
        resource.add_problem(f"must be a whole number, not {describe_value(resource.value)}")
        return 0
    return amount // 1000


def _percentage(resource: FieldReader) -> int:
    amount = _whole(resource)
    if amount > _PERCENT:
        resource.add_problem(f"must be a percentage from 1 to 100, not {describe_value(resource.value)}")
        return 0
    return amount


def _quantity(value: Json) -> int | None:
    """Return a quantity in thousandths; None for what is none."""
    try:
        return parse_milli(value) if isinstance(value, str | int | float) else None
    except (ValueError, OverflowError):
        return None


def _note_whole_gpus(containers: Sequence[FieldReader]) -> None:
    for gpus in (_resource(container, NVIDIA_GPU) for container in containers):
        if not gpus.is_missing and _quantity(gpus.value) != 0:
            gpus.add_problem("can't be requested together with a share of a GPU", "remove one of the two")


def _note_misplaced_names(found: _PodFields) -> None:
    for place in (found.annotations, found.labels):
        for mark, domain, own in _kubeshare_names(place):
            if own not in domain.names:
                mark.add_problem(f"unknown {domain.field.removesuffix('s')}", _suggestion(domain, own))
            elif domain.field != place.name:
                mark.add_problem(f"must be {domain.noun}", f"move it to metadata.{domain.field} of the pod template")
    for container in found.all_containers:
        for kind in ("limits", "requests"):
            for mark, domain, own in _kubeshare_names(container.field("resources").field(kind)):
                name = own if own in domain.names else _REQUEST
                remedy = f"write {domain.prefix}/{name} as {domain.noun} of the pod template"
                mark.add_problem("is not a resource", remedy)


def _kubeshare_names(found: FieldReader) -> Iterator[tuple[FieldReader, _Domain, str]]:
    for name in found.value if isinstance(found.value, dict) else ():
        domain, own = _split(name) if isinstance(name, str) else (None, "")
        if domain is not None:
            yield found.field(name), domain, own


def _split(name: str) -> tuple[_Domain | None, str]:
    """Return the version of KubeShare to which a name belongs, and the name without its prefix."""
    prefix, slash, own = name.partition("/")
    return (_DOMAINS.get(prefix) if slash else None), own


def _suggestion(domain: _Domain, own: str) -> str:
    meant = nearest_name(own, domain.names)
    return f"did you mean {domain.prefix}/{meant}?" if meant else f"known are {', '.join(domain.names)}"
