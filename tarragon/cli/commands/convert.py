"""`tarragon convert`: the jobs of a FILE as another generation of the API has them, and what that loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from tarragon.base.errors import Problem
from tarragon.base.escaping import escaped_line
from tarragon.cli.manifest.file_command import one_file
from tarragon.cli.manifest.loading import parse, refused
from tarragon.cli.options.arguments import complete_generation, generation
from tarragon.cli.options.formats import as_list, json_text, yaml_text
from tarragon.cli.options.settings import Command
from tarragon.cli.targets.completion import complete_file
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.kube.meta import Json, JsonObject
from tarragon.plan.input.conversion import Conversion, converted
from tarragon.plan.input.manifest import Document, Documents


@click.command("convert", cls=Command)
@click.argument("file", metavar="FILE", required=False, shell_complete=complete_file)
@click.option("-f", "--file", "option", metavar="FILE", shell_complete=complete_file, help="the same, as of kubectl")
@click.option(
    "--to",
    "target",
    metavar="GROUP/VERSION",
    required=True,
    type=generation,
    shell_complete=complete_generation,
    help="the generation to write: kubeflow.org/v1, ...",
)
@click.option("-o", "--output", "form", type=click.Choice(("yaml", "json")), default="yaml", help="yaml by default")
def command(*, file: str | None, option: str | None, target: str, form: str) -> None:
    """Write the jobs of FILE as GROUP/VERSION has them, and tell on stderr what that loses. FILE may be - or a URL.

    What the new manifest has no place for stays in an annotation, and comes back when it is converted back.
    Other objects of FILE stay as they are. Comments are lost. No cluster is asked.

    \b
    GROUP/VERSION: mlkube.io/v1beta1, kubeflow.org/v1alpha1, kubeflow.org/v1alpha2,
                   kubeflow.org/v1beta1, kubeflow.org/v1beta2, kubeflow.org/v1-flat
                   (v1 with policies in spec), kubeflow.org/v1-dragon, kubeflow.org/v1;
                   all but v1beta1, which two groups have, may go without the group
    Exit codes:    0 done, 2 problems
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    name = one_file(file, option)
    documents = parse(name)
    made = [(job, converted(job.framework or FRAMEWORKS[0], job.manifest, target)) for job in documents.jobs]
    problems = [job.placed(problem) for job, conversion in made for problem in conversion.problems]
    if not made:
        problems = [Problem("", "there is no job in the manifest", "add one")]
    if problems:
        raise refused(name, problems)
    for job, conversion in made:
        _tell(job, conversion, target)
    _print(_objects(documents, {id(job): conversion.manifest for job, conversion in made}), form)


def _tell(job: Document, conversion: Conversion, target: str) -> None:
    click.echo(escaped_line(f"{job.name}: {conversion.source} to {target}"), err=True)
    for word, told in (("warning", conversion.warnings), ("lost", conversion.losses)):
        for problem in told:
            click.echo(escaped_line(f"{word}: {job.placed(problem)}"), err=True)


def _objects(documents: Documents, made: Mapping[int, JsonObject]) -> Sequence[JsonObject]:
    """As they stand in the file: a List stays one."""
    found = sorted((*documents.jobs, *documents.others), key=lambda document: document.source.line_of(document.root))
    whole: dict[int, dict[str, Json]] = {}
    for document in found:
        body = dict(made.get(id(document), document.manifest))
        if document.root:
            around: Json = whole.get(id(document.source), document.source.value)
            body = {**around, "items": [body if item is document.manifest else item for item in around["items"]]}
        whole[id(document.source)] = body
    return list(whole.values())


def _print(objects: Sequence[JsonObject], form: str) -> None:
    if form == "yaml":
        click.echo("\n---\n".join(map(yaml_text, objects)))
    else:
        click.echo(json_text(objects[0] if len(objects) == 1 else as_list(objects)))
