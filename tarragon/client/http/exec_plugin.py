"""Credentials from a program that the kubeconfig names, by the protocol client.authentication.k8s.io."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import shlex
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.client.errors import NoCredentials
from tarragon.client.http.credentials import Identity, authorization
from tarragon.client.http.kubeconfig import Exec
from tarragon.kube.codec import decode, encode, moment
from tarragon.kube.meta import Json

GROUP = "client.authentication.k8s.io"
_VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
_MODES = ("Never", "IfAvailable", "Always")

_SECONDS = 60.0
_SECONDS_WITH_A_PERSON = 600.0
"""Somebody may have to find a telephone and read six digits from it."""
_BREATH = 10.0
"""Seconds in which a program that has failed, or of which the answer was refused, is not asked again."""
_LAST_WORDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a program is started with. `cluster` is what it is told of the cluster if it asks for that."""

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    cluster: Mapping[str, Json] = field(default_factory=dict)
    has_terminal: bool = False


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


@dataclass(frozen=True, slots=True)
class _Held:
    identity: Identity
    until: dt.datetime | None


class ExecPlugin:
    """Runs the program when it must, and once at a time; its answer holds until it expires or is refused."""

    def __init__(self, program: Exec, surroundings: Surroundings, clock: Clock) -> None:
        self._program = program
        self._surroundings = surroundings
        self._clock = clock
        self._held: _Held | None = None
        self._failure: NoCredentials | None = None
        self._in_vain_at: float | None = None
        self._turn = asyncio.Lock()

    async def identity(self, refused: Identity | None = None) -> Identity:
        held = self._good(refused)
        if held is not None:
            return held
        async with self._turn:
            held = self._good(refused)  # whoever had the turn before may have asked for all of us
            if held is not None:
                return held
            if self._failure is not None and self._was_in_vain():
                raise self._failure
            return await self._ask(refused)

    def _good(self, refused: Identity | None) -> Identity | None:
        held = self._held
        if held is None or (held.until is not None and held.until <= self._clock.now()):
            return None
        if held.identity == refused and not self._was_in_vain():
            return None
        return held.identity

    def _was_in_vain(self) -> bool:
        return self._in_vain_at is not None and self._clock.monotonic() - self._in_vain_at < _BREATH

    async def _ask(self, refused: Identity | None) -> Identity:
        try:
            self._held = _read(self._program, await self._output())
        except NoCredentials as error:
            self._failure, self._in_vain_at = error, self._clock.monotonic()
            raise
        self._failure = None
        if self._held.identity == refused:
            self._in_vain_at = self._clock.monotonic()
        return self._held.identity

    async def _output(self) -> bytes:
        """What the program says. Its own words to a person go to the terminal where there is one, else into errors."""
        program = self._program
        interactive = self._is_interactive()
        try:
            process = await asyncio.create_subprocess_exec(
                program.command,
                *program.args,
                env=self._environment(is_interactive=interactive),
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if interactive else asyncio.subprocess.PIPE,
                # At the terminal it must stay where Ctrl-C and questions reach it.
                start_new_session=not interactive,
            )
        except OSError as error:
            raise _not_started(program, error) from error
        patience = _SECONDS_WITH_A_PERSON if interactive else _SECONDS
        try:
            async with asyncio.timeout(patience):
                said, complained = await process.communicate()
        except TimeoutError as error:
            raise NoCredentials(
                f"{program.command} did not say who you are within {patience:.0f} s",
                remedy=_remedy(program),
            ) from error
        finally:
            await _end(process, is_alone=not interactive)
        if process.returncode:
            raise _failed(program, process.returncode, complained or b"")
        return said

    def _is_interactive(self) -> bool:
        match self._program.interactive_mode or "IfAvailable":
            case "Never":
                return False
            case "Always" if not self._surroundings.has_terminal:
                raise NoCredentials(
                    f"{self._program.command} must ask you something, and there is no terminal",
                    why="the kubeconfig says interactiveMode: Always",
                    remedy="run it from a terminal, or use credentials that need no person",
                )
            case _:
                return self._surroundings.has_terminal

    def _environment(self, *, is_interactive: bool) -> dict[str, str]:
        spec: dict[str, Json] = {"interactive": is_interactive}
        if self._program.provide_cluster_info:
            spec["cluster"] = self._surroundings.cluster
        info = {"apiVersion": self._program.api_version, "kind": "ExecCredential", "spec": spec}
        return {
            **self._surroundings.environment,
            **{each.name: each.value for each in self._program.env},
            "KUBERNETES_EXEC_INFO": encode(info).decode(),
        }


