"""Reads manifest files: jobs and the objects that accompany them. Checks only what needs no cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tarragon.base.errors import Problem
from tarragon.frameworks.plugin import Framework, Manifest
from tarragon.frameworks.registry import framework_of, kinds, misspelled_kind
from tarragon.frameworks.unsupported_kinds import RUNS, unsupported_kind_problem
from tarragon.kube.field_reader import CollectedProblems, FieldReader, describe_value, suggestion
from tarragon.kube.meta import Json
from tarragon.kube.yaml_reader import YamlDocument, read_yaml

ADD_A_JOB = f"add a job: {RUNS}"
COMPANIONS = ("ConfigMap", "PersistentVolumeClaim", "Secret", "Service", "ServiceAccount")
"""Kinds of the API version v1 that a manifest may contain besides jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestObject:
    """One object of a manifest file."""

    manifest: Manifest
    source: YamlDocument
    path: str = ""
    """The object's path in its YAML document: empty, or that of an item of a List."""

    @property
    def name(self) -> str:
        """`TFJob dist`, for messages."""
        metadata = self.manifest.get("metadata")
        fields = metadata if isinstance(metadata, dict) else {}
        return f"{self.manifest.get('kind')} {fields.get('name') or fields.get('generateName') or '(without a name)'}"

    def with_line(self, problem: Problem) -> Problem:
        """Return the problem with the line that it concerns."""
        return replace(problem, line=self.source.line_of(".".join(filter(None, (self.path, problem.path)))))


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestJob(ManifestObject):
    """A job of a manifest file."""

    framework: Framework


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """The objects of a manifest file; incomplete if there are problems."""

    jobs: Sequence[ManifestJob] = ()
    companions: Sequence[ManifestObject] = ()
    problems: Sequence[Problem] = ()


def read_manifest(text: str) -> ManifestFile:
    """Read a manifest file. Never raises. The jobs are not validated here but by `decode_and_validate`."""
    parsed, problems = read_yaml(text)
    documents = [document for source in parsed for document in _documents_of(source, problems)]
    if not documents and not problems:
        problems.append(Problem("", "the manifest is empty", ADD_A_JOB))
    problems += _duplicates(documents)
    return ManifestFile(
        jobs=tuple(document for document in documents if isinstance(document, ManifestJob)),
        companions=tuple(document for document in documents if not isinstance(document, ManifestJob)),
        problems=tuple(problems),
    )


def only_job(documents: ManifestFile) -> ManifestJob | Problem:
    """Return the only job, for commands that take exactly one, or the problem that there is none or several."""
    match documents.jobs:
        case [job]:
            return job
        case []:
            return Problem("", "there is no job in the manifest", ADD_A_JOB)
        case jobs:
            names = ", ".join(f"{job.name} in line {job.source.line_of(job.path)}" for job in jobs)
            return Problem("", f"there are {len(jobs)} jobs in the manifest: {names}", "keep only one of them")


def _documents_of(source: YamlDocument, problems: list[Problem]) -> Iterator[ManifestObject]:
    if _field(source.value, "kind") != "List":
        yield from _document_of(source, source.value, "", problems)
        return
    notes = CollectedProblems()
    for item in FieldReader(source.value, "", notes).field("items").items():
        yield from _document_of(source, item.value, item.path, problems)
    problems += notes.problems


def _document_of(source: YamlDocument, value: Json, root: str, problems: list[Problem]) -> Iterator[ManifestObject]:
    if not isinstance(value, dict):
        message = f"must be a Kubernetes object, not {describe_value(value)}"
        remedy = "a script's name ends in .py or .sh" if isinstance(value, str) and not root else ""
        problems.append(Problem("", message, remedy, line=source.line_of(root)))
        return
    framework = framework_of(value.get("apiVersion"), value.get("kind"))
    document = ManifestObject(manifest=value, source=source, path=root)
    if framework is not None:
        document = ManifestJob(manifest=value, source=source, path=root, framework=framework)
    problems_found = list(_object_problems(document))
    problems += [document.with_line(problem) for problem in problems_found]
    if not problems_found:
        yield document


def _object_problems(document: ManifestObject) -> Iterator[Problem]:
    """Yield the problems of fields that every object has. The metadata of jobs is validated with the jobs."""
    manifest = document.manifest
    notes = CollectedProblems()
    reader = FieldReader(manifest, "", notes)
    for name in ("apiVersion", "kind"):
        if reader.field(name).is_missing:
            reader.field(name).add_problem("is missing")
        reader.field(name).string()
    if notes.problems:
        yield from notes.problems
        return
    # Known other kinds come first: TrainJob resembles TFJob, but is no misspelling of it.
    kind_problem = unsupported_kind_problem(manifest["apiVersion"], manifest["kind"]) or misspelled_kind(
        manifest["apiVersion"], manifest["kind"]
    )
    if kind_problem is not None:
        yield kind_problem
    elif not isinstance(document, ManifestJob):
        yield from _companion_problems(reader)


def _companion_problems(reader: FieldReader) -> Iterator[Problem]:
    kind, version = reader.value["kind"], reader.value["apiVersion"]
    if kind not in COMPANIONS:
        known_kinds = [*kinds(), *COMPANIONS]
        remedy = suggestion(kind, known_kinds) or f"besides jobs, a manifest may contain {', '.join(COMPANIONS)}"
        yield Problem("kind", f"{kind} is neither a job nor a kind that may accompany one", remedy)
    elif version != "v1":
        yield Problem("apiVersion", f"must be v1 for a {kind}, not {describe_value(version)}", "write v1")
    elif not isinstance(_field(_field(reader.value, "metadata"), "name"), str):
        yield Problem("metadata.name", "is missing", f"give the {kind} a name")


def _duplicates(documents: Sequence[ManifestObject]) -> Iterator[Problem]:
    seen: dict[tuple[str, str, str], ManifestObject] = {}
    for document in documents:
        metadata = document.manifest.get("metadata")
        name, namespace = _field(metadata, "name"), _field(metadata, "namespace")
        if not isinstance(name, str):
            continue
        identity = (document.manifest["kind"], str(namespace or ""), name)
        if identity in seen:
            first = seen[identity].source.line_of(seen[identity].path)
            yield document.with_line(
                Problem("", f"{document.name} is already defined in line {first}", "rename one of them")
            )
        seen.setdefault(identity, document)


def _field(value: Json, name: str) -> Json:
    return value.get(name) if isinstance(value, dict) else None
