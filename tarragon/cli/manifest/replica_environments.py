"""Where the replicas of a job ran or will run, for messages that say what to install there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tarragon.cli.jobview.causes import ReplicaEnvironment
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.pod_templates import pod_templates
from tarragon.cli.manifest.local_images import ENVIRONMENTS, image_map
from tarragon.cli.options.settings import embedded_home
from tarragon.cli.targets.environment import install_command_for, installed_versions
from tarragon.job.model import ReplicaType
from tarragon.job.status import JobStatus
from tarragon.kube.meta import Json, JsonObject
from tarragon.kube.pod_validation import main_container
from tarragon.localcluster.kubelet.images.images import Environment
from tarragon.plan.input.decode_and_validate import manifest_of

_DOCKERFILE_INSTALL = "in the image's Dockerfile: pip install"
_OF_AN_IMAGE = ReplicaEnvironment(name="its image", install=_DOCKERFILE_INSTALL)

_MEMORY_OF_THIS_MACHINE = (
    ": perhaps this machine had no more (`free -h`), or your shell sets a limit (`ulimit -v`); "
    "resources.limits are not enforced here. A replica that requests memory "
    "(resources.requests.memory, of a script: --memory) waits until it is free"
)
_PATHS_OF_THIS_MACHINE = "a relative path starts at workingDir, or else at the folder from which tarragon was run"
_DISK_OF_THIS_MACHINE = "`df -h` shows which one; put the volume on another disk: --volume NAME=FOLDER"


def replica_environments(job: ClusterJob, *, is_local: bool) -> Mapping[ReplicaType, ReplicaEnvironment]:
    """Returns where the main containers of each replica type ran; empty if the manifest can't be read."""
    if job.job is None:
        return {}
    if not is_local:
        return {group.type: _OF_AN_IMAGE for group in job.job.replica_specs}
    containers = {
        group.type: main_container(group.template, job.framework.main_container) or {}
        for group in job.job.replica_specs
    }
    environments = {
        kind: _environment_for(job, str(container.get("image") or "")) for kind, container in containers.items()
    }
    return {
        kind: ReplicaEnvironment(
            name=str(found.folder),
            install=install_command_for(found),
            packages=installed_versions(found),
            more_memory=_MEMORY_OF_THIS_MACHINE,
            relative_paths=_PATHS_OF_THIS_MACHINE,
            more_disk=_DISK_OF_THIS_MACHINE,
        )
        for kind, found in environments.items()
    }


def install_command_for_image(job: ClusterJob, image: str, *, is_local: bool) -> str:
    """Returns the command that installs packages where containers of that image run, without the packages."""
    return install_command_for(_environment_for(job, image)) if is_local else _DOCKERFILE_INSTALL


def _environment_for(job: ClusterJob, image: str) -> Environment:
    """Returns the environment that ran one of the job's images, or else the one that would run it now."""
    images, _ = image_map(embedded_home(), _submitted_environments(manifest_of(job.object)))
    mapped, recorded = images.environment_of(image), _recorded_folder(job.status, image)
    return mapped if recorded is None else replace(mapped, folder=recorded)


def _recorded_folder(status: JobStatus, image: str) -> Path | None:
    """Returns the folder that a node reported in the place of the image's digest; None if there were several."""
    recorded = "" if status.provenance is None else status.provenance.image_digests.get(image, "")
    return Path(recorded) if recorded.startswith("/") and Path(recorded).is_dir() else None


def _submitted_environments(job: JsonObject) -> dict[str, Path]:
    """Returns the environments that --image-env gave when the job was submitted."""
    for _, template in pod_templates(job):
        annotations: Json = (template.get("metadata") or {}).get("annotations") or {}
        with suppress(ValueError, AttributeError, RecursionError):
            return {image: Path(folder) for image, folder in json.loads(annotations.get(ENVIRONMENTS, "{}")).items()}
    return {}
