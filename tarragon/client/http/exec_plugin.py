"""Credentials from an exec plugin of the kubeconfig, by the protocol client.authentication.k8s.io."""

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
from tarragon.client.errors import CredentialsError
from tarragon.client.http.credentials import ClientIdentity, authorization
from tarragon.client.http.kubeconfig import ExecConfig
from tarragon.kube.codec import decode, encode, parse_time
from tarragon.kube.meta import Json

GROUP = "client.authentication.k8s.io"
_VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
_MODES = ("Never", "IfAvailable", "Always")

_TIMEOUT = 60.0
_INTERACTIVE_TIMEOUT = 600.0
"""A user may have to fetch a phone and read a code from it."""
_RETRY_AFTER = 10.0
"""Seconds in which a plugin is not run again after it failed or the server rejected its credentials."""
_STDERR_LINES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginEnvironment:
    """The environment of an exec plugin. `cluster` is passed to it if it has `provideClusterInfo`."""

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
class _Cached:
    identity: ClientIdentity
    expires: dt.datetime | None


class ExecPlugin:
    """Runs the plugin on demand, once at a time. The result is cached until it expires or the server rejects it."""

    def __init__(self, program: ExecConfig, surroundings: PluginEnvironment, clock: Clock) -> None:
        self._program = program
        self._surroundings = surroundings
        self._clock = clock
        self._cached: _Cached | None = None
        self._failure: CredentialsError | None = None
        self._failed_at: float | None = None
        self._lock = asyncio.Lock()

    async def identity(self, refused: ClientIdentity | None = None) -> ClientIdentity:
        identity = self._usable(refused)
        if identity is not None:
            return identity
        async with self._lock:
            identity = self._usable(refused)  # another task may have run the plugin in the meantime
            if identity is not None:
                return identity
            if self._failure is not None and self._failed_recently():
                raise self._failure
            return await self._run(refused)

    def _usable(self, refused: ClientIdentity | None) -> ClientIdentity | None:
        cached = self._cached
        if cached is None or (cached.expires is not None and cached.expires <= self._clock.now()):
            return None
        if cached.identity == refused and not self._failed_recently():
            return None
        return cached.identity

    def _failed_recently(self) -> bool:
        return self._failed_at is not None and self._clock.monotonic() - self._failed_at < _RETRY_AFTER

    async def _run(self, refused: ClientIdentity | None) -> ClientIdentity:
        try:
            self._cached = _parse(self._program, await self._output())
        except CredentialsError as error:
            self._failure, self._failed_at = error, self._clock.monotonic()
            raise
        self._failure = None
        if self._cached.identity == refused:
            self._failed_at = self._clock.monotonic()
        return self._cached.identity

    async def _output(self) -> bytes:
        """Run the plugin and return its stdout. Its stderr goes to the terminal if there is one, else into errors."""
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
                # An interactive plugin must stay in the session of the terminal, for prompts and Ctrl-C.
                start_new_session=not interactive,
            )
        except OSError as error:
            raise _not_started(program, error) from error
        timeout = _INTERACTIVE_TIMEOUT if interactive else _TIMEOUT
        try:
            async with asyncio.timeout(timeout):
                stdout, stderr = await process.communicate()
        except TimeoutError as error:
            raise CredentialsError(
                f"the exec plugin {program.command} did not finish within {timeout:.0f} s",
                remedy=_remedy(program),
            ) from error
        finally:
            await _kill(process, has_own_session=not interactive)
        if process.returncode:
            raise _failed(program, process.returncode, stderr or b"")
        return stdout

    def _is_interactive(self) -> bool:
        match self._program.interactive_mode or "IfAvailable":
            case "Never":
                return False
            case "Always" if not self._surroundings.has_terminal:
                raise CredentialsError(
                    f"the exec plugin {self._program.command} needs a terminal, and there is none",
                    why="the kubeconfig sets interactiveMode: Always",
                    remedy="run this command from a terminal, or use credentials that need no interaction",
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


def validate(program: ExecConfig, user: str) -> None:
    """Raise TarragonError if the configuration of the plugin is invalid."""
    what = f"the exec plugin of user {user!r} can't be used"
    if not program.command:
        raise TarragonError(what, why="it has no command")
    if program.api_version not in _VERSIONS:
        raise TarragonError(
            what,
            why=f"unsupported apiVersion {program.api_version!r}; supported are {' and '.join(_VERSIONS)}",
            remedy="update the plugin, and let it write the kubeconfig again",
        )
    if program.interactive_mode not in {*_MODES, ""}:
        raise TarragonError(
            what, why=f"unsupported interactiveMode {program.interactive_mode!r}; supported are {', '.join(_MODES)}"
        )
    if program.api_version == _VERSIONS[0] and not program.interactive_mode:
        raise TarragonError(
            what, why=f"{program.api_version} requires interactiveMode", remedy="add `interactiveMode: IfAvailable`"
        )


def _parse(program: ExecConfig, stdout: bytes) -> _Cached:
    """Parse the output of the plugin. Errors never quote it, because it is secret."""
    try:
        answer = decode(stdout, _Answer)
    except msgspec.DecodeError as error:
        raise _invalid_output(program, "it is not an ExecCredential in JSON") from error
    if answer.kind != "ExecCredential" or answer.api_version != program.api_version:
        raise _invalid_output(
            program,
            f"it has {answer.api_version or 'no apiVersion'}, {answer.kind or 'no kind'}; "
            f"the kubeconfig requires {program.api_version}, ExecCredential",
        )
    status = answer.status or _Status()
    certificate, key = status.client_certificate_data or "", status.client_key_data or ""
    if bool(certificate) != bool(key):
        raise _invalid_output(program, "it must have both a client certificate and its key, or neither")
    if not status.token and not certificate:
        raise _invalid_output(program, "it has neither a token nor a client certificate")
    expires = None
    if status.expiration_timestamp:
        try:
            expires = parse_time(status.expiration_timestamp)
        except ValueError as error:
            raise _invalid_output(program, "its expirationTimestamp is not a time") from error
    return _Cached(ClientIdentity(authorization(status.token or ""), certificate.encode(), key.encode()), expires)


def _invalid_output(program: ExecConfig, why: str) -> CredentialsError:
    return CredentialsError(
        f"the output of the exec plugin {program.command} is invalid", why=why, remedy=_remedy(program)
    )


def _not_started(program: ExecConfig, error: OSError) -> CredentialsError:
    if isinstance(error, FileNotFoundError):
        return CredentialsError(
            f"the exec plugin {program.command} is not installed",
            why="the kubeconfig needs it to log in",
            remedy=program.install_hint.strip() or "install it, or use another context",
        )
    return CredentialsError(
        f"the exec plugin {program.command} can't be started", why=error.strerror or "", remedy=_remedy(program)
    )


def _failed(program: ExecConfig, code: int, stderr: bytes) -> CredentialsError:
    ended = f"with exit code {code}" if code > 0 else f"by signal {-code}"
    lines = stderr.decode(errors="replace").strip().splitlines()
    return CredentialsError(
        f"the exec plugin {program.command} failed: it ended {ended}",
        why="\n".join(lines[-_STDERR_LINES:]),
        remedy=_remedy(program),
    )


def _remedy(program: ExecConfig) -> str:
    """What the user can do. The arguments are left out, because they may contain passwords."""
    return f"run {shlex.quote(program.command)} by hand, as in the kubeconfig; often a login has expired"


async def _kill(process: asyncio.subprocess.Process, *, has_own_session: bool) -> None:
    """Kill the plugin if it is still running; in a session of its own, with all processes that it started."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        if has_own_session:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    await process.wait()
