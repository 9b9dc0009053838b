"""What a refusal of an API server says to somebody at a prompt. The messages are those of real servers."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.jobs import NoSuchJob, NotInstalled
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.targets.foreign import KubeconfigTarget
from tarragon.client.errors import CredentialsError, error_from_status, unreachable
from tarragon.client.http.config import ClusterConfig
from tarragon.client.http.transport import RestConfig

URL = "https://10.0.0.1:6443"
NAME = f"context prod ({URL})"


@pytest.fixture
def where() -> KubeconfigTarget:
    access = ClusterConfig(context="prod", namespace="research", rest_config=RestConfig(url=URL))
    return KubeconfigTarget(access, GlobalOptions(context="prod"))


def refusal(code: int, message: str, **details: Any) -> TarragonError:
    return error_from_status({"kind": "Status", "code": code, "message": message, "details": details})


def test_a_missing_permission_is_told_with_who_may_not_do_what_where(where: KubeconfigTarget) -> None:
    message = (
        'tfjobs.kubeflow.org is forbidden: User "bob" cannot list resource "tfjobs" in API group "kubeflow.org" '
        'in the namespace "research"'
    )
    everywhere = 'nodes is forbidden: User "bob" cannot list resource "nodes" in API group "" at the cluster scope'

    error = where.translated(refusal(403, message))

    assert error.summary == f"bob may not list tfjobs in namespace research on {NAME}"
    assert "--context prod check` shows what you may do" in error.remedy
    assert where.translated(refusal(403, everywhere)).summary == f"bob may not list nodes in all namespaces on {NAME}"


def test_a_quota_has_its_own_words(where: KubeconfigTarget) -> None:
    message = 'tfjobs.kubeflow.org "digits" is forbidden: exceeded quota: jobs, requested: 1, used: 5, limited: 5'

    error = where.translated(refusal(403, message))

    assert (error.summary, error.cause) == (f"{NAME} rejected the request", message)


def test_who_is_not_known_should_log_in_again(where: KubeconfigTarget) -> None:
    assert where.translated(refusal(401, "Unauthorized")).summary == f"you are not logged in to {NAME}"


def test_a_login_program_that_fails_has_said_itself_what_to_do(where: KubeconfigTarget) -> None:
    error = where.translated(CredentialsError("aws was not found", why="it is not on PATH", remedy="install it"))

    assert (error.summary, error.cause, error.remedy) == ("aws was not found", "it is not on PATH", "install it")


def test_a_kind_an_object_and_a_namespace_that_are_not_there_are_three_things(where: KubeconfigTarget) -> None:
    kind = where.translated(refusal(404, "404 page not found"))
    gone = where.translated(refusal(404, 'pods "a" not found', name="a", kind="pods"))
    namespace = where.translated(refusal(404, 'namespaces "ml" not found', name="ml", kind="namespaces"))

    assert kind.summary == "the kinds TFJob, MPIJob, JAXJob and SharePod are not installed in this cluster"
    assert kind.cause == f"{NAME} does not serve this kind"
    assert "kubectl apply -k deploy" in kind.remedy
    assert (gone.summary, gone.cause) == ('pods "a" not found', f"says {NAME}")
    assert namespace.summary == f"namespace ml not found on {NAME}"
    assert "kubectl create namespace ml" in namespace.remedy


def test_a_server_that_is_another_one_is_not_called_absent(where: KubeconfigTarget) -> None:
    absent = where.translated(unreachable(f"cannot connect to {URL}: No route to host"))
    another = where.translated(unreachable(f"the certificate of {URL} is not trusted: self-signed certificate"))

    assert absent.summary == f"{NAME} does not answer"
    assert "VPN" in absent.remedy
    assert another.summary == f"the certificate of {NAME} can't be verified"
    assert "certificate-authority" in another.remedy


def test_a_certificate_that_has_expired_is_the_servers_to_renew(where: KubeconfigTarget) -> None:
    """The words are OpenSSL's, of a kube-apiserver with such a certificate."""
    summary = f"the certificate of {URL} is not trusted: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "

    expired = where.translated(unreachable(f"{summary}certificate has expired (_ssl.c:1006)"))

    assert expired.remedy == "ask its administrator to renew the certificate of the API server"


def test_what_says_everything_already_stays_as_it_is(where: KubeconfigTarget) -> None:
    error = NoSuchJob("job not found", remedy="`list -A` lists the jobs of all namespaces")

    assert where.translated(error) is error
    assert (
        where.translated(NotInstalled()).summary
        == "the kinds TFJob, MPIJob, JAXJob and SharePod are not installed in this cluster"
    )


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        (GlobalOptions(context="prod"), " --context prod"),
        (GlobalOptions(kubeconfig="my files/config"), " --kubeconfig 'my files/config'"),
        (GlobalOptions(is_plugin=True), ""),
    ],
)
def test_what_is_suggested_is_about_the_same_cluster(settings: GlobalOptions, flags: str) -> None:
    access = ClusterConfig(context="prod", namespace="research", rest_config=RestConfig(url=URL))
    prompt = KubeconfigTarget(access, settings).command_prefix

    assert prompt.program.endswith(flags)
    assert prompt.namespace == "research"
    assert ("--context" in prompt.program) == ("--context" in flags)
