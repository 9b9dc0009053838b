"""Reads the objects of a FILE, applies the command line's changes, and reports all problems at once."""

from __future__ import annotations

import json
import math
import os
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import yaml

from tarragon.base.errors import Problem, TarragonError
from tarragon.base.escaping import escaped_line
from tarragon.cli.jobview.pod_templates import pod_templates
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.manifest.dependencies import Dependency, problem_of_manifest, problem_of_script
from tarragon.cli.manifest.files import UnreadableFile, display_name, read_file
from tarragon.cli.manifest.kubectl_export import as_new_job, as_new_object
from tarragon.cli.manifest.local_images import (
    ENVIRONMENTS,
    NO_NEEDS,
    SEVERAL,
    VOLUMES,
    WORKDIR,
    ScriptNeeds,
    commands_of_operator,
    image_map,
    missing_commands,
    missing_replica_warnings,
    other_installation_warnings,
    script_needs,
    shipped_script_needs,
    software_warnings,
    volumes_of_operator,
)
from tarragon.cli.manifest.local_paths import has_image_only, local_only_files, names_a_file, this_machine
from tarragon.cli.manifest.missing_scripts import missing_scripts
from tarragon.cli.manifest.overrides import (
    set_path,
    with_annotations_in_templates,
    with_env_sources,
    with_environment,
    without_gpus,
)
from tarragon.cli.manifest.script_data import local_data
from tarragon.cli.manifest.script_imports import parsed_programs
from tarragon.cli.manifest.script_manifest import NO_OPTIONS, ScriptOptions, is_script, script_manifest
from tarragon.cli.manifest.variables import (
    FORMER_SPELLING,
    EnvOptions,
    omission_note,
    omitted_variables,
    read_env_file,
    split_env_options,
)
from tarragon.cli.manifest.volume_mounts import mount_problems, unused_volumes
from tarragon.cli.options.arguments import is_folder
from tarragon.cli.options.settings import NAMESPACE_FORM, GlobalOptions, embedded_home, is_namespace
from tarragon.cli.output.invocation import current_invocation
from tarragon.cli.output.words import count, joined
from tarragon.cli.output.yaml_style import yaml_dump
from tarragon.frameworks.dialect_detection import LAST_APPLIED_ANNOTATION
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.script_job import SCRIPT_VOLUME
from tarragon.job.annotations import IDEMPOTENCY_KEY_ANNOTATION
from tarragon.kube.core import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS, SERVICE_ACCOUNTS, SERVICES
from tarragon.kube.meta import CustomObject, JsonObject, Resource
from tarragon.kube.pod_validation import main_container
from tarragon.plan.input.decode_and_validate import DecodedJob, decode_and_validate
from tarragon.plan.input.manifest import ManifestFile, ManifestJob, ManifestObject, only_job, read_manifest

_COMPANIONS = {
    resource.kind: resource.with_model(CustomObject)
    for resource in (CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS, SERVICES, SERVICE_ACCOUNTS)
}


