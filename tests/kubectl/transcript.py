"""What a kubectl says of a server, command by command, without what no two runs have in common."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tarragon.base.clock import SystemClock

PATIENCE = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`name` is the command, with a number if it was there before."""

    name: str
    arguments: Sequence[str]
    given: str = ""
    editor: str = "false"
    again: bool = False
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    step: Step
    lines: Sequence[str]


def read_script(*paths: Path) -> list[Step]:
    """One story, told in several files."""
    steps: list[Step] = []
    count: dict[str, int] = {}
    for one in [step for path in paths for step in yaml.safe_load(path.read_text())]:
        run = one["run"]
        count[run] = count.get(run, 0) + 1
        name = run if count[run] == 1 else f"{run} #{count[run]}"
        more = {field: value for field, value in one.items() if field != "run"}
        steps.append(Step(name=name, arguments=shlex.split(run), **more))
    return steps


def in_namespace(kubeconfig: Mapping[str, Any], namespace: str) -> str:
    """The text of a kubeconfig whose context has another namespace."""
    contexts = [{**one, "context": {**one["context"], "namespace": namespace}} for one in kubeconfig["contexts"]]
    return yaml.safe_dump({**kubeconfig, "contexts": contexts})


async def play(steps: Sequence[Step], kubeconfig: Path, program: Path | None = None) -> list[Answer]:
    """One after the other, by the user's kubectl or another one."""
    where = program or shutil.which("kubectl")
    assert where is not None
    environment = {
        "HOME": str(kubeconfig.parent),
        "KUBECONFIG": str(kubeconfig),
        "PATH": f"{Path(where).parent}:{os.environ['PATH']}",
        "TMPDIR": str(kubeconfig.parent),
        "GOGC": "off",  # it ends before it has made much
    }
    return [Answer(step, await _answered(step, str(where), environment)) for step in steps]


async def _answered(step: Step, program: str, environment: Mapping[str, str]) -> list[str]:
    clock = SystemClock()
    async with asyncio.timeout(PATIENCE):
        while True:
            lines = await _asked(step, program, environment)
            if lines[-1] == "exit 0" or not step.again:
                return lines
            await clock.sleep(0.2)


async def _asked(step: Step, program: str, environment: Mapping[str, str]) -> list[str]:
    folder = Path(environment["HOME"])
    for name, text in step.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    process = await asyncio.create_subprocess_exec(
        program,
        *step.arguments,
        cwd=folder,
        env={**environment, "KUBE_EDITOR": step.editor},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(step.given.encode())
    complaints = [line for line in err.decode().splitlines() if not _NOISE.match(line)]
    printed = [*out.decode().splitlines(), *(f"stderr: {line}" for line in complaints)]
    lines = [normal(line.replace(environment["TMPDIR"], "<tmp>")) for line in printed]
    return [*_listed_in_order(lines), f"exit {process.returncode}"]


def _listed_in_order(lines: Sequence[str]) -> Iterator[str]:
    """All faults of an object are told as a list, by a real server in an order of chance."""
    for is_listed, group in itertools.groupby(lines, lambda line: line.startswith("stderr: * ")):
        run = list(group)
        yield from sorted(run) if is_listed else run


_NOISE = re.compile(
    r"[IW]\d{4} .*very short watch|E\d{4} .* Failed to watch .*: context deadline exceeded"
    r"|E\d{4} .* \"Failed to watch\" err=\"context deadline exceeded\".*"
    r"|W\d{4} .* prune\.go:\d+\] Deprecated"
)
"""kubectl about itself: it ended the watch in the moment when its time was over, or will not prune so for ever."""

_ALWAYS_OTHER = (
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uid>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| [+-]\d{4}( UTC)?)?"), "<time>"),
    (re.compile(r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"), "<time>"),
    (re.compile(r"https://127\.0\.0\.1:\d+"), "<server>"),
    (re.compile(r"""(resourceVersion"?: ?"?)\d+"""), r"\1<version>"),
    (re.compile(r"(Resource Version:\s+)\d+"), r"\1<version>"),
    (re.compile(r"<tmp>/\S*?(LIVE|MERGED)-\d+"), r"\1"),
    (re.compile(r"<tmp>/kubectl-edit-\S+"), "<edited>"),
    (re.compile(r"(?<![\w.-])(\d+y)?(\d+d)?(\d+h)?(\d+m)?\d+[ydhms](?![\w.-])"), "<age>"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+"), "<token>"),
    (re.compile(r"[ \t]{2,}"), "  "),  # how wide a column is depends on what was replaced in it
)


def normal(line: str) -> str:
    """A line without what differs from run to run: ids, times, ages, versions, ports, the width of columns."""
    for pattern, replacement in _ALWAYS_OTHER:
        line = pattern.sub(replacement, line)
    return line.rstrip()
