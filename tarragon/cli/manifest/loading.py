"""From FILE to what is created: read, changed as the command line says, and checked; every fault is told at once."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import yaml

from tarragon.base.errors import Problem, TarragonError
from tarragon.base.escaping import escaped_line
from tarragon.cli.jobview.target import Target
from tarragon.cli.manifest.files import Unreadable, named, read
from tarragon.cli.manifest.kubectl_export import companion_anew, job_anew
from tarragon.cli.manifest.local_images import (
    ENVIRONMENTS,
    VOLUMES,
    WORKDIR,
    commands_missing,
    image_map,
    tensorflow_missing,
)
from tarragon.cli.manifest.local_paths import only_here, this_machine
from tarragon.cli.manifest.overrides import annotated, assigned, without_gpus
from tarragon.cli.options.settings import NAMESPACE_FORM, Settings, home, is_namespace
from tarragon.cli.output.words import count, listed
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.recognition import LAST_APPLIED
from tarragon.job.annotations import IDEMPOTENCY_KEY
from tarragon.kube.core import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS, SERVICE_ACCOUNTS, SERVICES
from tarragon.kube.meta import CustomObject, JsonObject, Resource
from tarragon.plan.input.decode_and_validate import Intake, intake
from tarragon.plan.input.manifest import Document, Documents, only_job, read_manifest

_COMPANIONS = {
    resource.kind: resource.reading(CustomObject)
    for resource in (CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS, SERVICES, SERVICE_ACCOUNTS)
}


class Refused(TarragonError):
    """A manifest with problems."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What the command line says beside FILE."""

    values: Sequence[tuple[str, str]] = ()
    texts: Sequence[tuple[str, str]] = ()
    """Values that are texts, whatever they look like."""
    jsons: Sequence[tuple[str, str]] = ()
    idempotency_key: str = ""
    is_cpu_only: bool = False
    environments: Mapping[str, Path] = field(default_factory=dict)
    volumes: Mapping[str, Path] = field(default_factory=dict)
    is_replacing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Ready to be created, all in one namespace. `notes` are for the user, on stderr."""

    framework: Framework
    job: JsonObject
    others: Sequence[tuple[Resource[CustomObject], JsonObject]]
    notes: Sequence[str]
    is_replacing: bool = False

    @property
    def namespace(self) -> str:
        return str(self.job["metadata"]["namespace"])


def load(where: Target, settings: Settings, name: str, changes: Changes) -> Loaded:
    """Raises Refused with all problems, Unreadable, or another TarragonError about this machine."""
    documents = parse(name)
    document = only_job(documents)
    if isinstance(document, Problem):
        raise refused(name, [document])
    return _loaded(where, settings, _File(name, documents), document, changes)


def load_all(where: Target, settings: Settings, name: str, changes: Changes) -> Sequence[Loaded]:
    """The same for a FILE that may hold several jobs; what stands beside them goes with the first."""
    documents = parse(name)
    file = _File(name, documents)
    made = [_loaded(where, settings, file, document, changes) for document in documents.jobs]
    if not made:
        raise refused(name, [Problem("", "there is no job in the manifest", "add one")])
    if len(made) > 1 and changes.idempotency_key:
        raise Refused("--idempotency-key is for a FILE with one job", why=f"there are {len(made)} in {named(name)}")
    return [made[0], *(replace(each, others=()) for each in made[1:])]


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    documents: Documents


def _loaded(where: Target, settings: Settings, file: _File, document: Document, changes: Changes) -> Loaded:
    name, documents = file.name, file.documents
    framework = document.framework or FRAMEWORKS[0]
    job, notes = changed(document.manifest, changes)
    taken = intake(framework, job)
    problems = [*taken.all_problems, *_namespaces(documents, settings)]
    if problems:
        raise refused(name, [document.placed(problem) for problem in problems])
    job = job_anew(framework, job, taken.dialect)
    fitted = (
        _for_this_machine(framework, job, changes) if where.is_local else _for_a_cluster(where, document, job, changes)
    )
    if fitted.problems:
        raise refused(name, [document.placed(problem) for problem in fitted.problems])
    namespace = str(_metadata(job).get("namespace") or next(iter(_stated(documents)), where.namespace))
    return Loaded(
        framework=framework,
        job=_keyed(_in_namespace(_as_applied(fitted.job, job, namespace), namespace), changes.idempotency_key),
        others=[_companion(other, namespace) for other in documents.others],
        notes=[*notes, *_warnings(document, taken), *fitted.notes],
        is_replacing=changes.is_replacing,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fitted:
    """A job as the target needs it, and what must be said about it there."""

    job: JsonObject
    problems: Sequence[Problem] = ()
    notes: Sequence[str] = ()


def _for_this_machine(framework: Framework, job: JsonObject, changes: Changes) -> _Fitted:
    images, faults = image_map(home(), changes.environments)
    if faults:
        raise TarragonError(f"{home().images} can't be used", why="\n".join(map(str, faults)))
    return _Fitted(
        job=annotated(job, for_the_kubelet(Path.cwd(), changes)),
        problems=list(commands_missing(job, images)),
        notes=list(tensorflow_missing(job, framework, images)),
    )


def _for_a_cluster(where: Target, document: Document, job: JsonObject, changes: Changes) -> _Fitted:
    """Nothing of this machine goes there; who seems to count on it is warned."""
    notes = [f"warning: {document.placed(problem)}" for problem in only_here(job, this_machine())]
    notes += [
        f"warning: {flag} is about this machine: it changes nothing on {where.name}"
        for flag, given in (("--env", changes.environments), ("--volume", changes.volumes))
        if given
    ]
    if changes.is_cpu_only:
        notes.append(f"warning: --cpu-only is meant for machines without GPUs: it holds on {where.name}, too")
    return _Fitted(job=job, notes=notes)


def for_the_kubelet(workdir: Path, changes: Changes) -> dict[str, str]:
    """Annotations of the pods: where they were called from, and what was said of this machine's folders."""
    told = {WORKDIR: str(workdir)}
    for name, folders in ((VOLUMES, changes.volumes), (ENVIRONMENTS, changes.environments)):
        if folders:
            told[name] = json.dumps({thing: str(folder) for thing, folder in folders.items()})
    return told