def check(program: Exec, user: str) -> None:
    """Raises TarragonError for what no program could be run by."""
    what = f"the exec plugin of user {user!r} can't be used"
    if not program.command:
        raise TarragonError(what, why="it names no command")
    if program.api_version not in _VERSIONS:
        raise TarragonError(
            what,
            why=f"its apiVersion is {program.api_version or 'not given'!r}; there are {' and '.join(_VERSIONS)}",
            remedy="bring the plugin up to date, and let it write the kubeconfig anew",
        )
    if program.interactive_mode not in {*_MODES, ""}:
        raise TarragonError(what, why=f"interactiveMode is {program.interactive_mode!r}, none of {', '.join(_MODES)}")
    if program.api_version == _VERSIONS[0] and not program.interactive_mode:
        raise TarragonError(
            what, why=f"{program.api_version} wants an interactiveMode", remedy="add `interactiveMode: IfAvailable`"
        )


def _read(program: Exec, said: bytes) -> _Held:
    """Never quotes what the program said: it is a secret."""
    try:
        answer = decode(said, _Answer)
    except msgspec.DecodeError as error:
        raise _nonsense(program, "it is no ExecCredential in JSON") from error
    if answer.kind != "ExecCredential" or answer.api_version != program.api_version:
        raise _nonsense(
            program,
            f"it says {answer.api_version or 'no apiVersion'}, {answer.kind or 'no kind'}; "
            f"the kubeconfig wants {program.api_version}, ExecCredential",
        )
    status = answer.status or _Status()
    certificate, key = status.client_certificate_data or "", status.client_key_data or ""
    if bool(certificate) != bool(key):
        raise _nonsense(program, "it has a client certificate or its key, and not both")
    if not status.token and not certificate:
        raise _nonsense(program, "it has neither a token nor a client certificate in it")
    until = None
    if status.expiration_timestamp:
        try:
            until = moment(status.expiration_timestamp)
        except ValueError as error:
            raise _nonsense(program, "its expirationTimestamp is no time") from error
    return _Held(Identity(authorization(status.token or ""), certificate.encode(), key.encode()), until)


def _nonsense(program: Exec, why: str) -> NoCredentials:
    return NoCredentials(f"what {program.command} says can't be used", why=why, remedy=_remedy(program))


def _not_started(program: Exec, error: OSError) -> NoCredentials:
    if isinstance(error, FileNotFoundError):
        return NoCredentials(
            f"{program.command} is not installed",
            why="the kubeconfig says that it tells who you are",
            remedy=program.install_hint.strip() or "install it, or name another context",
        )
    return NoCredentials(f"{program.command} can't be started", why=error.strerror or "", remedy=_remedy(program))


def _failed(program: Exec, code: int, complained: bytes) -> NoCredentials:
    ended = f"with exit code {code}" if code > 0 else f"by signal {-code}"
    words = complained.decode(errors="replace").strip().splitlines()
    return NoCredentials(
        f"{program.command} could not say who you are: it ended {ended}",
        why="\n".join(words[-_LAST_WORDS:]),
        remedy=_remedy(program),
    )


def _remedy(program: Exec) -> str:
    """Without the arguments: there may be passwords among them."""
    return f"run {shlex.quote(program.command)} by hand, as the kubeconfig has it; often a login has expired"


async def _end(process: asyncio.subprocess.Process, *, is_alone: bool) -> None:
    """Whatever it started goes with it, if it has a session to itself."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        if is_alone:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    await process.wait()
