"""`tarragon convert`: converts the jobs of a manifest to another generation of the API, and reports what is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from tarragon.base.errors import Problem
from tarragon.base.escaping import escaped_line
from tarragon.cli.manifest.file_command import file_argument
from tarragon.cli.manifest.loading import invalid_manifest, read_documents
from tarragon.cli.options.arguments import api_generation, complete_generation
from tarragon.cli.options.formats import json_text, list_object, yaml_text
from tarragon.cli.options.settings import TarragonCommand
from tarragon.cli.targets.completion import complete_file
from tarragon.frameworks.plugin import Framework
from tarragon.kube.meta import Json, JsonObject
from tarragon.plan.input.conversion import Conversion, convert_manifest
from tarragon.plan.input.manifest import ManifestFile, ManifestObject


@click.command("convert", cls=TarragonCommand)
@click.argument("file", metavar="FILE", required=False, shell_complete=complete_file)
@click.option("-f", "--file", "option", metavar="FILE", shell_complete=complete_file, help="same as FILE")
@click.option(
    "--to",
    "target",
    metavar="GROUP/VERSION",
    required=True,
    type=api_generation,
    shell_complete=complete_generation,
    help="the API generation to convert to: kubeflow.org/v1",
)
@click.option(
    "-o", "--output", "form", type=click.Choice(("yaml", "json")), default="yaml", help="output format; yaml by default"
)
def command(*, file: str | None, option: str | None, target: str, form: str) -> None:
    """Convert the jobs of FILE to GROUP/VERSION, and list on stderr what is lost. FILE may be - or a URL.

    Fields that GROUP/VERSION does not have are kept in an annotation and restored when you convert back.
    Other objects in FILE are printed unchanged. Comments are lost. No cluster is contacted.

    \b
    GROUP/VERSION: mlkube.io/v1beta1, kubeflow.org/v1alpha1,
                   kubeflow.org/v1alpha2, kubeflow.org/v1beta1,
                   kubeflow.org/v1beta2, kubeflow.org/v1-flat (v1 with
                   policies in spec), kubeflow.org/v1-dragon, kubeflow.org/v1;
                   of MPIJobs kubeflow.org/v1alpha1, kubeflow.org/v1alpha2,
                   kubeflow.org/v1, kubeflow.org/v2beta1;
                   the group may be omitted, except for v1beta1, which two
                   groups have
    Exit codes:    0 converted, 2 invalid FILE
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    name = file_argument(file, option)
    documents = read_documents(name)
    conversions = [
        (job, convert_manifest(job.framework, job.manifest, _generation(job.framework, target)))
        for job in documents.jobs
    ]
    problems = [job.with_line(problem) for job, conversion in conversions for problem in conversion.problems]
    if not conversions:
        problems = [Problem("", "the manifest has no job", "add one")]
    if problems:
        raise invalid_manifest(name, problems)
    for job, conversion in conversions:
        _report(job, conversion, _generation(job.framework, target))
    _print(_objects(documents, {id(job): conversion.manifest for job, conversion in conversions}), form)


def _generation(framework: Framework, target: str) -> str:
    """The generation of that kind of job. Raises BadParameter for a version that two of its groups have."""
    generations = framework.conversion.generations if framework.conversion is not None else ()
    found = [name for name in generations if target in {name, name.rpartition("/")[2]}]
    if len(found) > 1:
        raise click.BadParameter(f"{target} is ambiguous; use {' or '.join(found)}", param_hint="'--to'")
    return found[0] if found else target


def _report(job: ManifestObject, conversion: Conversion, target: str) -> None:
    click.echo(escaped_line(f"{job.name}: {conversion.source} to {target}"), err=True)
    for word, problems in (("warning", conversion.warnings), ("lost", conversion.losses)):
        for problem in problems:
            click.echo(escaped_line(f"{word}: {job.with_line(problem)}"), err=True)


def _objects(documents: ManifestFile, converted_jobs: Mapping[int, JsonObject]) -> Sequence[JsonObject]:
    """Return all objects in the order of the file, with the converted jobs; a List remains a List."""
    in_order = sorted(
        (*documents.jobs, *documents.companions), key=lambda document: document.source.line_of(document.path)
    )
    objects: dict[int, dict[str, Json]] = {}
    for document in in_order:
        body = dict(converted_jobs.get(id(document), document.manifest))
        if document.path:
            parent: Json = objects.get(id(document.source), document.source.value)
            body = {**parent, "items": [body if item is document.manifest else item for item in parent["items"]]}
        objects[id(document.source)] = body
    return list(objects.values())


def _print(objects: Sequence[JsonObject], form: str) -> None:
    if form == "yaml":
        click.echo("\n---\n".join(map(yaml_text, objects)))
    else:
        click.echo(json_text(objects[0] if len(objects) == 1 else list_object(objects)))
