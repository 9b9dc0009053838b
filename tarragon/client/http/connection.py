"""Which cluster is meant, and how to be let in: from kubeconfig files, or from what a pod is given."""

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
from tarragon.client.http.credentials import Credentials, FromFiles, Sources
from tarragon.client.http.exec_plugin import ExecPlugin, Surroundings
from tarragon.client.http.kubeconfig import Cluster, Config, User, decoded, load, merged
from tarragon.client.http.proxies import proxy_of
from tarragon.client.http.transport import Server
from tarragon.kube.meta import Json

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, its namespace and the authority of its API server."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A cluster by the name that its user gave it. `namespace` is what is meant where none is named."""

    context: str
    namespace: str
    server: Server


def here(environment: Mapping[str, str], *, path: Path | None = None, context: str = "") -> Access:
    """From a kubeconfig where one is named or there, else as a pod. Raises TarragonError."""
    is_pod = bool(environment.get("KUBERNETES_SERVICE_HOST"))
    if is_pod and path is None and not context and not _config(environment, None).current_context:
        return in_cluster(environment)
    return kubeconfig(environment, path=path, context=context)


def kubeconfig(environment: Mapping[str, str], *, path: Path | None = None, context: str = "") -> Access:
    """As kubectl: the file `path`, else those of KUBECONFIG, else ~/.kube/config; `context`, else the current one.

    Warns, in the log, of a server whose certificate is not checked. Raises TarragonError.
    """
    config = _config(environment, path)
    name = context or config.current_context
    chosen = config.contexts.get(name)
    if chosen is None:
        raise _no_context(name, config)
    cluster = config.clusters.get(chosen.cluster)
    if cluster is None or not cluster.server:
        raise TarragonError(
            f"context {name!r} leads nowhere", why=f"there is no cluster {chosen.cluster!r} with a server"
        )
    user = config.users.get(chosen.user)
    if user is None and chosen.user:
        raise TarragonError(f"context {name!r} is nobody's", why=f"there is no user {chosen.user!r}")
    server = _server(cluster, chosen.user, user or User(), environment)
    return Access(context=name, namespace=chosen.namespace or "default", server=server)


def contexts(environment: Mapping[str, str]) -> list[str]:
    """Names of all there are. Raises TarragonError for a file that is none."""
    return list(_config(environment, None).contexts)


