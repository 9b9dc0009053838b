"""Brings together who has asked for exec or attach and the process that it is about, and says how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tarragon.localcluster.api import errors
from tarragon.localcluster.apiserver.http.channels import STDERR, STDOUT
from tarragon.localcluster.apiserver.http.commands import Client, Wanted
from tarragon.localcluster.kubelet.base.descriptors import Output
from tarragon.localcluster.kubelet.streaming.exec_client import Inside

SUCCESS: Mapping[str, Any] = {"metadata": {}, "status": "Success"}


def status_of(code: int) -> Mapping[str, Any]:
    """As kubectl and the client libraries find the exit code in it."""
    if code == 0:
        return SUCCESS
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def failed(words: str) -> Mapping[str, Any]:
    return errors.internal(words).status


async def converse(client: Client, process: Inside, wanted: Wanted) -> int | None:
    """The exit code, when the process has ended and everything is said; None if the client has gone before."""
    saying = [asyncio.create_task(_say(client, STDOUT, process.stdout, is_wanted=wanted.stdout))]
    if process.stderr is not None:
        saying.append(asyncio.create_task(_say(client, STDERR, process.stderr, is_wanted=wanted.stderr)))
    beside = [asyncio.create_task(_tell(client, process, wanted)), asyncio.create_task(_resize(client, process))]
    left = asyncio.create_task(client.left())
    everything = asyncio.create_task(_everything(saying, process))
    try:
        await asyncio.wait((everything, left), return_when=asyncio.FIRST_COMPLETED)
        return everything.result() if everything.done() else None
    finally:
        tasks = [everything, *saying, *beside, left]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _everything(saying: list[asyncio.Task[None]], process: Inside) -> int:
    await asyncio.gather(*saying)
    return await process.code()


async def _say(client: Client, stream: int, output: Output, *, is_wanted: bool) -> None:
    while data := await output.read():
        if is_wanted:
            await client.say(stream, data)


async def _tell(client: Client, process: Inside, wanted: Wanted) -> None:
    """What nobody reads any more is taken from the client all the same: it might wait for that."""
    if not wanted.stdin or process.stdin is None:
        return
    is_read = True
    while data := await client.stdin():
        is_read = is_read and await process.stdin.write(data)
    await process.end_stdin()


async def _resize(client: Client, process: Inside) -> None:
    while (size := await client.size()) is not None:
        if process.is_terminal and process.stdin is not None and size.width and size.height:
            process.stdin.resize(size.width, size.height)
