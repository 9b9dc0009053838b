"""`tarragon validate`: reports all problems in manifests, without a cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from tarragon.base.errors import Problem, TarragonError
from tarragon.base.escaping import escaped_line
from tarragon.cli.jobview.schema import validation_document
from tarragon.cli.manifest.files import display_name
from tarragon.cli.manifest.loading import InvalidManifest, invalid_manifest, read_documents
from tarragon.cli.manifest.local_images import (
    commands_of_operator,
    image_map,
    missing_commands,
    volumes_of_operator,
)
from tarragon.cli.manifest.local_paths import local_only_files, this_machine
from tarragon.cli.manifest.missing_scripts import missing_scripts
from tarragon.cli.manifest.volume_mounts import mount_problems, unused_volumes
from tarragon.cli.options.error_output import error_text
from tarragon.cli.options.formats import FORMATTERS
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand, embedded_home
from tarragon.cli.output.prose import print_message
from tarragon.cli.output.words import count, joined
from tarragon.cli.targets.completion import complete_file
from tarragon.kube.meta import Json
from tarragon.plan.input.decode_and_validate import DecodedJob, decode_and_validate
from tarragon.plan.input.manifest import ManifestFile, ManifestJob
from tarragon.plan.status.provenance import spec_digest

MANIFEST_EXTENSIONS = frozenset({".yaml", ".yml", ".json"})
"""The extensions of the files in a folder that are read, as kubectl does."""


@dataclass(slots=True)
class FileResult:
    """The result for one file. `error` is set if the file could not be read or has problems."""

    name: str
    jobs: list[tuple[str, str, str]] = field(default_factory=list)
    """Name, generation, digest."""
    warnings: list[str] = field(default_factory=list)
    error: TarragonError | None = None

    @property
    def fields(self) -> Mapping[str, Json]:
        problems = (self.error.cause or self.error.summary).splitlines() if self.error is not None else []
        jobs = [{"name": name, "generation": generation, "digest": digest_} for name, generation, digest_ in self.jobs]
        return {"file": self.name, "jobs": jobs, "problems": problems, "warnings": self.warnings}


@click.command("validate", cls=TarragonCommand)
@click.argument("files", metavar="FILE...", nargs=-1, shell_complete=complete_file)
@click.option(
    "-f",
    "--file",
    "options",
    multiple=True,
    metavar="FILE",
    shell_complete=complete_file,
    help="same as FILE; can be repeated",
)
@click.option("-R", "--recursive", "is_deep", is_flag=True, help="also read the subfolders of a folder")
@click.option("--hash", "digests", is_flag=True, help="print the digest of each job's spec, as recorded in its status")
@click.option("-o", "--output", "form", type=click.Choice(["json", "yaml"]), help="output format")
@click.pass_obj
def command(
    settings: GlobalOptions,
    *,
    files: Sequence[str],
    options: Sequence[str],
    is_deep: bool,
    digests: bool,
    form: str | None,
) -> int:
    """Report all problems in FILE, each with its line and a remedy, and the API generation of each job.

    FILE may be a folder, - or a URL. Rules and defaults are those of the generation; `convert` changes it.
    With --context it also warns of images and folders that exist only on this machine. No cluster is contacted.

    \b
    Exit codes: 0 valid, 2 problems found
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    if not files and not options:
        raise click.UsageError("FILE is required")
    judged = [_judged(settings, *found) for name in (*files, *options) for found in _files(name, is_deep=is_deep)]
    if form is not None:
        click.echo(FORMATTERS[form](validation_document(each.fields for each in judged)))
    else:
        for each in judged:
            _print(each, digests=digests)
    return InvalidManifest.exit_code if any(each.error is not None for each in judged) else 0


def _files(name: str, *, is_deep: bool) -> Iterator[tuple[str, bool]]:
    """Yield each file, and whether it was found in a folder, where files without jobs are allowed."""
    if name == "-" or "://" in name or not Path(name).is_dir():
        yield name, False
        return
    found = sorted(Path(name).rglob("*") if is_deep else Path(name).iterdir())
    chosen = [path for path in found if path.suffix in MANIFEST_EXTENSIONS and path.is_file()]
    if not chosen:
        raise InvalidManifest(f"no manifest in {name}", why=f"no file ends in {joined(sorted(MANIFEST_EXTENSIONS))}")
    yield from ((str(path), True) for path in chosen)


def _judged(settings: GlobalOptions, name: str, is_from_folder: bool) -> FileResult:
    judged = FileResult(display_name(name))
    try:
        documents = read_documents(name)
    except TarragonError as error:
        judged.error = error
        return judged
    is_missing_job = not documents.jobs and not is_from_folder
    problems = [Problem("", "the manifest has no job", "add one")] if is_missing_job else []
    problems += _problems(settings, documents, judged)
    if problems:
        judged.error = invalid_manifest(name, problems)
    return judged


def _problems(settings: GlobalOptions, documents: ManifestFile, judged: FileResult) -> Sequence[Problem]:
    """Return the problems of all jobs, and add their names and warnings to `judged`."""
    problems: list[Problem] = []
    for job in documents.jobs:
        decoded = decode_and_validate(job.framework, job.manifest)
        generation = decoded.dialect.name if decoded.dialect is not None else "unknown generation"
        judged.jobs.append((job.name, generation, spec_digest(job.manifest.get("spec"))))
        problems += [job.with_line(problem) for problem in decoded.all_problems]
        warnings = [*decoded.warnings]
        if decoded.job is not None:
            rejected = _rejected(job, volumes_of_operator(decoded))
            if settings.is_local:
                problems += [job.with_line(problem) for problem in rejected]
            else:
                warnings += rejected  # the cluster may be of another version, or have a webhook that adds volumes
            warnings += unused_volumes(job.manifest)
        warnings += _here(job, decoded) if settings.is_local else local_only_files(job.manifest, this_machine())
        judged.warnings += [str(job.with_line(warning)) for warning in warnings]
    return problems


def _rejected(job: ManifestJob, provided: Collection[str]) -> Sequence[Problem]:
    """Return why an API server would reject the pods of the job. Where we have more to say of a field, it says less."""
    from tarragon.cli.manifest.pod_rules import rejected_fields

    ours = list(mount_problems(job.manifest, provided))
    paths = {problem.path for problem in ours}
    return [*ours, *(problem for problem in rejected_fields(job.manifest, provided) if problem.path not in paths)]


def _here(job: ManifestJob, decoded: DecodedJob) -> Sequence[Problem]:
    """Return what keeps the job from running on this machine, from this folder. A cluster may well run it."""
    if decoded.job is None:
        return ()
    images, faults = image_map(embedded_home(), {})
    provided = [*commands_of_operator(decoded)]
    missing = [
        *missing_commands(job.manifest, decoded, images),
        *missing_scripts(job.manifest, images, Path.cwd(), provided),
    ]
    return [*faults, *(replace(each, message=f"on this machine: {each.message}") for each in missing)]


def _print(judged: FileResult, *, digests: bool) -> None:
    for warning in judged.warnings:
        click.echo(escaped_line(f"warning: {warning}"), err=True)
    if judged.error is not None:
        print_message(error_text(judged.error))
    elif digests:
        for name, _, found in judged.jobs:
            click.echo(escaped_line(f"{found}  {name}"))
    elif judged.jobs:
        names = [f"{name} ({generation})" for name, generation, _ in judged.jobs]
        click.echo(escaped_line(f"{judged.name}: {joined(names)} {'is' if len(names) == 1 else 'are'} valid"))
    else:
        click.echo(escaped_line(f"{judged.name}: {count(0, 'job')}"), err=True)
