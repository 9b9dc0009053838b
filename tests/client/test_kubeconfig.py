from __future__ import annotations

import logging
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarragon.base.errors import TarragonError
from tarragon.client.http.config import ClusterConfig, in_cluster_config, load_config, load_kubeconfig
from tarragon.client.http.credentials import ClientIdentity

AUTHORITY = b"-----BEGIN CERTIFICATE-----\nnot read before it is used\n"
SECRET = "s3cr3t-t0ken"


def text(data: bytes) -> str:
    return b64encode(data).decode()


def config(
    name: str = "a", *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example:6443", **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
        **more,
    }


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value))
    return path


async def identity(access: ClusterConfig) -> ClientIdentity:
    assert access.rest_config.credentials is not None
    return await access.rest_config.credentials.identity()


async def bearer(access: ClusterConfig) -> str:
    return (await identity(access)).authorization.removeprefix("Bearer ")


def test_the_current_context_is_meant_unless_another_one_is_named(tmp_path: Path) -> None:
    both = config("a")
    for kind in ("clusters", "users", "contexts"):
        both[kind] += config("b")[kind]
    both["contexts"][1]["context"]["namespace"] = "team"
    path = write(tmp_path / "config", both)

    first, second = load_kubeconfig({}, path=path), load_kubeconfig({}, path=path, context="b")
    assert (first.context, first.namespace, first.rest_config.url) == ("a", "default", "https://a.example:6443")
    assert (second.context, second.namespace, second.rest_config.url) == ("b", "team", "https://b.example:6443")


async def test_of_several_files_the_first_that_has_a_name_wins(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {**config("a", user={"token": "first"}), "current-context": ""})
    two = write(tmp_path / "two", config("a", user={"token": "second"}, cluster={"server": "https://wrong"}))
    three = write(tmp_path / "three", config("c", user={"token": "third"}))
    environment = {"KUBECONFIG": f":{tmp_path / 'missing'}:{one}:{two}:{three}:{one}"}

    access = load_kubeconfig(environment)
    assert access.context == "a"
    assert access.rest_config.url == "https://a.example:6443"
    assert await bearer(access) == "first"
    assert await bearer(load_kubeconfig(environment, context="c")) == "third"


def test_parts_of_a_context_may_lie_in_different_files(tmp_path: Path) -> None:
    whole = config("a")
    one = write(tmp_path / "one", {"contexts": whole["contexts"]})
    two = write(tmp_path / "two", {"clusters": whole["clusters"], "users": whole["users"]})

    assert load_kubeconfig({"KUBECONFIG": f"{one}:{two}"}, context="a").rest_config.url == "https://a.example:6443"


