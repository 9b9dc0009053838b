"""The environment variables of a container: those of the machine, the image, training defaults and the manifest.

Later ones override earlier ones. Of the caller's environment, only the variables in INHERITED are kept, so that a job
does not depend on the shell that started the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tarragon.base.resources import Resources
from tarragon.kube.scheduling.gpu_limits import memory_variables, mps_variables, without_those_of_user
from tarragon.localcluster.kubelet.base import downward
from tarragon.localcluster.kubelet.base.errors import CannotStart
from tarragon.localcluster.kubelet.base.expansion import expand
from tarragon.localcluster.kubelet.base.spec import Container, EnvFrom, EnvVarSource, KeySelector, ObjectSelector, Pod
from tarragon.localcluster.kubelet.devices import devices, gpu_limits
from tarragon.localcluster.kubelet.devices.devices import DeviceIds
from tarragon.localcluster.kubelet.devices.vgpus import VgpuPart
from tarragon.localcluster.kubelet.images.images import Environment
from tarragon.localcluster.kubelet.volumes.sources import Files, PodObjects

INHERITED = (
    *("HOME", "USER", "LOGNAME", "TZ", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE"),
    *("LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY"),
)
"""The caller's variables about user, locale, libraries and proxies. Of PATH, see Environment.search_path."""

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
LOOPBACK = ("127.0.0.1", "localhost")

TRAINING: Mapping[str, str] = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_NUM_INTEROP_THREADS": "2",
    "PYTHONUNBUFFERED": "1",
    "GRPC_FAIL_FAST": "use_caller",
}
"""Defaults for replicas that share a machine (measured; see docs)."""
THREADS = ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")
"""Variables set to the container's number of threads. NPROC is the size of XLA's thread pool, which JAX uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEnvironment:
    """The machine's part in a container's environment: the caller's variables, CPUs, allocatable resources.

    `gpu_memory` is that of each GPU in bytes, 0 for unknown.
    """

    caller: Mapping[str, str]
    cpus: int
    allocatable: Resources
    gpu_memory: int = 0


def machine_variables(machine: MachineEnvironment, image: Environment) -> dict[str, str]:
    """The variables of a process before those of the image and the manifest."""
    caller = machine.caller
    passed = {name: caller[name] for name in INHERITED if name in caller}
    variables = {"LANG": "C.UTF-8", "TMPDIR": "/tmp"} | passed  # noqa: S108 - where programs expect it
    variables["PATH"] = image.search_path(caller.get("PATH") or DEFAULT_PATH)
    if (image.folder / "pyvenv.cfg").is_file():
        variables["VIRTUAL_ENV"] = str(image.folder)
        if (image.bin_folder / "orted").exists():
            # The wheel of Open MPI 4 looks for its files where it was built, unless told otherwise.
            variables["OPAL_PREFIX"] = str(image.folder)
    if any(name.lower() in {"http_proxy", "https_proxy"} for name in passed):
        # gRPC uses proxies even for connections to another replica on this machine.
        exempt = caller.get("no_proxy") or caller.get("NO_PROXY") or ""
        merged = ",".join(dict.fromkeys([*filter(None, exempt.split(",")), *LOOPBACK]))
        variables |= {"no_proxy": merged, "NO_PROXY": merged}
    return variables


def training_variables(
    container: Container, machine: MachineEnvironment, given: DeviceIds, thread_share: int
) -> dict[str, str]:
    """Training defaults: thread counts and visible devices. A container that sets no CPUs gets the `thread_share`."""
    threads = str(min(downward.cpu_count(container) or thread_share, machine.cpus))
    return dict(TRAINING) | dict.fromkeys(THREADS, threads) | devices.visibility_variables(given, machine.allocatable)


def shared_gpu_variables(
    part: VgpuPart | None, machine: MachineEnvironment, image: Environment, declared: Mapping[str, str]
) -> dict[str, str]:
    """The limits on a shared GPU. Variables of the image's settings and `declared` in the manifest take precedence."""
    if part is None:
        return {}
    torch = gpu_limits.torch_version(image.folder)
    pipes = gpu_limits.mps_pipe_directory(machine.caller)
    variables = {
        **memory_variables(part.memory, machine.gpu_memory, torch),
        **mps_variables(part.limit, part.memory, "" if pipes is None else str(pipes)),
    }
    return without_those_of_user(variables, {**image.env, **declared})


def manifest_variables(pod: Pod, container: Container, sources: PodObjects, allocatable: Resources) -> dict[str, str]:
    """The variables of the manifest, in its order, with references expanded. Raises CannotStart for missing objects."""
    variables: dict[str, str] = {}
    for source in container.env_from:
        variables |= _from_source(source, sources)
    for variable in container.env:
        if variable.value or variable.value_from is None:
            variables[variable.name] = expand(variable.value, variables)
            continue
        value = _value(variable.value_from, pod, container, (sources, allocatable))
        if value is not None:
            variables[variable.name] = value
    return variables


def _from_source(source: EnvFrom, sources: PodObjects) -> dict[str, str]:
    files: Files = {}
    if source.config_map_ref:
        files = _object(source.config_map_ref, sources.config_maps, "configmap")
    elif source.secret_ref:
        files = _object(source.secret_ref, sources.secrets, "secret")
    # Variable names must not be empty or contain `=`; Kubernetes skips such keys too.
    return {
        f"{source.prefix}{key}": value.decode(errors="surrogateescape")
        for key, value in files.items()
        if key and "=" not in key
    }


def _object(selector: ObjectSelector | KeySelector, objects: Mapping[str, Files], kind: str) -> Files:
    files = objects.get(selector.name)
    if files is None and not selector.optional:
        raise CannotStart(f'{kind} "{selector.name}" not found')
    return files or {}


def _value(source: EnvVarSource, pod: Pod, container: Container, context: tuple[PodObjects, Resources]) -> str | None:
    """The value of a variable; None for an optional key that does not exist: the variable stays unset."""
    sources, allocatable = context
    if source.field_ref:
        return downward.field_value(pod, source.field_ref.field_path)
    if source.resource_field_ref:
        return downward.resource_value(pod, container, source.resource_field_ref, allocatable)
    if source.config_map_key_ref:
        return _key(source.config_map_key_ref, sources.config_maps, ("ConfigMap", pod.metadata.namespace))
    if source.secret_key_ref:
        return _key(source.secret_key_ref, sources.secrets, ("Secret", pod.metadata.namespace))
    raise CannotStart("unsupported valueFrom of a variable; a process node supports fieldRef, resourceFieldRef, "
                      "configMapKeyRef and secretKeyRef")  # fmt: skip


def _key(selector: KeySelector, objects: Mapping[str, Files], scope: tuple[str, str]) -> str | None:
    kind, namespace = scope
    files = _object(selector, objects, kind.lower())
    if selector.key in files:
        return files[selector.key].decode(errors="surrogateescape")
    if selector.optional:
        return None
    raise CannotStart(f"couldn't find key {selector.key} in {kind} {namespace}/{selector.name}")


def command_line(container: Container, image: Environment, variables: Mapping[str, str]) -> list[str]:
    """The manifest's command or the image's entrypoint, with the manifest's arguments; references expanded."""
    command = [expand(word, variables) for word in container.command] or list(image.entrypoint)
    return command + [expand(word, variables) for word in container.args]


def pod_variables(pod: Pod, workdir: Path) -> dict[str, str]:
    """Variables that a container runtime would set: HOSTNAME and PWD."""
    return {"HOSTNAME": pod.spec.hostname or pod.metadata.name, "PWD": str(workdir)}