class InvalidManifest(TarragonError):
    """The manifest has problems. Exit code 2."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """The changes to FILE's job that the command line asks for."""

    values: Sequence[tuple[str, str]] = ()
    strings: Sequence[tuple[str, str]] = ()
    """Values that stay strings (--set-string)."""
    jsons: Sequence[tuple[str, str]] = ()
    idempotency_key: str = ""
    is_cpu_only: bool = False
    variables: Sequence[tuple[str, str]] = ()
    """Of -e and --env, which still may be images with folders."""
    env_files: Sequence[str] = ()
    env_sources: Sequence[tuple[str, str]] = ()
    """Of --env-from: fields of envFrom, and names of objects."""
    environments: Mapping[str, Path] = field(default_factory=dict)
    """Folders that stand for images (--image-env)."""
    volumes: Mapping[str, Path] = field(default_factory=dict)
    replaces_finished: bool = False
    script: ScriptOptions = NO_OPTIONS
    """What a script's job is like, if FILE is a script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedJob:
    """A job and its companions, ready to be created, all in one namespace. `notes` are for stderr."""

    framework: Framework
    job: JsonObject
    companions: Sequence[tuple[Resource[CustomObject], JsonObject]]
    notes: Sequence[str]
    replaces_finished: bool = False
    documents: Sequence[JsonObject] = ()
    """The manifest of a script: what accompanies its job, and the job as a user would write it."""
    numbered: Callable[[int], LoadedJob] | None = None
    """Loads the same script under another name, `train-2`; None if the user has chosen the name."""

    @property
    def namespace(self) -> str:
        return str(self.job["metadata"]["namespace"])

    @property
    def is_script(self) -> bool:
        return bool(self.documents)

    @property
    def missing_object_problem(self) -> Callable[[Dependency, str], Problem]:
        """Words the problem of an object that the pods use and that does not exist."""
        return problem_of_script if self.is_script else problem_of_manifest


def load(target: ClusterTarget, settings: GlobalOptions, name: str, changes: Overrides) -> LoadedJob:
    """Loads a FILE with one job. Raises InvalidManifest with all problems, UnreadableFile, or another TarragonError."""
    file = _file(target, name, changes)
    document = only_job(file.documents)
    if isinstance(document, Problem):
        raise invalid_manifest(name, [document])
    loaded = _loaded(target, settings, file, document, changes)
    # With a key, a second attempt must find the job of the first.
    if not is_script(name) or changes.script.name or changes.idempotency_key:
        return loaded

    def numbered(number: int) -> LoadedJob:
        return load(target, settings, name, replace(changes, script=replace(changes.script, number=number)))

    return replace(loaded, numbered=numbered)


def load_all(target: ClusterTarget, settings: GlobalOptions, name: str, changes: Overrides) -> Sequence[LoadedJob]:
    """Loads a FILE with one or more jobs. The other objects go with the first job. Raises like `load`."""
    if is_script(name):
        return [load(target, settings, name, changes)]
    file = _file(target, name, changes)
    loaded = [_loaded(target, settings, file, document, changes) for document in file.documents.jobs]
    if not loaded:
        raise invalid_manifest(name, [Problem("", "the manifest contains no job", "add one")])
    if len(loaded) > 1 and changes.idempotency_key:
        raise InvalidManifest(
            "--idempotency-key requires a FILE with one job", why=f"{display_name(name)} contains {len(loaded)}"
        )
    return [loaded[0], *(replace(each, companions=()) for each in loaded[1:])]


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    documents: ManifestFile
    notes: Sequence[str] = ()
    problems: Sequence[Problem] = ()
    """Of what a script brings along."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a job stands in FILE. The manifest of a script has lines that nobody sees: they are left out."""

    file: _File
    document: ManifestJob

    def with_lines(self, problems: Iterable[Problem]) -> list[Problem]:
        if is_script(self.file.name):
            return list(problems)
        return [self.document.with_line(problem) for problem in problems]

    def warnings(self, problems: Iterable[Problem]) -> list[str]:
        return [f"warning: {problem}" for problem in self.with_lines(problems)]


def _file(target: ClusterTarget, name: str, changes: Overrides) -> _File:
    if not is_script(name):
        return _File(name, read_documents(name))
    made = script_manifest(name, changes.script, is_shipped=not target.is_local)
    documents = read_manifest("\n---\n".join(map(yaml_dump, made.documents)))
    if documents.problems:
        raise invalid_manifest(name, [replace(problem, line=None) for problem in documents.problems])
    return _File(name, documents, made.notes, made.problems)