def in_cluster(environment: Mapping[str, str], *, folder: Path = SERVICE_ACCOUNT) -> Access:
    """As the service account of the pod that this program runs in. Raises TarragonError."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise TarragonError(
            "this is not a pod of a cluster",
            why="KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set",
            remedy="name a cluster with --kubeconfig FILE, or with KUBECONFIG",
        )
    token, namespace = folder / "token", folder / "namespace"
    try:
        authority = (folder / "ca.crt").read_bytes()
        token.read_bytes()
    except OSError as error:
        raise TarragonError(
            "this pod has no service account to be let in with",
            why=f"{error.filename}: {error.strerror}",
            remedy="take automountServiceAccountToken: false out of the pod or its service account",
        ) from error
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Access(
        context="in-cluster",
        namespace=(namespace.read_text().strip() if namespace.exists() else "") or "default",
        server=Server(
            url=url,
            ca_data=authority,
            proxy_url=_usable_proxy(proxy_of(url, environment)),
            credentials=FromFiles(Sources(token_file=token, authority=folder / "ca.crt"), SystemClock()),
        ),
    )


def _config(environment: Mapping[str, str], path: Path | None) -> Config:
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
        except FileNotFoundError:  # kubectl passes over them, too
            continue
    return merged(found)


def _server(cluster: Cluster, name: str, user: User, environment: Mapping[str, str]) -> Server:
    url = _url(cluster)
    authority = _authority(cluster)
    if cluster.insecure_skip_tls_verify:
        if authority:
            raise TarragonError(
                f"the kubeconfig contradicts itself about {url}",
                why="it has a certificate authority, and says insecure-skip-tls-verify",
                remedy="remove one of them",
            )
        _log.warning("warning: whoever answers as %s is believed: insecure-skip-tls-verify is set", url)
    proxy = _usable_proxy(cluster.proxy_url or proxy_of(url, environment))
    return Server(
        url=url,
        ca_data=authority,
        tls_server_name=cluster.tls_server_name,
        skip_tls_verify=cluster.insecure_skip_tls_verify,
        proxy_url=proxy,
        headers=_impersonation(user),
        credentials=_credentials(cluster, name, user, environment),
    )


def _url(cluster: Cluster) -> str:
    url = cluster.server
    if "://" not in url:
        url = (
            f"https://{url}" if cluster.certificate_authority or cluster.certificate_authority_data else f"http://{url}"
        )
    try:
        parsed = URL(url)
    except ValueError as error:
        raise TarragonError(f"the server {cluster.server!r} is no URL", why=str(error)) from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise TarragonError(f"the server {cluster.server!r} is no URL of an API server")
    return url


def _authority(cluster: Cluster) -> bytes:
    if cluster.certificate_authority_data:
        return decoded(cluster.certificate_authority_data, "certificate-authority-data")
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
        # The URL itself may hold a password.
        raise TarragonError(
            f"a proxy by {scheme or 'no scheme'} can't be used",
            why="this program speaks to http:// and https:// proxies",
            remedy="name another proxy-url in the kubeconfig, or another HTTPS_PROXY",
        )
    return url


def _credentials(cluster: Cluster, name: str, user: User, environment: Mapping[str, str]) -> Credentials:
    """Whatever the kubeconfig has of its own comes before a program that would have to be asked."""
    if user.auth_provider is not None:
        raise TarragonError(
            f"user {name!r} logs in by an auth-provider, which Kubernetes has given up",
            why=f"its name is {_name_of(user.auth_provider)}",
            remedy="let your cloud's command write the kubeconfig anew: it has an exec plugin for it now",
        )
    has_own = user.token or user.token_file or user.username
    if user.exec is not None and not has_own:
        exec_plugin.check(user.exec, name)
        surroundings = Surroundings(
            environment=environment,
            cluster=_told(cluster),
            has_terminal=sys.stdin is not None and sys.stdin.isatty(),
        )
        return ExecPlugin(user.exec, surroundings, SystemClock())
    if bool(user.client_certificate or user.client_certificate_data) != bool(user.client_key or user.client_key_data):
        raise TarragonError(f"user {name!r} has a client certificate or its key, and not both")
    sources = Sources(
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
    return FromFiles(sources, SystemClock())


def _source(data: str, path: str, what: str) -> bytes | Path:
    if data:
        return decoded(data, what)
    return Path(path) if path else b""


def _name_of(provider: Json) -> str:
    return repr(provider.get("name")) if isinstance(provider, dict) else "not given"


def _told(cluster: Cluster) -> Mapping[str, Json]:
    """As KUBERNETES_EXEC_INFO has it: what is not set is left out."""
    named = [each.extension for each in cluster.extensions if each.name == f"{exec_plugin.GROUP}/exec"]
    told: dict[str, Json] = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": b64encode(_authority(cluster)).decode(),
        "proxy-url": cluster.proxy_url,
        "config": named[0] if named else None,
    }
    return {name: value for name, value in told.items() if value}


def _impersonation(user: User) -> tuple[tuple[str, str], ...]:
    """To leave them out would be to act as somebody who may do more."""
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


def _no_context(name: str, config: Config) -> TarragonError:
    if not config.contexts:
        return TarragonError(
            "no cluster is known here",
            why="there is no kubeconfig, or nothing in it",
            remedy="name one with --kubeconfig FILE, or with KUBECONFIG",
        )
    known = sorted(config.contexts)
    if not name:
        return TarragonError(
            "no cluster is named, and the kubeconfig has no current context",
            remedy=f"name one with --context: {', '.join(known)}",
        )
    close = difflib.get_close_matches(name, known, n=1)
    return TarragonError(
        f"there is no context {name!r}",
        why=f"the kubeconfig has {', '.join(known)}",
        remedy=f"did you mean {close[0]!r}?" if close else "`kubectl config get-contexts` lists them",
    )
