"""Reads kubeconfig files, and merges several of them, as kubectl does."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from tarragon.base.errors import TarragonError
from tarragon.kube.meta import Json
from tarragon.kube.yaml_reader import read_yaml

T = TypeVar("T")


class _Slice(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A part of a kubeconfig. Field names are kebab-case, as in certificate-authority-data."""


class Extension(_Slice, frozen=True):
    name: str = ""
    extension: Json = None


class KubeconfigCluster(_Slice, frozen=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    proxy_url: str = ""
    extensions: tuple[Extension, ...] = ()


class ExecEnvVar(_Slice, frozen=True):
    name: str = ""
    value: str = ""


class ExecConfig(_Slice, frozen=True, rename="camel"):
    """An exec plugin, which provides credentials by client.authentication.k8s.io."""

    api_version: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[ExecEnvVar, ...] = ()
    install_hint: str = ""
    interactive_mode: str = ""
    provide_cluster_info: bool = False


class AuthInfo(_Slice, frozen=True):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: ExecConfig | None = None
    auth_provider: Json = None
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: tuple[str, ...] = msgspec.field(default=(), name="as-groups")
    impersonate_extra: dict[str, tuple[str, ...]] = msgspec.field(default={}, name="as-user-extra")


class KubeconfigContext(_Slice, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Slice, frozen=True):
    name: str = ""
    cluster: KubeconfigCluster = KubeconfigCluster()


class _NamedUser(_Slice, frozen=True):
    name: str = ""
    user: AuthInfo = AuthInfo()


class _NamedContext(_Slice, frozen=True):
    name: str = ""
    context: KubeconfigContext = KubeconfigContext()


class _File(_Slice, frozen=True):
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()
    current_context: str = ""


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """A kubeconfig, possibly merged: the first file that has an entry of a name wins, as does the first context."""

    clusters: Mapping[str, KubeconfigCluster] = field(default_factory=dict)
    users: Mapping[str, AuthInfo] = field(default_factory=dict)
    contexts: Mapping[str, KubeconfigContext] = field(default_factory=dict)
    current_context: str = ""


def merge(configs: Iterable[Kubeconfig]) -> Kubeconfig:
    result = Kubeconfig()
    for config in configs:
        result = Kubeconfig(
            {**config.clusters, **result.clusters},
            {**config.users, **result.users},
            {**config.contexts, **result.contexts},
            result.current_context or config.current_context,
        )
    return result


def load(path: Path) -> Kubeconfig:
    """Load a file. Relative paths in it are relative to its directory. Raises TarragonError and FileNotFoundError."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, str(error)) from error
    documents, problems = read_yaml(text)
    if problems:
        raise _unreadable(path, str(problems[0]))
    value = documents[0].value if documents else {}
    try:
        file = msgspec.convert(_without_nulls(value), _File)
    except msgspec.ValidationError as error:
        raise _unreadable(path, str(error)) from error
    folder = path.absolute().parent
    return Kubeconfig(
        _named(path, "cluster", [(each.name, _cluster_at(folder, each.cluster)) for each in file.clusters]),
        _named(path, "user", [(each.name, _user_at(folder, each.user)) for each in file.users]),
        _named(path, "context", [(each.name, each.context) for each in file.contexts]),
        file.current_context,
    )


def decode_base64(data: str, what: str) -> bytes:
    """Decode a base64 field. `what` names the field in the error."""
    try:
        return b64decode("".join(data.split()), validate=True)
    except ValueError as error:
        raise TarragonError(f"{what} is not base64", why=str(error)) from error


def _without_nulls(value: Json) -> Json:
    """The value without fields that are null: Go treats them as missing."""
    match value:
        case dict():
            return {name: _without_nulls(each) for name, each in value.items() if each is not None}
        case list():
            return [_without_nulls(each) for each in value]
        case _:
            return value


def _named(path: Path, kind: str, entries: list[tuple[str, T]]) -> Mapping[str, T]:
    found: dict[str, T] = {}
    for name, entry in entries:
        if name in found:
            raise _unreadable(path, f"it has two {kind}s with the name {name!r}")
        found[name] = entry
    return found


def _cluster_at(folder: Path, cluster: KubeconfigCluster) -> KubeconfigCluster:
    return msgspec.structs.replace(cluster, certificate_authority=_at(folder, cluster.certificate_authority))


def _user_at(folder: Path, user: AuthInfo) -> AuthInfo:
    program = user.exec
    if program is not None and Path(program.command).name != program.command:
        # A command without a slash is looked up on PATH, as in a shell.
        program = msgspec.structs.replace(program, command=_at(folder, program.command))
    return msgspec.structs.replace(
        user,
        client_certificate=_at(folder, user.client_certificate),
        client_key=_at(folder, user.client_key),
        token_file=_at(folder, user.token_file),
        exec=program,
    )


def _at(folder: Path, path: str) -> str:
    return str(folder / path) if path else ""


def _unreadable(path: Path, why: str) -> TarragonError:
    return TarragonError(f"{path} is not a valid kubeconfig", why=why, remedy="`kubectl config view` may say more")