def _loaded(
    target: ClusterTarget, settings: GlobalOptions, file: _File, document: ManifestJob, changes: Overrides
) -> LoadedJob:
    name, documents, source = file.name, file.documents, _Source(file, document)
    framework = document.framework
    job, notes = apply_overrides(framework, document.manifest, changes)
    decoded = decode_and_validate(framework, job)
    problems = [*file.problems, *decoded.all_problems, *_namespaces(documents, settings)]
    if problems:
        raise invalid_manifest(name, source.with_lines(problems))
    env = _env_options(job, framework, changes)
    changes = replace(changes, environments={**env.environments, **changes.environments})
    job = with_environment(job, env.variables, framework.main_container)
    job = with_env_sources(job, changes.env_sources, framework.main_container)
    job = as_new_job(framework, job, decoded.dialect)
    adapted = (
        _for_this_machine(framework, job, decoded, changes)
        if target.is_local
        else _for_a_cluster(target, source, decoded, job, changes)
    )
    if adapted.problems:
        raise invalid_manifest(name, source.with_lines(adapted.problems))
    namespace = str(_metadata(job).get("namespace") or next(iter(_namespaces_in(documents)), target.namespace))
    return LoadedJob(
        framework=framework,
        job=_keyed(_in_namespace(_as_applied(adapted.job, job, namespace), namespace), changes.idempotency_key),
        companions=[_companion(other, namespace) for other in documents.companions],
        notes=[
            *file.notes,
            *notes,
            *([FORMER_SPELLING] if env.environments else []),
            *source.warnings([*decoded.warnings, *unused_volumes(job)]),
            *_replica_notes(framework, name, decoded),
            *adapted.notes,
        ],
        replaces_finished=changes.replaces_finished,
        documents=[*(other.manifest for other in documents.companions), adapted.manifest] if is_script(name) else (),
    )


def _env_options(job: JsonObject, framework: Framework, changes: Overrides) -> EnvOptions:
    """Returns the variables of --env-file and -e, which takes precedence. Raises UnreadableFile."""
    mains = [main_container(template, framework.main_container) or {} for _, template in pod_templates(job)]
    images = {str(main.get("image") or "") for main in mains}
    options = split_env_options(changes.variables, images, is_folder)
    files = [read_env_file(name, os.environ) for name in changes.env_files]
    return replace(options, variables={**dict(ChainMap(*reversed(files))), **options.variables})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Adapted:
    """A job adapted to the cluster that it goes to, with problems and notes.

    `manifest` is what a user could have written: without annotations for the kubelet of this machine.
    """

    job: JsonObject
    manifest: JsonObject
    problems: Sequence[Problem] = ()
    notes: Sequence[str] = ()


def _for_this_machine(framework: Framework, job: JsonObject, decoded: DecodedJob, changes: Overrides) -> _Adapted:
    images, faults = image_map(embedded_home(), changes.environments)
    if faults:
        raise TarragonError(f"{embedded_home().images} can't be used", why="\n".join(map(str, faults)))
    needs = script_needs(job, framework, images, Path.cwd(), _most_replicas(decoded))
    job = with_environment(job, needs.variables, framework.main_container)
    omitted = omitted_variables(job, framework.main_container, os.environ)
    return _Adapted(
        job=with_annotations_in_templates(job, kubelet_annotations(Path.cwd(), changes)),
        manifest=job,
        problems=[
            *mount_problems(job, volumes_of_operator(decoded)),
            *missing_commands(job, decoded, images),
            *missing_scripts(job, images, Path.cwd(), [*commands_of_operator(decoded)]),
        ],
        notes=[
            *other_installation_warnings(job, framework, images),
            *software_warnings(job, framework, images, Path.cwd()),
            *needs.notes,
            *([omission_note(omitted)] if omitted else []),
        ],
    )


def _for_a_cluster(
    target: ClusterTarget, source: _Source, decoded: DecodedJob, job: JsonObject, changes: Overrides
) -> _Adapted:
    """Warns if the job seems to need what the cluster does not have: of this machine, or volumes that none defines.

    A webhook of the cluster may add volumes.
    """
    notes = [*source.warnings([*mount_problems(job, volumes_of_operator(decoded))])]
    notes += source.warnings(local_only_files(job, this_machine()))
    notes += _data_notes(job, source.file.name, changes.script.args)
    notes += [
        f"warning: {flag} works only on this machine: it is ignored on {target.name}"
        for flag, mapped in (("--image-env", changes.environments), ("--volume", changes.volumes))
        if mapped
    ]
    if changes.is_cpu_only:
        notes.append(f"warning: --cpu-only is meant for machines without GPUs, but also applies on {target.name}")
    framework = source.document.framework
    needs = _needs_on_a_cluster(framework, job, source.file.name, decoded)
    job = with_environment(job, needs.variables, framework.main_container)
    return _Adapted(job=job, manifest=job, notes=[*notes, *needs.notes])


