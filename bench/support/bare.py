"""The bare client: it only makes the recorded calls of jobs with aiohttp, as the baseline for the operator.

    python -m bench.support.bare

Its standard input is a line of JSON with the calls and the address of the server, then a line with the name of each job
as soon as the job exists.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from typing import Any

import aiohttp

from bench.support.recorded_writes import RecordedJob, RecordedWrite

JOBS_AT_ONCE = 16
CONNECTIONS = 32


async def make(session: aiohttp.ClientSession, url: str, call: RecordedWrite) -> None:
    is_patch = call.method == "PATCH"
    headers = {"Content-Type": "application/merge-patch+json" if is_patch else "application/json"}
    async with session.request(call.method, url + call.path, data=call.body.encode(), headers=headers) as answer:
        text = await answer.text()
        if answer.status >= 300 and answer.status != 409:
            raise RuntimeError(f"{call.method} {call.path}: {text}")


async def run(plan: dict[str, Any], names: asyncio.Queue[str | None]) -> None:
    calls = [RecordedWrite(tuple(kind), method, path, body) for kind, method, path, body in plan["calls"]]
    recorded = RecordedJob(plan["job"], plan["namespace"], calls)
    totals = {(verb, resource): count for verb, resource, count in plan["totals"]}
    folder = plan["folder"]
    tls = ssl.create_default_context(cafile=f"{folder}/ca.crt")
    tls.load_cert_chain(f"{folder}/admin.crt", f"{folder}/admin.key")
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=tls)

    async with aiohttp.ClientSession(connector=connector, headers={"User-Agent": "bare"}) as session:

        async def worker() -> None:
            while (name := await names.get()) is not None:
                number = int(name.rpartition("-")[2])
                for batch in recorded.steps(number, plan["jobs"], totals):
                    moved = [call.of(name, plan["into"], recorded) for call in batch]
                    await asyncio.gather(*(make(session, plan["url"], call) for call in moved))
            names.put_nowait(None)

        await asyncio.gather(*(worker() for _ in range(JOBS_AT_ONCE)))


async def main() -> None:
    plan = json.loads(sys.stdin.readline())
    names: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read_names() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(names.put_nowait, line.strip())
        loop.call_soon_threadsafe(names.put_nowait, None)

    await asyncio.gather(asyncio.to_thread(read_names), run(plan, names))


if __name__ == "__main__":
    asyncio.run(main())
