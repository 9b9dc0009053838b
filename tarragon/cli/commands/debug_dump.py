"""`tarragon debug-dump`: writes an archive for a bug report, with secrets redacted."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from tarragon.base.clock import SystemClock
from tarragon.base.errors import TarragonError
from tarragon.cli.commands.check import collect_findings
from tarragon.cli.debugdump.collection import LOG_TAIL_LINES, DebugDump, collect
from tarragon.cli.debugdump.redaction import Redactor
from tarragon.cli.jobview.jobs import ClusterJob, find_job, list_jobs
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.options.notes import print_note
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand, embedded_home
from tarragon.cli.output.finding import finding_lines
from tarragon.cli.output.style import uncolored
from tarragon.cli.targets.completion import complete_job
from tarragon.cli.targets.resolving import resolve_target
from tarragon.client.port import Selector


@click.command("debug-dump", cls=TarragonCommand)
@click.argument("name", metavar="[JOB]", required=False, shell_complete=complete_job)
@click.option(
    "--output",
    "output",
    metavar="FILE.tar.gz",
    type=click.Path(path_type=Path, dir_okay=False),
    help="the archive to write; by default tarragon-debug-TIME.tar.gz",
)
@click.pass_obj
def command(settings: GlobalOptions, *, name: str | None, output: Path | None) -> None:
    """Write an archive for a bug report, with secrets redacted, and print its name.

    It contains JOB, or all jobs in the namespace: the objects, pods, Services, events, the last lines of the logs,
    the operator's log, versions, and the output of `check`. Its README.txt lists what is missing and what was redacted.
    """
    clock = SystemClock()
    target = resolve_target(settings)
    findings = [line for finding in collect_findings(settings) for line in finding_lines(finding, uncolored)]
    dump = DebugDump(Redactor(_credentials(settings)))
    dump.texts["check.txt"] = "\n".join([*findings, ""])
    asyncio.run(_gather(target, name, dump))
    _add_local_files(settings, dump)
    files = dump.files()
    path = output or Path(f"tarragon-debug-{clock.now():%Y%m%d-%H%M%S}.tar.gz")
    _write(path, files)
    for file in files:
        print_note(f"  {file}")
    for missing in dump.not_included:
        print_note(f"not included: {dump.redactor.redact_text(missing)}")
    print_note("Known secrets are redacted. Review the archive before you send it.")
    click.echo(str(path))


async def _gather(target: ClusterTarget, name: str | None, dump: DebugDump) -> None:
    async with target.reading() as reader:
        if name is not None:
            jobs: Sequence[ClusterJob] = [await find_job(reader, name, target.namespace)]
        else:
            jobs = await list_jobs(reader, Selector(namespace=target.namespace))
        await collect(target, reader, jobs, dump)


def _credentials(settings: GlobalOptions) -> Sequence[str]:
    """Return the credentials that this command uses for the cluster."""
    if settings.is_local:
        folder = embedded_home()
        return [path.read_text().strip() for path in (folder.token, folder.account_key) if path.exists()]
    from tarragon.cli.targets.foreign import kubeconfig_target

    server = kubeconfig_target(settings, os.environ).access.rest_config
    return [value for value in (server.token, server.client_key.decode(errors="replace"), server.proxy_url) if value]


def _add_local_files(settings: GlobalOptions, dump: DebugDump) -> None:
    """Add files of this machine: the configuration file, and the log of the embedded cluster."""
    from tarragon.cli.options.config_file import config_path

    files = [(config_path(os.environ), "config.yaml")]
    if settings.is_local:
        files.append((embedded_home().folder / "daemon.log", "operator/daemon.log"))
    for path, name in files:
        if path.exists():
            lines = path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
            dump.texts[name] = "\n".join([*lines, ""])


def _write(path: Path, files: Mapping[str, str]) -> None:
    """Write the archive readable by its owner only. An existing file is never overwritten."""
    top = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
            for name, text in files.items():
                data = text.encode(errors="replace")
                entry = tarfile.TarInfo(f"{top}/{name}")
                entry.size, entry.mode = len(data), 0o600
                archive.addfile(entry, io.BytesIO(data))
    except FileExistsError as error:
        raise TarragonError(f"{path} already exists", remedy="choose another file with --output") from error
    except OSError as error:
        raise TarragonError(f"can't write {path}", why=error.strerror or str(error)) from error