async def test_relative_paths_are_relative_to_the_file_that_has_them(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        write(tmp_path / folder / "token", f"token of {folder}".replace(" ", "-"))
        write(tmp_path / folder / "ca.crt", folder)
    relative = {"cluster": {"certificate-authority": "ca.crt"}, "user": {"tokenFile": "token"}}
    one = write(tmp_path / "x" / "config", config("a", **relative))
    two = write(tmp_path / "y" / "config", config("b", **relative))
    environment = {"KUBECONFIG": f"{one}:{two}"}

    for context, folder in (("a", "x"), ("b", "y")):
        access = load_kubeconfig(environment, context=context)
        assert access.rest_config.ca_data == folder.encode()
        assert await bearer(access) == f"token-of-{folder}"


def test_without_a_name_the_file_at_home_is_read(tmp_path: Path) -> None:
    write(tmp_path / ".kube" / "config", config("home"))

    assert load_kubeconfig({"HOME": str(tmp_path)}).context == "home"
    assert load_config({"HOME": str(tmp_path)}).context == "home"
    assert load_config({"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}).context == "home"


async def test_certificates_are_data_or_files_and_data_comes_first(tmp_path: Path) -> None:
    write(tmp_path / "c.crt", "from file")
    write(tmp_path / "c.key", "key from file")
    user = {"client-certificate": "c.crt", "client-key": "c.key", "client-key-data": text(b"key from data")}
    cluster = {"certificate-authority-data": text(AUTHORITY), "certificate-authority": "missing"}
    access = load_kubeconfig({}, path=write(tmp_path / "config", config(cluster=cluster, user=user)))

    assert access.rest_config.ca_data == AUTHORITY
    assert await identity(access) == ClientIdentity("", b"from file", b"key from data", AUTHORITY)


async def test_a_user_and_a_password_are_shown_as_such(tmp_path: Path) -> None:
    user = {"username": "ann", "password": "pass"}
    access = load_kubeconfig({}, path=write(tmp_path / "config", config(user=user)))

    assert (await identity(access)).authorization == "Basic " + text(b"ann:pass")


async def test_of_a_token_and_its_file_the_file_comes_first_once_it_is_there(tmp_path: Path) -> None:
    path = write(tmp_path / "config", config(user={"token": "old", "tokenFile": "token"}))
    assert await bearer(load_kubeconfig({}, path=path)) == "old"

    write(tmp_path / "token", "new\n")
    assert await bearer(load_kubeconfig({}, path=path)) == "new"


def test_whoever_acts_as_somebody_else_says_so_with_each_request(tmp_path: Path) -> None:
    user = {"as": "ann", "as-groups": ["dev", "ops"], "as-user-extra": {"acme/Scope": ["x"]}}
    access = load_kubeconfig({}, path=write(tmp_path / "config", config(user=user)))

    assert access.rest_config.headers == (
        ("Impersonate-User", "ann"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-acme%2Fscope", "x"),
    )


def test_nothing_may_be_null_and_unknown_fields_are_for_others(tmp_path: Path) -> None:
    value = config(user={"token": None, "exec": None}, preferences={}, extensions=[{"name": "x", "extension": {}}])
    value["contexts"][0]["context"]["namespace"] = None

    assert load_kubeconfig({}, path=write(tmp_path / "config", value)).namespace == "default"


def test_an_unchecked_server_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "config", config(cluster={"insecure-skip-tls-verify": True}))
    with caplog.at_level(logging.WARNING):
        access = load_kubeconfig({}, path=path)

    assert access.rest_config.skip_tls_verify
    assert [record.getMessage() for record in caplog.records] == [
        "warning: the certificate of https://a.example:6443 is not verified: insecure-skip-tls-verify is set"
    ]


def test_a_proxy_is_the_kubeconfigs_or_the_environments(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain", config())
    own = write(tmp_path / "own", config(cluster={"proxy-url": "http://own:1"}))
    environment = {"HTTPS_PROXY": "env:3128"}

    assert load_kubeconfig(environment, path=plain).rest_config.proxy_url == "http://env:3128"
    assert load_kubeconfig(environment, path=own).rest_config.proxy_url == "http://own:1"
    assert load_kubeconfig({**environment, "NO_PROXY": ".example"}, path=plain).rest_config.proxy_url == ""


WRONG: dict[str, tuple[Any, str]] = {
    "a context without its cluster": (config(clusters=[]), "context 'a' has no cluster"),
    "a context without its user": (config(users=[]), "context 'a' has no user"),
    "an auth-provider": (
        config(user={"auth-provider": {"name": "gcp", "config": {"access-token": SECRET}}}),
        "auth-provider, which Kubernetes no longer supports\nits name is 'gcp'\nwrite the kubeconfig again",
    ),
    "a certificate without its key": (config(user={"client-certificate": "x"}), "a client certificate and its key"),
    "a socks proxy": (
        config(cluster={"proxy-url": f"socks5://me:{SECRET}@proxy:1"}),
        "unsupported proxy: its scheme is socks5\nonly http:// and https:// proxies are supported",
    ),
    "a missing authority": (config(cluster={"certificate-authority": "nowhere.crt"}), "nowhere.crt: No such file"),
    "an authority that is not checked": (
        config(cluster={"insecure-skip-tls-verify": True, "certificate-authority-data": text(AUTHORITY)}),
        "contradictory TLS settings",
    ),
    "a server that is no URL": (config(cluster={"server": "ftp://x"}), "is not the URL of an API server"),
    "no base64": (config(user={"client-certificate-data": "###", "client-key": "k"}), "client-certificate-data is not"),
    "two of a name": (config(contexts=config()["contexts"] * 2), "it has two contexts with the name 'a'"),
    "a wrong type": (config(user={"token": [SECRET]}), r"Expected `str`, got `array`"),
    "no map": (f"- {SECRET}", "is not a valid kubeconfig"),
    "no YAML": (f"users:\n- user: {{token: {SECRET}", "is not a valid kubeconfig"),
    "an unknown exec version": (
        config(user={"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"}}),
        "update the plugin",
    ),
    "exec without a mode": (
        config(user={"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}}),
        "requires interactiveMode",
    ),
    "exec with an unknown mode": (
        config(
            user={"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "interactiveMode": "No"}}
        ),
        "supported are Never, IfAvailable, Always",
    ),
    "exec of nothing": (
        config(user={"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1"}}),
        "it has no command",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_in_words_and_without_secrets(case: str, tmp_path: Path) -> None:
    value, words = WRONG[case]
    path = write(tmp_path / "config", value)

    with pytest.raises(TarragonError) as caught:
        load_kubeconfig({}, path=path)
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_context_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    path = write(tmp_path / "config", {**config("production"), "current-context": ""})

    with pytest.raises(TarragonError, match="did you mean 'production'"):
        load_kubeconfig({}, path=path, context="prodution")
    with pytest.raises(TarragonError, match="no current context\nselect one with --context: production"):
        load_kubeconfig({}, path=path)
    with pytest.raises(TarragonError, match="there is no kubeconfig"):
        load_kubeconfig({}, path=tmp_path / "missing")
    with pytest.raises(TarragonError, match="no cluster is configured"):
        load_kubeconfig({"KUBECONFIG": str(tmp_path / "missing")})


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """What a pod finds."""
    folder = tmp_path / "serviceaccount"
    for name, content in {"token": f"{SECRET}\n", "ca.crt": AUTHORITY.decode(), "namespace": "team\n"}.items():
        write(folder / name, content)
    return folder


@pytest.mark.parametrize(("host", "url"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")])
async def test_a_pod_is_let_in_by_its_service_account(account: Path, host: str, url: str) -> None:
    access = in_cluster_config({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}, folder=account)

    assert (access.context, access.namespace, access.rest_config.url) == ("in-cluster", "team", url)
    assert access.rest_config.ca_data == AUTHORITY
    assert await bearer(access) == SECRET
    assert SECRET not in repr(access)


def test_a_pod_on_a_process_node_finds_its_service_account_by_a_variable(account: Path, tmp_path: Path) -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "HOME": str(tmp_path)}

    assert load_config({**pod, "TARRAGON_SERVICE_ACCOUNT": str(account)}).namespace == "team"


def test_a_pod_without_a_service_account_is_told_what_to_change(account: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    (account / "namespace").unlink()
    assert in_cluster_config(environment, folder=account).namespace == "default"

    (account / "token").unlink()
    with pytest.raises(TarragonError, match="automountServiceAccountToken"):
        in_cluster_config(environment, folder=account)
    with pytest.raises(TarragonError, match="not running in a pod"):
        in_cluster_config({}, folder=account)


def test_secrets_are_in_no_repr(tmp_path: Path) -> None:
    user = {"token": SECRET, "password": SECRET, "client-key-data": text(SECRET.encode()), "client-certificate": "c"}
    cluster = {"proxy-url": f"http://me:{SECRET}@proxy:3128"}
    access = load_kubeconfig({}, path=write(tmp_path / "config", config(user=user, cluster=cluster)))

    assert SECRET not in repr(access)
    assert text(SECRET.encode()) not in repr(access)
