"""Finds the cluster to connect to and its credentials, from kubeconfig files or a pod's service account."""

from __future__ import annotations

import difflib
import logging
import os
import sys
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from yarl import URL

from tarragon.base.clock import SystemClock
from tarragon.base.errors import TarragonError
from tarragon.client.http import exec_plugin
from tarragon.client.http.credentials import Credentials, CredentialSources, FileCredentials
from tarragon.client.http.exec_plugin import ExecPlugin, PluginEnvironment
from tarragon.client.http.kubeconfig import AuthInfo, Kubeconfig, KubeconfigCluster, decode_base64, load, merge
from tarragon.client.http.proxies import proxy_url_for
from tarragon.client.http.transport import RestConfig
from tarragon.kube.meta import Json

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory in a pod with its token, its namespace and the certificate authority of its API server."""
SERVICE_ACCOUNT_VARIABLE = "TARRAGON_SERVICE_ACCOUNT"
"""The environment variable with that directory, for a pod on a process node, where it is elsewhere."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """A cluster, the name of its context, and the default namespace."""

    context: str
    namespace: str
    rest_config: RestConfig


class NoKubeconfig(TarragonError):
    """No kubeconfig exists in the usual places, or it has no contexts."""


def load_config(environment: Mapping[str, str], *, path: Path | None = None, context: str = "") -> ClusterConfig:
    """The cluster of the kubeconfig if there is one, else the cluster of this pod. Raises TarragonError."""
    is_pod = bool(environment.get("KUBERNETES_SERVICE_HOST"))
    if is_pod and path is None and not context and not _config(environment, None).current_context:
        folder = Path(environment.get(SERVICE_ACCOUNT_VARIABLE) or SERVICE_ACCOUNT)
        return in_cluster_config(environment, folder=folder)
    return load_kubeconfig(environment, path=path, context=context)


def load_kubeconfig(environment: Mapping[str, str], *, path: Path | None = None, context: str = "") -> ClusterConfig:
    """The cluster of a kubeconfig, found as by kubectl: `path`, else the files of KUBECONFIG, else ~/.kube/config.

    `context` defaults to the current context. Logs a warning if the server's certificate is not verified. Raises
    TarragonError.
    """
    config = _config(environment, path)
    name = context or config.current_context
    chosen = config.contexts.get(name)
    if chosen is None:
        raise _no_context(name, config)
    cluster = config.clusters.get(chosen.cluster)
    if cluster is None or not cluster.server:
        raise TarragonError(
            f"context {name!r} has no cluster", why=f"there is no cluster {chosen.cluster!r} with a server"
        )
    user = config.users.get(chosen.user)
    if user is None and chosen.user:
        raise TarragonError(f"context {name!r} has no user", why=f"there is no user {chosen.user!r}")
    server = _server(cluster, chosen.user, user or AuthInfo(), environment)
    return ClusterConfig(context=name, namespace=chosen.namespace or "default", rest_config=server)


def context_names(environment: Mapping[str, str]) -> list[str]:
    """The names of all contexts. Raises TarragonError for an invalid kubeconfig."""
    return list(_config(environment, None).contexts)


def in_cluster_config(environment: Mapping[str, str], *, folder: Path = SERVICE_ACCOUNT) -> ClusterConfig:
    """The cluster of the pod that this program runs in, with its service account. Raises TarragonError."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise TarragonError(
            "this program is not running in a pod",
            why="KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set",
            remedy="select a cluster with --kubeconfig FILE or KUBECONFIG",
        )
    token, namespace = folder / "token", folder / "namespace"
    try:
        authority = (folder / "ca.crt").read_bytes()
        token.read_bytes()
    except OSError as error:
        raise TarragonError(
            "this pod has no service account token",
            why=f"{error.filename}: {error.strerror}",
            remedy="remove automountServiceAccountToken: false from the pod or its service account",
        ) from error
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return ClusterConfig(
        context="in-cluster",
        namespace=(namespace.read_text().strip() if namespace.exists() else "") or "default",
        rest_config=RestConfig(
            url=url,
            ca_data=authority,
            proxy_url=_usable_proxy(proxy_url_for(url, environment)),
            credentials=FileCredentials(
                CredentialSources(token_file=token, authority=folder / "ca.crt"), SystemClock()
            ),
        ),
    )


