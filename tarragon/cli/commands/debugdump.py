"""`tarragon debug-dump`: an archive for whoever is to help, without secrets."""

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
from tarragon.cli.commands.check import found
from tarragon.cli.debugdump.gathering import TAIL, Dump, gather
from tarragon.cli.debugdump.redaction import Redactor
from tarragon.cli.jobview.jobs import Known, all_jobs, find
from tarragon.cli.jobview.target import Target
from tarragon.cli.options.settings import Command, Settings, home
from tarragon.cli.output.finding import told
from tarragon.cli.output.style import plain
from tarragon.cli.targets.completion import complete_job
from tarragon.cli.targets.resolving import target
from tarragon.client.port import Selection


@click.command("debug-dump", cls=Command)
@click.argument("name", metavar="[JOB]", required=False, shell_complete=complete_job)
@click.option(
    "--output", "output", metavar="FILE.tar.gz", type=click.Path(path_type=Path, dir_okay=False), help="where"
)
@click.pass_obj
def command(settings: Settings, *, name: str | None, output: Path | None) -> None:
    """Gather what helps to find out what is the matter, without secrets, in one archive; its name goes to stdout.

    Of JOB, or of all jobs of the namespace: their objects, pods, Services, events, the ends of the logs, the
    operator's log, versions, and what `check` finds. A page inside says what was left out and what was taken out.
    """
    clock = SystemClock()
    where = target(settings)
    findings = [line for finding in found(settings) for line in told(finding, plain)]
    dump = Dump(Redactor(_ours(settings)))
    dump.texts["check.txt"] = "\n".join([*findings, ""])
    asyncio.run(_gather(where, name, dump))
    _machine(settings, dump)
    files = dump.files()
    path = output or Path(f"tarragon-debug-{clock.now():%Y%m%d-%H%M%S}.tar.gz")
    _write(path, files)
    for file in files:
        click.echo(f"  {file}", err=True)
    for missing in dump.missing:
        click.echo(f"left out: {dump.redactor.text(missing)}", err=True)
    click.echo("Secrets are taken out as far as they can be told; look through it before you send it.", err=True)
    click.echo(str(path))


async def _gather(where: Target, name: str | None, dump: Dump) -> None:
    async with where.looking() as looker:
        if name is not None:
            jobs: Sequence[Known] = [await find(looker, name, where.namespace)]
        else:
            jobs = await all_jobs(looker, Selection(namespace=where.namespace))
        await gather(where, looker, jobs, dump)


def _ours(settings: Settings) -> Sequence[str]:
    """Our own credentials for the cluster."""
    if settings.is_local:
        place = home()
        return [path.read_text().strip() for path in (place.token, place.account_key) if path.exists()]
    from tarragon.cli.targets.foreign import foreign

    server = foreign(settings, os.environ).access.server
    return [value for value in (server.token, server.client_key.decode(errors="replace"), server.proxy_url) if value]


def _machine(settings: Settings, dump: Dump) -> None:
    """What lies on this machine: our config file, and the log of the embedded cluster."""
    from tarragon.cli.options.config_file import location

    files = [(location(os.environ), "config.yaml")]
    if settings.is_local:
        files.append((home().folder / "daemon.log", "operator/daemon.log"))
    for path, name in files:
        if path.exists():
            lines = path.read_text(errors="replace").splitlines()[-TAIL:]
            dump.texts[name] = "\n".join([*lines, ""])


def _write(path: Path, files: Mapping[str, str]) -> None:
    """Readable by its owner only, and never over another file."""
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
        raise TarragonError(f"{path} is there already", remedy="name another one with --output") from error
    except OSError as error:
        raise TarragonError(f"can't write {path}", why=error.strerror or str(error)) from error
