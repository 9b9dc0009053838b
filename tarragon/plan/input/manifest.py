"""What a manifest file holds: jobs, and the objects that travel with them. Only what can be told without a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tarragon.base.errors import Problem
from tarragon.frameworks.catalog import framework_of, kinds, misspelled
from tarragon.frameworks.otherkinds import other_kind
from tarragon.frameworks.plugin import Framework, Manifest
from tarragon.kube.meta import Json
from tarragon.kube.reader import Notes, Reader, described, suggestion
from tarragon.kube.yamltext import YamlDocument, read_yaml

COMPANIONS = ("ConfigMap", "PersistentVolumeClaim", "Secret", "Service", "ServiceAccount")
"""Kinds of the API version v1 that may stand beside a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One object of a file. `framework` is None for one that is no job."""

    manifest: Manifest
    framework: Framework | None
    source: YamlDocument
    root: str = ""
    """Where in its document it stands: an item of a List is not the whole of it."""

    @property
    def name(self) -> str:
        """`TFJob dist`, for messages."""
        metadata = self.manifest.get("metadata")
        fields = metadata if isinstance(metadata, dict) else {}
        return f"{self.manifest.get('kind')} {fields.get('name') or fields.get('generateName') or '(without a name)'}"

    def placed(self, problem: Problem) -> Problem:
        """The same with the line it is about: `line 12: spec.…`."""
        line = self.source.line_of(".".join(filter(None, (self.root, problem.path))))
        return Problem(
            f"line {line}: {problem.path}" if problem.path else f"line {line}", problem.message, problem.remedy
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """What was read; with problems it is not all that was meant."""

    jobs: Sequence[Document] = ()
    others: Sequence[Document] = ()
    problems: Sequence[Problem] = ()


def read_manifest(text: str) -> Documents:
    """Never raises. The jobs themselves are for `intake` to judge."""
    parsed, problems = read_yaml(text)
    found = [document for source in parsed for document in _objects(source, problems)]
    if not found and not problems:
        problems.append(Problem("", "the manifest is empty", f"write a {' or a '.join(kinds())} into it"))
    problems += _twins(found)
    return Documents(
        jobs=tuple(document for document in found if document.framework is not None),
        others=tuple(document for document in found if document.framework is None),
        problems=tuple(problems),
    )


def only_job(documents: Documents) -> Document | Problem:
    """For commands that take one."""
    match documents.jobs:
        case [job]:
            return job
        case []:
            return Problem("", "there is no job in the manifest", f"add a {kinds()[0]}")
        case jobs:
            names = ", ".join(f"{job.name} in line {job.source.line_of(job.root)}" for job in jobs)
            return Problem("", f"there are {len(jobs)} jobs in the manifest: {names}", "leave one of them")


def _objects(source: YamlDocument, problems: list[Problem]) -> Iterator[Document]:
    if _field(source.value, "kind") != "List":
        yield from _object(source, source.value, "", problems)
        return
    notes = Notes()
    for item in Reader(source.value, "", notes).field("items").items():
        yield from _object(source, item.value, item.path, problems)
    problems += notes.problems


def _object(source: YamlDocument, value: Json, root: str, problems: list[Problem]) -> Iterator[Document]:
    line = f"line {source.line_of(root)}"
    if not isinstance(value, dict):
        problems.append(Problem(line, f"must be a Kubernetes object, not {described(value)}"))
        return
    document = Document(
        manifest=value, framework=framework_of(value.get("apiVersion"), value.get("kind")), source=source, root=root
    )
    faults = list(_faults(document))
    problems += [document.placed(fault) for fault in faults]
    if not faults:
        yield document


def _faults(document: Document) -> Iterator[Problem]:
    """Of what every object must have. The metadata of jobs is read with them."""
    manifest = document.manifest
    notes = Notes()
    reader = Reader(manifest, "", notes)
    for name in ("apiVersion", "kind"):
        if reader.field(name).is_missing:
            reader.field(name).problem("is missing")
        reader.field(name).text()
    if notes.problems:
        yield from notes.problems
        return
    # A TrainJob resembles a TFJob: who writes one has made no slip.
    slip = other_kind(manifest["apiVersion"], manifest["kind"]) or misspelled(manifest["apiVersion"], manifest["kind"])
    if slip is not None:
        yield slip
    elif document.framework is None:
        yield from _companion_faults(reader)


def _companion_faults(reader: Reader) -> Iterator[Problem]:
    kind, version = reader.value["kind"], reader.value["apiVersion"]
    if kind not in COMPANIONS:
        known = [*kinds(), *COMPANIONS]
        remedy = suggestion(kind, known) or f"beside a job there may be {', '.join(COMPANIONS)}"
        yield Problem("kind", f"{kind} is neither a job nor anything that travels with one", remedy)
    elif version != "v1":
        yield Problem("apiVersion", f"no {kind} has {described(version)}", "write v1")
    elif not isinstance(_field(_field(reader.value, "metadata"), "name"), str):
        yield Problem("metadata.name", "is missing", f"give the {kind} a name")


def _twins(found: Sequence[Document]) -> Iterator[Problem]:
    seen: dict[tuple[str, str, str], Document] = {}
    for document in found:
        metadata = document.manifest.get("metadata")
        name, namespace = _field(metadata, "name"), _field(metadata, "namespace")
        if not isinstance(name, str):
            continue
        identity = (document.manifest["kind"], str(namespace or ""), name)
        if identity in seen:
            first = seen[identity].source.line_of(seen[identity].root)
            yield document.placed(
                Problem("", f"{document.name} is there already, in line {first}", "rename one of them")
            )
        seen.setdefault(identity, document)


def _field(found: Json, name: str) -> Json:
    return found.get(name) if isinstance(found, dict) else None