def _data_notes(job: JsonObject, file: str, args: Sequence[str]) -> Iterator[str]:
    """Notes data beside a script, which its code does not bring along. `local_only_files` reports the other words."""
    if not is_script(file) or not has_image_only(job, SCRIPT_VOLUME):
        return
    words = [word for word in args if not names_a_file(word.rpartition("=")[2])]
    found = local_data(Path(file), words, parsed_programs([file], Path()))
    if found:
        exist, travel, them = ("exists", "does", "it") if len(found) == 1 else ("exist", "do", "them")
        yield (
            f"note: {joined(found, most=3)} {exist} on this machine but {travel} not travel to the cluster with "
            f"{Path(file).name}, which seems to read {them}; put {them} into an image (--image) or on a volume: "
            "`tarragon docs howto/data`"
        )


def _needs_on_a_cluster(framework: Framework, job: JsonObject, file: str, decoded: DecodedJob) -> ScriptNeeds:
    """Returns what a script needs. A manifest starts scripts of its images, which nobody can read here."""
    if not is_script(file):
        return NO_NEEDS
    images, _ = image_map(embedded_home(), {})
    return shipped_script_needs(job, framework, images, Path(file), _most_replicas(decoded))


def _replica_notes(framework: Framework, file: str, decoded: DecodedJob) -> Iterator[str]:
    if is_script(file) and decoded.job is not None:
        yield from missing_replica_warnings(framework, decoded.job, Path(file))


def _most_replicas(decoded: DecodedJob) -> int:
    """Returns how many replicas the job may have; more than one for an elastic job, whatever its policy says."""
    if decoded.job is None or decoded.job.elastic_policy is not None:
        return SEVERAL
    return sum(group.replicas for group in decoded.job.replica_specs)


def kubelet_annotations(workdir: Path, changes: Overrides) -> dict[str, str]:
    """Returns annotations for the pods: the current folder, and the folders from --volume and --image-env."""
    annotations = {WORKDIR: str(workdir)}
    for name, folders in ((VOLUMES, changes.volumes), (ENVIRONMENTS, changes.environments)):
        if folders:
            annotations[name] = json.dumps({thing: str(folder) for thing, folder in folders.items()})
    return annotations


