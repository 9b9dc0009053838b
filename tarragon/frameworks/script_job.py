"""Jobs made from a script: `tarragon run train.py --workers 4`. Each kind says what its manifest looks like. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.kube.expansion import literal
from tarragon.kube.meta import Json, JsonObject

CHIEF, PARAMETER_SERVERS = "--chief", "--ps"
"""The options for replicas that not every kind has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptJob:
    """What a user says about the job of a script. Amounts are quantities of Kubernetes; empty if not given."""

    name: str
    image: str
    command: Sequence[str]
    """The interpreter and the script."""
    args: Sequence[str] = ()
    workers: int = 1
    parameter_servers: int = 0
    has_chief: bool = False
    cpu: str = ""
    memory: str = ""
    gpus: str = ""
    """A whole number, or a fraction below 1: then replicas share GPUs."""
    config_map: str = ""
    """A ConfigMap with the script and what it imports; empty if the image has them."""
    packaged_files: Mapping[str, str] = field(default_factory=dict)
    """The paths of its files by key, if some are in folders; else each key is the name of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSupport:
    """How a kind runs scripts."""

    modules: frozenset[str]
    """Scripts that import one of these are for this kind, where the user names none."""
    image: str
    """A public image with the software; empty if there is none."""
    gpu_image: str
    options: frozenset[str] = frozenset()
    """The options of replicas that the kind has beside workers."""
    manifest: Callable[[ScriptJob], JsonObject]
    comments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Lines that explain fields of the manifest, by path."""


SCRIPT_FOLDER = "/opt/tarragon/script"
"""Where the ConfigMap of a script is mounted."""
SCRIPT_VOLUME = "tarragon-script"
"""Its volume. The ConfigMap belongs to the jobs that run the script, and goes with the last one."""
_GPU = "nvidia.com/gpu"


def pod_template(job: ScriptJob, container: str, words: Sequence[str], *, gpus: str = "") -> dict[str, Json]:
    """Returns the template of a replica with one container, which runs `words`; without words, what the kind runs."""
    main: dict[str, Json] = {"name": container, "image": job.image}
    if words:
        main["command"] = [*map(literal, words)]
        main |= {"args": [*map(literal, job.args)]} if job.args else {}
    main |= _resources(job, gpus)
    spec: dict[str, Json] = {"containers": [main]}
    if job.config_map:
        main["volumeMounts"] = [{"name": SCRIPT_VOLUME, "mountPath": SCRIPT_FOLDER}]
        spec["volumes"] = [{"name": SCRIPT_VOLUME, "configMap": _code(job)}]
    share = {"kubeshare/gpu_request": gpus, "kubeshare/gpu_limit": "1.0"} if is_fraction(gpus) else {}
    return {"metadata": {"annotations": share}, "spec": spec} if share else {"spec": spec}


def _code(job: ScriptJob) -> dict[str, Json]:
    items = [{"key": key, "path": path} for key, path in job.packaged_files.items()]
    return {"name": job.config_map, "items": items} if items else {"name": job.config_map}


def is_fraction(gpus: str) -> bool:
    """Whether replicas share GPUs."""
    return gpus.startswith(("0.", "."))


def _resources(job: ScriptJob, gpus: str) -> dict[str, Json]:
    requests = {name: amount for name, amount in (("cpu", job.cpu), ("memory", job.memory)) if amount}
    limits: dict[str, Json] = {_GPU: int(gpus)} if gpus not in {"", "0"} and not is_fraction(gpus) else {}
    resources = {name: amounts for name, amounts in (("requests", requests), ("limits", limits)) if amounts}
    return {"resources": resources} if resources else {}


CONTAINER_COMMENTS: Mapping[str, Sequence[str]] = {
    "image": (
        "On this machine an image stands for a Python environment, by default the one that has tarragon, with its",
        "version of Python; --image-env IMAGE=FOLDER runs it in another one.",
    ),
    "command": (
        "Starts in the folder in which `tarragon run` is typed; on a cluster, in the image's working directory.",
        'Variables: env: [{name: RATE, value: "0.1"}]; secrets: envFrom: [{secretRef: {name: SECRET}}]',
    ),
    "resources": ("The scheduler reserves what is requested; on this machine cpu also sets the number of threads.",),
}
"""What the fields of every kind's main container mean."""


def container_comments(template: str) -> dict[str, Sequence[str]]:
    """Returns the comments for the container of the pod template at that path."""
    return {f"{template}.spec.containers[0].{name}": lines for name, lines in CONTAINER_COMMENTS.items()}
