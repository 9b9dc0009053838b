"""What this machine knows of a job's images: which environment runs it, and what must be said before anything is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tarragon.base.errors import Problem
from tarragon.cli.jobview.jobs import Known
from tarragon.cli.jobview.pod_templates import templates
from tarragon.cli.options.settings import home
from tarragon.cli.targets.environment import calls_python, has_module, installer
from tarragon.frameworks.plugin import Framework
from tarragon.kube.meta import Json, JsonObject
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.kubelet.images.image_file import read_image_file
from tarragon.localcluster.kubelet.images.images import Environment, ImageMap, lacks_command

IN_DOCKERFILE = "in the image's Dockerfile: pip install"
WORKDIR = "tarragon.dev/workdir"
VOLUMES = "tarragon.dev/volumes"
ENVIRONMENTS = "tarragon.dev/environments"
"""Annotations of pods that the process kubelet reads (kubelet/pod/launch.py; importing that takes too long)."""


def image_map(place: Home, folders: Mapping[str, Path]) -> tuple[ImageMap, list[Problem]]:
    """That of the home, with --env in front of it."""
    images, problems = read_image_file(place.images)
    return images.with_folders(folders), problems


def commands_missing(job: JsonObject, images: ImageMap) -> Iterator[Problem]:
    """Containers of which nobody here knows what they should start."""
    for path, container in _containers(job):
        yield from filter(
            None, [lacks_command(container.get("image") or "", container.get("command") or (), images, path)]
        )


def tensorflow_missing(job: JsonObject, framework: Framework, images: ImageMap) -> Iterator[str]:
    """What to say of a job that expects TensorFlow from its image and gets an environment without it. Once each."""
    told: set[Path] = set()
    for _, container in _containers(job):
        image = str(container.get("image") or "")
        environment = images.environment(image)
        words = [*(container.get("command") or environment.entrypoint), *(container.get("args") or ())]
        is_main = container.get("name") == framework.main_container and "tensorflow" in image
        if not is_main or environment.folder in told or not calls_python([str(word) for word in words]):
            continue
        told.add(environment.folder)
        if not has_module(environment, "tensorflow"):
            yield (
                f"warning: {environment.folder}, which stands for the image {image} here, has no TensorFlow\n"
                f"  {installer(environment)} 'tarragon[tensorflow]'; "
                f"or name an environment that has it: --env {image}=FOLDER"
            )


def environment_of(job: Known) -> Environment:
    """What the job's main containers ran in."""
    manifest = {"spec": job.object.spec}
    for _, container in _containers(manifest):
        if container.get("name") == job.framework.main_container:
            return environment_for(job, str(container.get("image") or ""))
    return environment_for(job, "")


def environment_for(job: Known, image: str) -> Environment:
    """What stands for an image of the job."""
    images, _ = image_map(home(), _said_environments({"spec": job.object.spec}))
    return images.environment(image)


def install_for(job: Known, image: str, *, is_local: bool) -> str:
    """The beginning of a command that installs something where containers of that image run."""
    return installer(environment_for(job, image)) if is_local else IN_DOCKERFILE


def _said_environments(job: JsonObject) -> dict[str, Path]:
    """What --env said when the job was submitted."""
    for _, template in templates(job):
        annotations: Json = (template.get("metadata") or {}).get("annotations") or {}
        with suppress(ValueError, AttributeError, RecursionError):
            return {image: Path(folder) for image, folder in json.loads(annotations.get(ENVIRONMENTS, "{}")).items()}
    return {}


def _containers(job: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """All of all templates, init containers first, each with its path."""
    for path, template in templates(job):
        for field in ("initContainers", "containers"):
            found: Json = template["spec"].get(field)
            for number, container in enumerate(found if isinstance(found, list) else ()):
                if isinstance(container, Mapping):
                    yield f"{path}.spec.{field}[{number}]", container
