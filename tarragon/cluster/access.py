"""Which cluster is meant, and how to be let in: from kubeconfig files, or from what a pod is given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tarragon.base.errors import TarragonError
from tarragon.cluster.kubeconfig import Cluster, Config, User, decoded, load, merged
from tarragon.cluster.transport import Server
from tarragon.kube.reader import nearest

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, its namespace and the authority of its API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A cluster by the name that its user gave it. `namespace` is what is meant where none is named."""

    context: str
    namespace: str
    server: Server


def here(environment: Mapping[str, str], *, path: Path | None = None, context: str = "") -> Access:
    """From a kubeconfig where one is named or there, else as a pod. Raises TarragonError."""
    is_pod = "KUBERNETES_SERVICE_HOST" in environment
    if path is None and not context and is_pod and not _config(environment, None).current_context:
        return in_cluster(environment)
    return kubeconfig(environment, path=path, context=context)


def kubeconfig(environment: Mapping[str, str], *, path: Path | None = None, context: str = "") -> Access:
    """As kubectl: the file `path`, else those of KUBECONFIG, else ~/.kube/config; `context`, else the current one.

    Raises TarragonError.
    """
    config = _config(environment, path)
    name = context or config.current_context
    chosen = config.contexts.get(name)
    if chosen is None:
        raise _no_context(name, config)
    cluster = config.clusters.get(chosen.cluster)
    if cluster is None or not cluster.server:
        raise TarragonError(f"context {name!r} names the cluster {chosen.cluster!r}, of which the server is not known")
    user = config.users.get(chosen.user, User())
    return Access(context=name, namespace=chosen.namespace or "default", server=_server(cluster, user))


def in_cluster(environment: Mapping[str, str], *, folder: Path = SERVICE_ACCOUNT) -> Access:
    """As the service account of the pod that this program runs in. Raises TarragonError."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise TarragonError("this is not a pod: KUBERNETES_SERVICE_HOST is not set", remedy="name a kubeconfig")
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        token = (folder / "token").read_text().strip()
        authority = (folder / "ca.crt").read_bytes()
        namespace = (folder / "namespace").read_text().strip()
    except OSError as error:
        raise TarragonError("this pod has no service account", why=str(error)) from error
    return Access(context="in-cluster", namespace=namespace, server=Server(url=url, ca_data=authority, token=token))


def _config(environment: Mapping[str, str], path: Path | None) -> Config:
    if path is not None:
        try:
            return load(path)
        except FileNotFoundError as error:
            raise TarragonError(f"{path} is not there") from error
    named = environment.get("KUBECONFIG", "")
    home = Path(environment.get("HOME", "~")).expanduser()
    paths = [Path(each) for each in named.split(os.pathsep) if each] or [home / ".kube" / "config"]
    found = []
    for each in dict.fromkeys(paths):
        try:
            found.append(load(each))
        except FileNotFoundError:  # kubectl passes over them, too
            continue
    return merged(found)


def _server(cluster: Cluster, user: User) -> Server:
    return Server(
        url=cluster.server,
        ca_data=_data(cluster.certificate_authority_data, cluster.certificate_authority, "certificate-authority"),
        token=user.token or (_file(user.token_file, "tokenFile").decode().strip() if user.token_file else ""),
        client_certificate=_data(user.client_certificate_data, user.client_certificate, "client-certificate"),
        client_key=_data(user.client_key_data, user.client_key, "client-key"),
        tls_server_name=cluster.tls_server_name,
        skip_tls_verify=cluster.insecure_skip_tls_verify,
    )


def _data(data: str, path: str, what: str) -> bytes:
    if data:
        return decoded(data, f"{what}-data")
    return _file(path, what) if path else b""


def _file(path: str, what: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TarragonError(f"the file of {what} can't be read", why=str(error)) from error


def _no_context(name: str, config: Config) -> TarragonError:
    known = ", ".join(sorted(config.contexts)) or "none"
    what = f"there is no context {name!r}" if name else "no cluster is named: there is no current context"
    meant = nearest(name, config.contexts) if name else None
    remedy = f"did you mean {meant}?" if meant else "name one with --context, or another file with KUBECONFIG"
    return TarragonError(what, why=f"contexts that are there: {known}", remedy=remedy)
