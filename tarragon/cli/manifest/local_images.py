"""The local Python environments that run a job's images, and warnings about them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tarragon.base.errors import Problem
from tarragon.cli.jobview.pod_templates import pod_templates
from tarragon.cli.manifest.script_imports import imported_modules, modules_of_programs, parsed_programs
from tarragon.cli.targets.environment import (
    cluster_environment,
    has_software,
    install_command_for,
    installed_versions,
    is_same_folder,
    misfit_program,
    needs_software,
)
from tarragon.frameworks.image_software import ImageSoftware
from tarragon.frameworks.plugin import DiscoveryConfig, Framework
from tarragon.frameworks.script_needs import NeededVariable, ScriptMistake
from tarragon.job.model import Replica, ReplicaSpec, TrainingJob
from tarragon.kube.meta import Json, JsonObject
from tarragon.kube.pod_validation import main_container
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.kubelet.images.image_file import read_image_file
from tarragon.localcluster.kubelet.images.images import (
    Environment,
    ImageMap,
    current_environment,
    missing_command_problem,
)
from tarragon.plan.input.decode_and_validate import DecodedJob

WORKDIR = "tarragon.dev/workdir"
VOLUMES = "tarragon.dev/volumes"
ENVIRONMENTS = "tarragon.dev/environments"
"""Pod annotations of the process kubelet. Copied from kubelet/pod/launch.py, which takes too long to import."""


def image_map(place: Home, folders: Mapping[str, Path]) -> tuple[ImageMap, list[Problem]]:
    """Returns the home's image map, with the folders of --image-env first, and its problems.

    Other images run in the environment of the local cluster, which may have been started by another installation.
    """
    images, problems = read_image_file(place.images, cluster_environment(place))
    return images.with_folders(folders), problems


def missing_commands(job: JsonObject, decoded: DecodedJob, images: ImageMap) -> Iterator[Problem]:
    """Yields a problem for each container without a known command."""
    provided = frozenset(commands_of_operator(decoded))
    for path, container in _containers(job):
        if path not in provided:
            command = container.get("command") or ()
            problem = missing_command_problem(container.get("image") or "", command, images, path)
            yield from [] if problem is None else [problem]


def commands_of_operator(decoded: DecodedJob) -> Iterator[str]:
    """Yields the path of each container to which the operator adds a command, as sshd to workers of MPI."""
    for group, wiring in _wirings(decoded):
        if not wiring.command:
            continue
        for number, container in enumerate(group.template.get("spec", {}).get("containers", [])):
            if wiring.container in {"", container.get("name")}:
                yield f"{group.field_path}.template.spec.containers[{number}]"


def volumes_of_operator(decoded: DecodedJob) -> frozenset[str]:
    """Returns the names of the volumes that the operator adds, as that of the host file of MPI."""
    return frozenset(volume["name"] for _, wiring in _wirings(decoded) for volume in wiring.volumes)


def _wirings(decoded: DecodedJob) -> Iterator[tuple[ReplicaSpec, DiscoveryConfig]]:
    if decoded.job is None or decoded.dialect is None:
        return
    wire = decoded.dialect.discovery_config(decoded.job, decoded.job.requested_size(), "")
    for group in decoded.job.replica_specs:
        wiring = wire(Replica(group.type, 0))
        if wiring is not None:
            yield group, wiring


@dataclass(frozen=True, slots=True, kw_only=True)
class _LocalContainer:
    """A main container of the job, and what stands for its image on this machine."""

    image: str
    environment: Environment
    command: Sequence[str]
    workdir: str
    variables: frozenset[str]
    """The names of those that the manifest or the image map sets."""


def software_warnings(job: JsonObject, framework: Framework, images: ImageMap, folder: Path) -> Iterator[str]:
    """Warns of software that the job needs and that the local environments lack or mix; once per environment.

    `folder` is where containers without a working directory start.
    """
    reported: set[Path] = set()
    for container in _main_containers(job, framework, images):
        warning = next(_warnings(container, framework, folder), None)
        if warning is not None and container.environment.folder not in reported:
            reported.add(container.environment.folder)
            yield warning


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptNeeds:
    """What the job's scripts need of their environments: variables for all replicas, and notes about them."""

    variables: Mapping[str, str]
    reasons: Mapping[str, str]
    """Why each of the variables is needed."""
    notes: Sequence[str]


SEVERAL = 2
"""The replicas of a job that is to run with any number of them."""

NO_NEEDS = ScriptNeeds(variables={}, reasons={}, notes=())


def script_needs(
    job: JsonObject, framework: Framework, images: ImageMap, folder: Path, replicas: int = SEVERAL
) -> ScriptNeeds:
    """Returns what the job's scripts need, as far as they are files of this machine.

    Nothing is said of variables that the manifest or the image map sets. `folder` is where containers without a working
    directory start, `replicas` the most that the job may have.
    """
    found: list[NeededVariable | ScriptMistake] = []
    for container in _main_containers(job, framework, images):
        programs = parsed_programs(container.command, folder / container.workdir)
        installed = installed_versions(container.environment) if programs else {}
        install = install_command_for(container.environment)
        found += _open_needs(framework.script_needs(programs, installed, replicas), container.variables, install)
    return _as_script_needs(found)


