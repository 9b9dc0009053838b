from __future__ import annotations

import json

import pytest

from tarragon.frameworks.tensorflow.crd import VERSIONS
from tests.deploy.stage import ALL_FIELDS_SINCE, Stage, group, job

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]


@pytest.mark.both_releases
async def test_plain_files_install_and_can_be_applied_over_and_again(empty: Stage) -> None:
    created = await empty.install("create", "-f", "deploy/")
    over = await empty.install("apply", "-k", "deploy")
    again = await empty.install("apply", "-k", "deploy")

    lines = [line for line in created.splitlines() if line]
    assert lines
    assert all(line.endswith(" created") for line in lines)
    assert len([line for line in over.splitlines() if "/" in line and "Warning" not in line]) == len(lines)
    # An old server drops fields of the CRDs, which kubectl then sends again.
    changed = {line.partition("/")[0] for line in again.splitlines() if not line.endswith(" unchanged")}
    assert changed <= (
        set() if empty.plane.minor >= ALL_FIELDS_SINCE else {"customresourcedefinition.apiextensions.k8s.io"}
    )
    await empty.until_all_kinds_can_be_listed()
    await empty.kubectl("delete", "-k", "deploy")
    fresh = await empty.install("apply", "-k", "deploy")
    assert {line.rpartition(" ")[2] for line in fresh.splitlines()} == {"created"}


async def test_a_job_is_seen_in_every_version_and_scaled_as_users_of_kubectl_do(stage: Stage) -> None:
    operator = await stage.operator(await stage.token())
    await stage.until(lambda: operator.is_leading)
    await stage.submit("a", PS=group(1), Worker=group(3))
    await stage.until_state("a", "Running")
    await stage.until(lambda: stage.has_pods("a-ps-0", "a-worker-0", "a-worker-1", "a-worker-2"))
    await stage.until(lambda: (found := stage.status("a")) is not None and found.running_replicas == 4)

    for version in VERSIONS:
        seen = json.loads(await stage.kubectl("get", f"tfjobs.{version}.kubeflow.org", "a", "-o", "json"))
        assert seen["apiVersion"] == f"kubeflow.org/{version}"
        assert seen["status"]["tarragon"]["ready"] == "4/4"
    head, row = (await stage.kubectl("get", "tfjobs")).splitlines()
    assert head.split() == ["NAME", "STATE", "READY", "RESTARTS", "AGE", "PROGRESS", "REASON"]
    assert row.split()[:4] == ["a", "Running", "4/4", "0"]
    await stage.kubectl("scale", "tfjob/a", "--replicas=1", "--current-replicas=3")
    await stage.until(lambda: stage.has_pods("a-ps-0", "a-worker-0"))


@pytest.mark.both_releases
async def test_users_of_a_namespace_may_do_with_jobs_what_they_may_do_with_pods(stage: Stage) -> None:
    await stage.kubectl("create", "rolebinding", "her", "--clusterrole=edit", "--user=editor")
    await stage.kubectl("create", "rolebinding", "his", "--clusterrole=view", "--user=viewer")
    await stage.kubectl("create", "rolebinding", "theirs", "--clusterrole=admin", "--user=keeper")

    async def may(user: str, *what: str) -> bool:
        _, said = await stage.kubectl.run("auth", "can-i", *what, "--as", user)
        return said.strip().endswith("yes")

    # A controller makes what deploy/users.yaml has part of `edit` and of `view`.
    await stage.until_may("editor", "create", "tfjobs")
    await stage.until_may("viewer", "list", "tfjobs")
    await stage.until_may("keeper", "create", "tfjobs")
    assert await may("editor", "patch", "tfjobs", "--subresource=scale")
    for user in ("editor", "keeper"):
        assert not await may(user, "patch", "tfjobs", "--subresource=status")
    assert not await may("viewer", "delete", "tfjobs")

    await stage.kubectl("create", "rolebinding", "former", "--clusterrole=tarragon-admin", "--user=former")
    await stage.submit("a", Worker=group(1))
    forged = json.dumps({"status": {"tarragon": {"admission": {"queued": "2026-01-01T00:00:00Z"}}}})
    patch = ("patch", "tfjob/a", "--subresource=status", "--type=merge", "-p", forged)
    await stage.until_may("former", "get", "tfjobs", "--subresource=status")
    for user in ("keeper", "former"):
        code, said = await stage.kubectl.run(*patch, "--as", user)
        assert (code, "(Forbidden)" in said) == (1, True), said


