"""Connects the client of an exec or attach session with its process, and reports how the process ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tarragon.localcluster.api import errors
from tarragon.localcluster.apiserver.http.channels import STDERR, STDOUT
from tarragon.localcluster.apiserver.http.exec_clients import RequestedStreams, SessionClient
from tarragon.localcluster.kubelet.base.descriptors import PipeReader
from tarragon.localcluster.kubelet.streaming.exec_client import ContainerProcess

SUCCESS: Mapping[str, Any] = {"metadata": {}, "status": "Success"}


def status_of(code: int) -> Mapping[str, Any]:
    """Return the Status in which kubectl and client libraries look for the exit code."""
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


async def converse(client: SessionClient, process: ContainerProcess, wanted: RequestedStreams) -> int | None:
    """Return the exit code after the process has ended and all output is sent; None if the client left before."""
    outputs = [asyncio.create_task(_copy_output(client, STDOUT, process.stdout, is_wanted=wanted.stdout))]
    if process.stderr is not None:
        outputs.append(asyncio.create_task(_copy_output(client, STDERR, process.stderr, is_wanted=wanted.stderr)))
    inputs = [asyncio.create_task(_copy_input(client, process, wanted)), asyncio.create_task(_resize(client, process))]
    left = asyncio.create_task(client.disconnected())
    finished = asyncio.create_task(_finished(outputs, process))
    try:
        await asyncio.wait((finished, left), return_when=asyncio.FIRST_COMPLETED)
        return finished.result() if finished.done() else None
    finally:
        tasks = [finished, *outputs, *inputs, left]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _finished(outputs: list[asyncio.Task[None]], process: ContainerProcess) -> int:
    await asyncio.gather(*outputs)
    return await process.exit_code()


async def _copy_output(client: SessionClient, stream: int, output: PipeReader, *, is_wanted: bool) -> None:
    while data := await output.read():
        if is_wanted:
            await client.write(stream, data)


async def _copy_input(client: SessionClient, process: ContainerProcess, wanted: RequestedStreams) -> None:
    """Copy the client's input to the process. Input that the process no longer reads is still taken and dropped."""
    if not wanted.stdin or process.stdin is None:
        return
    is_read = True
    while data := await client.stdin():
        is_read = is_read and await process.stdin.write(data)
    await process.close_stdin()


async def _resize(client: SessionClient, process: ContainerProcess) -> None:
    while (size := await client.size()) is not None:
        if process.is_terminal and process.stdin is not None and size.width and size.height:
            process.stdin.resize(size.width, size.height)