def _config(environment: Mapping[str, str], path: Path | None) -> Kubeconfig:
    if path is not None:
        try:
            return load(path)
        except FileNotFoundError as error:
            raise TarragonError(f"there is no kubeconfig {path}") from error
    named = [Path(each) for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    home = Path(environment.get("HOME") or Path.home())
    found = []
    for each in dict.fromkeys(named or [home / ".kube" / "config"]):
        try:
            found.append(load(each))
        except FileNotFoundError:  # kubectl skips them too
            continue
    return merge(found)


def _server(cluster: KubeconfigCluster, name: str, user: AuthInfo, environment: Mapping[str, str]) -> RestConfig:
    url = _url(cluster)
    authority = _authority(cluster)
    if cluster.insecure_skip_tls_verify:
        if authority:
            raise TarragonError(
                f"the kubeconfig has contradictory TLS settings for {url}",
                why="it has both a certificate authority and insecure-skip-tls-verify",
                remedy="remove one of them",
            )
        _log.warning("warning: the certificate of %s is not verified: insecure-skip-tls-verify is set", url)
    proxy = _usable_proxy(cluster.proxy_url or proxy_url_for(url, environment))
    return RestConfig(
        url=url,
        ca_data=authority,
        tls_server_name=cluster.tls_server_name,
        skip_tls_verify=cluster.insecure_skip_tls_verify,
        proxy_url=proxy,
        headers=_impersonation(user),
        credentials=_credentials(cluster, name, user, environment),
    )


def _url(cluster: KubeconfigCluster) -> str:
    url = cluster.server
    if "://" not in url:
        url = (
            f"https://{url}" if cluster.certificate_authority or cluster.certificate_authority_data else f"http://{url}"
        )
    try:
        parsed = URL(url)
    except ValueError as error:
        raise TarragonError(f"the server {cluster.server!r} is not a URL", why=str(error)) from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise TarragonError(f"the server {cluster.server!r} is not the URL of an API server")
    return url


def _authority(cluster: KubeconfigCluster) -> bytes:
    if cluster.certificate_authority_data:
        return decode_base64(cluster.certificate_authority_data, "certificate-authority-data")
    if not cluster.certificate_authority:
        return b""
    try:
        return Path(cluster.certificate_authority).read_bytes()
    except OSError as error:
        raise TarragonError(
            "the certificate authority of the cluster can't be read", why=f"{error.filename}: {error.strerror}"
        ) from error


def _usable_proxy(url: str) -> str:
    if not url:
        return ""
    try:
        scheme = URL(url).scheme
    except ValueError:
        scheme = ""
    if scheme not in {"http", "https"}:
        # Do not quote the URL: it may contain a password.
        raise TarragonError(
            f"unsupported proxy: its scheme is {scheme}" if scheme else "unsupported proxy: its URL has no scheme",
            why="only http:// and https:// proxies are supported",
            remedy="change proxy-url in the kubeconfig, or HTTPS_PROXY",
        )
    return url


def _credentials(cluster: KubeconfigCluster, name: str, user: AuthInfo, environment: Mapping[str, str]) -> Credentials:
    """The credentials of a user. A token or password in the kubeconfig takes precedence over an exec plugin."""
    if user.auth_provider is not None:
        raise TarragonError(
            f"user {name!r} has an auth-provider, which Kubernetes no longer supports",
            why=f"its name is {_name_of(user.auth_provider)}",
            remedy="write the kubeconfig again with your cloud's command line, which now uses an exec plugin",
        )
    has_static = user.token or user.token_file or user.username
    if user.exec is not None and not has_static:
        exec_plugin.validate(user.exec, name)
        surroundings = PluginEnvironment(
            environment=environment,
            cluster=_exec_cluster(cluster),
            has_terminal=sys.stdin is not None and sys.stdin.isatty(),
        )
        return ExecPlugin(user.exec, surroundings, SystemClock())
    if bool(user.client_certificate or user.client_certificate_data) != bool(user.client_key or user.client_key_data):
        raise TarragonError(f"user {name!r} must have both a client certificate and its key, or neither")
    sources = CredentialSources(
        token=user.token,
        token_file=Path(user.token_file) if user.token_file else None,
        username=user.username,
        password=user.password,
        certificate=_source(user.client_certificate_data, user.client_certificate, "client-certificate-data"),
        key=_source(user.client_key_data, user.client_key, "client-key-data"),
        authority=_source(
            cluster.certificate_authority_data, cluster.certificate_authority, "certificate-authority-data"
        ),
    )
    return FileCredentials(sources, SystemClock())


def _source(data: str, path: str, what: str) -> bytes | Path:
    if data:
        return decode_base64(data, what)
    return Path(path) if path else b""


def _name_of(provider: Json) -> str:
    return repr(provider.get("name")) if isinstance(provider, dict) else "not given"


def _exec_cluster(cluster: KubeconfigCluster) -> Mapping[str, Json]:
    """The cluster as in KUBERNETES_EXEC_INFO, without the fields that are not set."""
    configs = [each.extension for each in cluster.extensions if each.name == f"{exec_plugin.GROUP}/exec"]
    fields: dict[str, Json] = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": b64encode(_authority(cluster)).decode(),
        "proxy-url": cluster.proxy_url,
        "config": configs[0] if configs else None,
    }
    return {name: value for name, value in fields.items() if value}


def _impersonation(user: AuthInfo) -> tuple[tuple[str, str], ...]:
    """The impersonation headers. Without them the client would act with the rights of the impersonating user."""
    extra = [
        (f"Impersonate-Extra-{quote(name.lower(), safe='')}", value)
        for name, values in user.impersonate_extra.items()
        for value in values
    ]
    pairs = [
        ("Impersonate-User", user.impersonate),
        ("Impersonate-Uid", user.impersonate_uid),
        *(("Impersonate-Group", group) for group in user.impersonate_groups),
        *extra,
    ]
    return tuple((name, value) for name, value in pairs if value)


def _no_context(name: str, config: Kubeconfig) -> TarragonError:
    if not config.contexts:
        return NoKubeconfig(
            f"there is no context {name!r}" if name else "no cluster is configured",
            why="there is no kubeconfig, or it has no contexts",
            remedy="select one with --kubeconfig FILE or KUBECONFIG",
        )
    names = sorted(config.contexts)
    if not name:
        return TarragonError(
            "no context is selected, and the kubeconfig has no current context",
            remedy=f"select one with --context: {', '.join(names)}",
        )
    close = difflib.get_close_matches(name, names, n=1)
    return TarragonError(
        f"there is no context {name!r}",
        why=f"the kubeconfig has {', '.join(names)}",
        remedy=f"did you mean {close[0]!r}?" if close else "`kubectl config get-contexts` lists them",
    )