def parse(name: str) -> Documents:
    """What the file holds. Raises Refused when that can't be told."""
    try:
        text = read(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(
            f"{named(name)} is no text", why=f"byte {error.start} is not UTF-8", remedy="save the manifest as UTF-8"
        ) from error
    documents = read_manifest(text)
    if documents.problems:
        raise refused(name, documents.problems)
    return documents


def refused(name: str, problems: Sequence[Problem]) -> Refused:
    """Those that name a line come first, in the order of the lines."""
    told = sorted((escaped_line(str(problem)) for problem in problems), key=_line)
    return Refused(f"{named(name)}: {count(len(problems), 'problem')}", why="\n".join(told))


def _line(told: str) -> float:
    found = re.match(r"line (\d+)\b", told)
    return int(found[1]) if found else math.inf


def changed(job: JsonObject, changes: Changes) -> tuple[JsonObject, list[str]]:
    """The job with --set and --cpu-only, and what to say about that. Raises Refused for a path that leads nowhere."""
    for flag, pairs, meaning in (
        ("--set-json", changes.jsons, json.loads),
        ("--set", changes.values, yaml.safe_load),
        ("--set-string", changes.texts, str),
    ):
        for path, text in pairs:
            try:
                job = assigned(job, path, meaning(text))
            except (ValueError, RecursionError, yaml.YAMLError) as error:
                raise Refused(f"{flag} {path}={text} can't be done", why=str(error)) from error
    if not changes.is_cpu_only:
        return job, []
    job, taken = without_gpus(job)
    if not taken:
        return job, ["--cpu-only changes nothing: the job asks for no GPU"]
    return job, [f"--cpu-only: without {count(len(taken), 'request')} for GPUs: {listed(taken, most=3)}"]


def _warnings(document: Document, taken: Intake) -> Iterator[str]:
    for warning in taken.warnings:
        yield f"warning: {document.placed(warning)}"


def _namespaces(documents: Documents, settings: Settings) -> Iterator[Problem]:
    """A namespace given twice must be the same one, and all of a file go into one."""
    wanted = _stated(documents)
    if settings.given_namespace:
        wanted.add(settings.given_namespace)
    for name in sorted(wanted):
        if not is_namespace(name):
            yield Problem("metadata.namespace", f"{name!r} is no name of a namespace", f"write {NAMESPACE_FORM}")
    if len(wanted) > 1:
        yield Problem("metadata.namespace", f"there are several: {', '.join(sorted(wanted))}", "write one, or only -n")


def _stated(documents: Documents) -> set[str]:
    metadata = [_metadata(document.manifest) for document in (*documents.jobs, *documents.others)]
    return {str(each["namespace"]) for each in metadata if each.get("namespace")}


def _metadata(body: JsonObject) -> JsonObject:
    found = body.get("metadata")
    return found if isinstance(found, Mapping) else {}


def _as_applied(job: JsonObject, written: JsonObject, namespace: str) -> JsonObject:
    """With what was submitted beside it, as `kubectl apply` keeps it: so that applying the same file later knows what
    was ours to take away, and warns of nothing. What this machine added is not in it, and stays.
    """
    metadata = _metadata(job)
    if not metadata.get("name"):
        return job
    told = dict(metadata.get("annotations") or {})
    return {**job, "metadata": {**metadata, "annotations": {**told, LAST_APPLIED: applied(written, namespace)}}}


def applied(written: JsonObject, namespace: str) -> str:
    """In kubectl's form: one line, sorted, with a newline behind it."""
    bare = {name: value for name, value in written.items() if name != "status"}
    annotations = {
        name: text for name, text in (_metadata(bare).get("annotations") or {}).items() if name != LAST_APPLIED
    }
    bare["metadata"] = {**_metadata(bare), "annotations": annotations, "namespace": namespace}
    return json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"


def _keyed(job: JsonObject, key: str) -> JsonObject:
    """A name that a server would make up is made from the key: the second try meets the job of the first."""
    if not key:
        return job
    metadata = dict(_metadata(job))
    if not metadata.get("name"):
        metadata["name"] = f"{metadata.pop('generateName', 'job-')}{sha256(key.encode()).hexdigest()[:10]}"
    metadata["annotations"] = {**(metadata.get("annotations") or {}), IDEMPOTENCY_KEY: key}
    return {**job, "metadata": metadata}


def _companion(document: Document, namespace: str) -> tuple[Resource[CustomObject], JsonObject]:
    body = companion_anew(document.manifest)
    return _COMPANIONS[str(body["kind"])], _in_namespace(_as_applied(body, body, namespace), namespace)


def _in_namespace(body: JsonObject, namespace: str) -> JsonObject:
    return {**body, "metadata": {**_metadata(body), "namespace": namespace}}