def read_documents(name: str) -> ManifestFile:
    """Returns the documents of FILE. Raises InvalidManifest or UnreadableFile."""
    try:
        text = read_file(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile(
            f"{display_name(name)} is not a text file",
            why=f"byte {error.start} is not UTF-8",
            remedy="save the manifest as UTF-8",
        ) from error
    if is_script(name):
        program = current_invocation()
        raise InvalidManifest(
            f"{name} is a script, not a manifest",
            remedy=f"`{program} run {name}` makes a job of it; `{program} init {name}` writes the job's manifest",
        )
    if name.endswith(".ipynb"):
        raise InvalidManifest(
            f"{name} is a notebook",
            why="a job runs a script",
            remedy=f"export it with `jupyter nbconvert --to script {name}`, and run the result",
        )
    documents = read_manifest(text)
    if documents.problems:
        raise invalid_manifest(name, documents.problems)
    return documents


def invalid_manifest(name: str, problems: Sequence[Problem]) -> InvalidManifest:
    """Returns the error for these problems, sorted by line; problems without a line come last."""
    ordered = sorted(problems, key=lambda problem: math.inf if problem.line is None else problem.line)
    messages = [escaped_line(str(problem)) for problem in ordered]
    return InvalidManifest(f"{display_name(name)}: {count(len(problems), 'problem')}", why="\n".join(messages))


def apply_overrides(framework: Framework, job: JsonObject, changes: Overrides) -> tuple[JsonObject, list[str]]:
    """Applies --set and --cpu-only, returns the job and notes. Raises InvalidManifest for an unknown path."""
    for flag, pairs, parsed in (
        ("--set-json", changes.jsons, json.loads),
        ("--set", changes.values, yaml.safe_load),
        ("--set-string", changes.strings, str),
    ):
        for path, text in pairs:
            try:
                job = set_path(job, path, parsed(text))
            except (ValueError, RecursionError, yaml.YAMLError) as error:
                raise InvalidManifest(f"{flag} {path}={text} failed", why=str(error)) from error
    if not changes.is_cpu_only:
        return job, []
    if not isinstance(job.get("spec"), Mapping):
        return job, []
    counted = framework.editable_fields.without_gpu_count(job)
    counts = [f"spec.{name}" for name in job["spec"] if name not in counted["spec"]]
    job, requests = without_gpus(counted)
    removed = [*counts, *requests]
    if not removed:
        return job, ["--cpu-only has no effect: the job requests no GPU"]
    return job, [f"--cpu-only: removed {count(len(removed), 'GPU request')}: {joined(removed, most=3)}"]


def _namespaces(documents: ManifestFile, settings: GlobalOptions) -> Iterator[Problem]:
    """Yields a problem unless FILE and -n name at most one, valid namespace."""
    names = _namespaces_in(documents)
    if settings.explicit_namespace:
        names.add(settings.explicit_namespace)
    for name in sorted(names):
        if not is_namespace(name):
            yield Problem("metadata.namespace", f"{name!r} is not a valid namespace name", f"use {NAMESPACE_FORM}")
    if len(names) > 1:
        yield Problem(
            "metadata.namespace", f"several namespaces are given: {', '.join(sorted(names))}", "use one, or only -n"
        )


def _namespaces_in(documents: ManifestFile) -> set[str]:
    metadata = [_metadata(document.manifest) for document in (*documents.jobs, *documents.companions)]
    return {str(each["namespace"]) for each in metadata if each.get("namespace")}


def _metadata(body: JsonObject) -> JsonObject:
    found = body.get("metadata")
    return found if isinstance(found, Mapping) else {}


def _as_applied(job: JsonObject, written: JsonObject, namespace: str) -> JsonObject:
    """Adds kubectl's last-applied annotation, so that a later `kubectl apply` of the file knows which fields to remove,
    and prints no warning. Annotations that this machine adds are not in it, and are kept.
    """
    metadata = _metadata(job)
    if not metadata.get("name"):
        return job
    annotations = dict(metadata.get("annotations") or {})
    return {
        **job,
        "metadata": {
            **metadata,
            "annotations": {**annotations, LAST_APPLIED_ANNOTATION: last_applied(written, namespace)},
        },
    }


def last_applied(written: JsonObject, namespace: str) -> str:
    """Returns the value of kubectl's last-applied annotation: one line of sorted JSON with a newline at the end."""
    bare = {name: value for name, value in written.items() if name != "status"}
    annotations = {
        name: text
        for name, text in (_metadata(bare).get("annotations") or {}).items()
        if name != LAST_APPLIED_ANNOTATION
    }
    bare["metadata"] = {**_metadata(bare), "annotations": annotations, "namespace": namespace}
    return json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"


def _keyed(job: JsonObject, key: str) -> JsonObject:
    """Derives a generated name from the idempotency key, so that a second attempt finds the job of the first."""
    if not key:
        return job
    metadata = dict(_metadata(job))
    if not metadata.get("name"):
        metadata["name"] = f"{metadata.pop('generateName', 'job-')}{sha256(key.encode()).hexdigest()[:10]}"
    metadata["annotations"] = {**(metadata.get("annotations") or {}), IDEMPOTENCY_KEY_ANNOTATION: key}
    return {**job, "metadata": metadata}


def _companion(document: ManifestObject, namespace: str) -> tuple[Resource[CustomObject], JsonObject]:
    body = as_new_object(document.manifest)
    return _COMPANIONS[str(body["kind"])], _in_namespace(_as_applied(body, body, namespace), namespace)


def _in_namespace(body: JsonObject, namespace: str) -> JsonObject:
    return {**body, "metadata": {**_metadata(body), "namespace": namespace}}