def shipped_script_needs(
    job: JsonObject, framework: Framework, images: ImageMap, script: Path, replicas: int
) -> ScriptNeeds:
    """Returns what a script needs that goes to a cluster with its job.

    Nobody knows what the job's images have there, unless they are those that Tarragon has chosen. Others are taken to
    be like what stands for them on this machine.
    """
    programs = parsed_programs([str(script)], Path())
    found: list[NeededVariable | ScriptMistake] = []
    for _, template in pod_templates(job):
        container = main_container(template, framework.main_container) or {}
        image = str(container.get("image") or "")
        installed = installed_versions(images.environment_of(image)) if programs else {}
        if _is_chosen(framework, image) or any(framework.script_needs(programs, installed, replicas)):
            own = frozenset(str(each.get("name")) for each in container.get("env") or ())
            found += _open_needs(framework.script_needs_of_image(programs, replicas), own, "pip install")
    return _as_script_needs(found)


def missing_replica_warnings(framework: Framework, job: TrainingJob, script: Path) -> Iterator[str]:
    """Warns if the options that made a job of the script leave out replicas that it needs."""
    for mistake in framework.missing_replicas(parsed_programs([str(script)], Path()), job):
        yield _note(mistake)


def _is_chosen(framework: Framework, image: str) -> bool:
    """Whether it is an image that Tarragon takes for scripts whose user names none."""
    return framework.scripts is not None and image in {framework.scripts.image, framework.scripts.gpu_image}


def _open_needs(
    needs: Iterator[NeededVariable | ScriptMistake], variables: Collection[str], install: str
) -> Iterator[NeededVariable | ScriptMistake]:
    """Yields the needs without those of variables that the container has, and with the command that installs."""
    for need in needs:
        match need:
            case NeededVariable() if need.name not in variables:
                yield need
            case ScriptMistake():
                yield replace(need, remedy=need.remedy.format(install=install))
            case _:
                pass


def _as_script_needs(needs: Sequence[NeededVariable | ScriptMistake]) -> ScriptNeeds:
    variables = {need.name: need for need in needs if isinstance(need, NeededVariable)}
    return ScriptNeeds(
        variables={name: need.value for name, need in variables.items()},
        reasons={name: need.reason for name, need in variables.items()},
        notes=list(dict.fromkeys(map(_note, needs))),
    )


def _note(need: NeededVariable | ScriptMistake) -> str:
    match need:
        case NeededVariable():
            return f"note: {need.name}={need.value} is set in all replicas: {need.reason}"
        case ScriptMistake():
            return f"warning: {need.message}\n  {need.remedy}"


def other_installation_warnings(job: JsonObject, framework: Framework, images: ImageMap) -> Iterator[str]:
    """Warns if the job runs in the environment of another installation of Tarragon, which started the local cluster."""
    own = current_environment().folder
    if is_same_folder(images.default.folder, own):
        return
    for container in _main_containers(job, framework, images):
        if images.is_default(container.image):
            yield (
                f"warning: the image {container.image} runs in {images.default.folder}, not in {own}: "
                "the tarragon of that environment started the local cluster\n"
                "  `tarragon down` stops it and its pods, and the next run uses this one's; "
                f"or name an environment: --image-env {container.image}=FOLDER"
            )
            return


def _main_containers(job: JsonObject, framework: Framework, images: ImageMap) -> Iterator[_LocalContainer]:
    for _, template in pod_templates(job):
        container = main_container(template, framework.main_container) or {}
        environment = images.environment_of(str(container.get("image") or ""))
        words = [*(container.get("command") or environment.entrypoint), *(container.get("args") or ())]
        yield _LocalContainer(
            image=str(container.get("image") or ""),
            environment=environment,
            command=[str(word) for word in words],
            workdir=str(container.get("workingDir") or environment.workdir),
            variables=frozenset([*environment.env, *(str(each.get("name")) for each in container.get("env") or ())]),
        )


def _warnings(container: _LocalContainer, framework: Framework, folder: Path) -> Iterator[str]:
    image, environment, start = container.image, container.environment, folder / container.workdir
    used = modules_of_programs(container.command, start) if _is_chosen(framework, image) else frozenset[str]()
    imported = used or imported_modules(container.command, start)
    # The image for a script of whoever named none does not say what this script needs.
    named = "" if used else image
    needed = [each for each in framework.image_software if needs_software(each, named, container.command, imported)]
    for each in needed:
        if not has_software(environment, each):
            yield (
                f"warning: {each.title} is not installed in {environment.folder}, "
                f"which runs the image {image} here\n  {_remedy(container, each)}"
            )
    for each in needed:
        program = misfit_program(environment, each)
        if program is not None:
            yield (
                f"warning: {each.program} is {program}, not one of {environment.folder}, which has {each.partner} "
                f"and runs the image {image} here: they may not know each other\n  {_remedy(container, each)}"
            )


def _remedy(container: _LocalContainer, software: ImageSoftware) -> str:
    return (
        f"{install_command_for(container.environment)} {software.packages[0]}; "
        f"or use an environment that has it: --image-env {container.image}=FOLDER"
    )


def _containers(job: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yields every container with its path, init containers first."""
    for path, template in pod_templates(job):
        for field in ("initContainers", "containers"):
            found: Json = template["spec"].get(field)
            for number, container in enumerate(found if isinstance(found, list) else ()):
                if isinstance(container, Mapping):
                    yield f"{path}.{field}[{number}]", container
