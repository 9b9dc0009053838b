"""What a refusal of an API server says to somebody at a prompt. The messages are those of real servers."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.jobs import NoSuchJob, NotInstalled
from tarragon.cli.options.settings import Settings
from tarragon.cli.targets.foreign import Foreign
from tarragon.client.errors import NoCredentials, from_status, unreachable
from tarragon.client.http.connection import Access
from tarragon.client.http.transport import Server

URL = "https://10.0.0.1:6443"
NAME = f"context prod ({URL})"


@pytest.fixture
def where() -> Foreign:
    access = Access(context="prod", namespace="research", server=Server(url=URL))
    return Foreign(access, Settings(context="prod"))


def refusal(code: int, message: str, **details: Any) -> TarragonError:
    return from_status({"kind": "Status", "code": code, "message": message, "details": details})


def test_a_missing_permission_is_told_with_who_may_not_do_what_where(where: Foreign) -> None:
    message = (
        'tfjobs.kubeflow.org is forbidden: User "bob" cannot list resource "tfjobs" in API group "kubeflow.org" '
        'in the namespace "research"'
    )
    everywhere = 'nodes is forbidden: User "bob" cannot list resource "nodes" in API group "" at the cluster scope'

    told = where.words(refusal(403, message))

    assert told.what == f"bob may not list tfjobs in namespace research on {NAME}"
    assert "--context prod check` shows what you may do" in told.remedy
    assert where.words(refusal(403, everywhere)).what == f"bob may not list nodes in all namespaces on {NAME}"


def test_a_quota_has_its_own_words(where: Foreign) -> None:
    message = 'tfjobs.kubeflow.org "digits" is forbidden: exceeded quota: jobs, requested: 1, used: 5, limited: 5'

    told = where.words(refusal(403, message))

    assert (told.what, told.why) == (f"{NAME} rejected the request", message)


def test_who_is_not_known_should_log_in_again(where: Foreign) -> None:
    assert where.words(refusal(401, "Unauthorized")).what == f"you are not logged in to {NAME}"


def test_a_login_program_that_fails_has_said_itself_what_to_do(where: Foreign) -> None:
    told = where.words(NoCredentials("aws was not found", why="it is not on PATH", remedy="install it"))

    assert (told.what, told.why, told.remedy) == ("aws was not found", "it is not on PATH", "install it")


def test_a_kind_an_object_and_a_namespace_that_are_not_there_are_three_things(where: Foreign) -> None:
    kind = where.words(refusal(404, "404 page not found"))
    gone = where.words(refusal(404, 'pods "a" not found', name="a", kind="pods"))
    namespace = where.words(refusal(404, 'namespaces "ml" not found', name="ml", kind="namespaces"))

    assert kind.what == "the kind TFJob is not installed in this cluster"
    assert kind.why == f"{NAME} does not serve this kind"
    assert "kubectl apply -k deploy" in kind.remedy
    assert (gone.what, gone.why) == ('pods "a" not found', f"says {NAME}")
    assert namespace.what == f"namespace ml not found on {NAME}"
    assert "kubectl create namespace ml" in namespace.remedy


def test_a_server_that_is_another_one_is_not_called_absent(where: Foreign) -> None:
    absent = where.words(unreachable(f"cannot connect to {URL}: No route to host"))
    another = where.words(unreachable(f"the certificate of {URL} is not trusted: self-signed certificate"))

    assert absent.what == f"{NAME} does not answer"
    assert "VPN" in absent.remedy
    assert another.what == f"the certificate of {NAME} can't be verified"
    assert "certificate-authority" in another.remedy


def test_what_says_everything_already_stays_as_it_is(where: Foreign) -> None:
    error = NoSuchJob("job not found", remedy="`list -A` lists the jobs of all namespaces")

    assert where.words(error) is error
    assert where.words(NotInstalled()).what == "the kind TFJob is not installed in this cluster"


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        (Settings(context="prod"), " --context prod"),
        (Settings(kubeconfig="my files/config"), " --kubeconfig 'my files/config'"),
        (Settings(is_plugin=True), ""),
    ],
)
def test_what_is_suggested_is_about_the_same_cluster(settings: Settings, flags: str) -> None:
    access = Access(context="prod", namespace="research", server=Server(url=URL))
    prompt = Foreign(access, settings).prompt

    assert prompt.program.endswith(flags)
    assert prompt.namespace == "research"
    assert ("--context" in prompt.program) == ("--context" in flags)