async def test_service_accounts_do_with_jobs_what_their_roles_allow_and_nothing_else(stage: Stage) -> None:
    """What ServiceAccounts bound to `edit`, `view` and `tarragon-status-editor` are granted and denied."""
    await stage.kubectl("create", "namespace", "team")
    for account in ("trainer", "looker", "mender"):
        await stage.kubectl("create", "serviceaccount", account, "-n", "team")
    roles = (("trainer", "edit"), ("looker", "view"), ("mender", "view"), ("mender", "tarragon-status-editor"))
    for account, role in roles:
        subject = f"--serviceaccount=team:{account}"
        await stage.kubectl(
            "create", "rolebinding", f"{account}-{role}", f"--clusterrole={role}", subject, "-n", "team"
        )

    async def may(account: str, *words: str, stdin: str = "") -> tuple[int, str]:
        return await stage.kubectl.run(*words, f"--as=system:serviceaccount:team:{account}", stdin=stdin)

    written = json.dumps(job("mnist", "team", Worker=group(1)))
    await stage.until_may("system:serviceaccount:team:trainer", "create", "tfjobs", "-n", "team")
    await stage.until_may("system:serviceaccount:team:looker", "list", "tfjobs", "-n", "team")
    await stage.until_may("system:serviceaccount:team:mender", "patch", "tfjobs", "--subresource=status", "-n", "team")
    status = ("patch", "tfjob/mnist", "-n", "team", "--subresource=status", "--type=merge", "-p")
    started = '{"status":{"startTime":"2026-01-01T00:00:00Z"}}'

    granted = [
        await may("trainer", "create", "-f", "-", stdin=written),
        await may("trainer", "get", "tfjobs", "-n", "team", "-o", "name"),
        await may("trainer", "scale", "tfjob/mnist", "--replicas=2", "-n", "team"),
        await may("looker", "get", "tfjob/mnist", "-n", "team", "-o", "name"),
        await may("mender", *status, started),
    ]
    denied = [
        await may("trainer", *status, started),
        await may("trainer", "get", "tfjobs", "-n", "default"),
        await may("trainer", "get", "nodes"),
        await may("looker", "create", "-f", "-", stdin=written.replace("mnist", "other")),
        await may("looker", "delete", "tfjob/mnist", "-n", "team"),
        await may("looker", "get", "secrets", "-n", "team"),
    ]
    removed = await may("trainer", "delete", "tfjob/mnist", "-n", "team", "--wait=false")
    await stage.kubectl("delete", "namespace", "team", "--wait=false")

    assert [code for code, _ in (*granted, removed)] == [0] * 6, granted
    assert [(code, "orbidden" in words) for code, words in denied] == [(1, True)] * 6, denied


async def test_kinds_that_are_removed_and_installed_again_find_the_operator_ready(stage: Stage) -> None:
    operator = await stage.operator(await stage.token())
    await stage.until(lambda: operator.is_leading)
    await stage.submit("a", Worker=group(1))
    await stage.until(lambda: stage.has_pods("a-worker-0"))
    await stage.kubectl("delete", "crd", "tfjobs.kubeflow.org")
    await stage.until(lambda: not stage.jobs.objects)
    await stage.install("apply", "-f", "deploy/crd-tfjobs.kubeflow.org.yaml")
    # The garbage collector takes the others sooner or later: it looks for new kinds twice a minute.
    await stage.kubectl("delete", "pods", "--all", "--wait=false")
    await stage.until(stage.has_pods)

    await stage.submit("a", Worker=group(2))
    await stage.until(lambda: stage.has_pods("a-worker-0", "a-worker-1"))
    await stage.until_state("a", "Running")
    assert operator.process.returncode is None


async def test_owners_that_block_a_deletion_are_allowed_by_a_permission_that_nothing_else_needs(strict: Stage) -> None:
    """The admission plugin asks for `update` on the owner's finalizers, as OpenShift has it."""
    await strict.install("create", "-f", "deploy/")
    await strict.node("n")
    operator = await strict.operator(await strict.token())
    await strict.until(lambda: operator.is_leading)
    await strict.submit("a", Worker=group(1))
    await strict.until(lambda: strict.has_pods("a-worker-0"))

    role = json.loads(await strict.kubectl("get", "clusterrole", "tarragon", "-o", "json"))
    role["rules"] = [rule for rule in role["rules"] if rule["resources"] != ["tfjobs/finalizers"]]
    await strict.kubectl("replace", "-f", "-", stdin=json.dumps(role))
    blocks = ("update", "tfjobs", "--subresource=finalizers")
    await strict.until_may("system:serviceaccount:tarragon-system:tarragon", *blocks, answer="no")
    await strict.submit("b", Worker=group(1))
    await strict.until_told("b", "FailedCreateService")
    events = await strict.kubectl("get", "events", "-o", "json")
    assert "cannot set blockOwnerDeletion" in events
