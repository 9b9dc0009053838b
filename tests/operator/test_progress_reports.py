"""Reports of progress: sent as an unmodified client sends them, over HTTPS, to an operator on the embedded API."""

from __future__ import annotations

import asyncio
import base64
import gc
import gzip
import json
import socket
import ssl
import urllib.error
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.base.certificate_authority import IssuedCertificate, ServerName, new_authority, new_server
from tarragon.base.clock import SystemClock
from tarragon.client.errors import Unavailable
from tarragon.client.leader_election import LeaderElectionConfig as LeaseConfig
from tarragon.client.leader_election import LeaseLock
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import Client
from tarragon.job.progress import MAX_BODY_BYTES
from tarragon.kube.core import LEASES, PODS, SERVICE_ACCOUNTS
from tarragon.kube.meta import Key
from tarragon.localcluster.auth.keys import SigningKey
from tarragon.localcluster.auth.reviews import reviews
from tarragon.localcluster.auth.service_account_tokens import ISSUER, TokenAuthority, TokenSpec
from tarragon.localcluster.registry.client import InProcessCluster
from tarragon.localcluster.registry.computed import ComputedKinds
from tarragon.operator.informers.progress_changes import changes_progress_only
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.operator.manager.process import ClusterClients, Process
from tarragon.operator.manager.settings import ProcessSettings
from tarragon.operator.metrics.meter import Meter, NoMeter
from tarragon.operator.progress import server
from tarragon.operator.progress.authority import ServerCertificate
from tarragon.operator.progress.receiver import BURST
from tarragon.operator.progress.server import ProgressOptions
from tarragon.operator.progress.token_reviews import read_claims
from tarragon.plan.objects.progress import AUDIENCE, AUTHORITY_ANNOTATION, URL_VARIABLE
from tests.localcluster.controllers.world import PATIENCE
from tests.operator.stage import TFJOBS, Stage, group
from tests.reports import STEPS, Reply, send

Json = dict[str, Any]


class Reviewing(DelegatingClient):
    """The stage's API, which also reviews tokens, unless a test takes that away."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.reviews = 0
        self.is_away = False

    async def create(self, resource: Any, body: Any) -> Any:
        if resource.plural == "tokenreviews":
            self.reviews += 1
            if self.is_away:
                raise Unavailable({"code": 503, "message": "the API server is away"})
        return await super().create(resource, body)


class Site:
    """A stage with an operator that serves reports."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage = stage
        self.accounts = TokenAuthority(stage.world.api.committed_objects, SigningKey(folder / "sa.key"), SystemClock())
        computed = ComputedKinds(reviews(self.accounts))
        self.authority: IssuedCertificate | None = None
        self.client = Reviewing(InProcessCluster(stage.world.api, computed=computed))

    async def certificate(self, *_: Any) -> ServerCertificate:
        now = self.stage.world.clock.now()
        self.authority = authority = self.authority or new_authority("authority of a test", now)
        server = ServerName(name="a test", hosts=["127.0.0.1"])
        issued = new_server(authority.certificate, authority.key, server, now)
        return ServerCertificate(authority=authority.certificate.decode(), chain=issued.certificate, key=issued.key)

    def options(self, port: int = 0) -> ProgressOptions:
        return ProgressOptions(host="127.0.0.1", ports=(port,), certificate=self.certificate)

    def start(self, options: ProgressOptions | None = None, meter: Meter | None = None) -> None:
        wanted = OperatorOptions(seed=1, progress=options or self.options(), meter=meter or NoMeter())
        self.stage.start(Operator(self.client, self.stage.world.clock, wanted).run())

    async def run_job(self, name: str = "a", *, workers: int = 1, policy: str = "Never") -> None:
        await self.stage.submit(name, Worker=group(workers, policy=policy))
        pods = [f"{name}-worker-{index}" for index in range(workers)]
        await self.stage.world.until(lambda: set(pods) <= set(self.stage.pods()))
        await self.stage.all_run(*pods)

    def token(self, pod: str, **differently: Any) -> str:
        bound = {"name": pod, "uid": self.stage.pods()[pod]["metadata"]["uid"]}
        wanted = {"audiences": (AUDIENCE,), "bound_kind": "pod", "bound": bound, **differently}
        return self.accounts.issue(TokenSpec(namespace="default", account="default", **wanted))[0]

    def url(self, pod: str) -> str:
        env = self.stage.pods()[pod]["spec"]["containers"][0]["env"]
        return next(str(each["value"]) for each in env if each["name"] == URL_VARIABLE)

    def authority_of(self, pod: str) -> str:
        return str(self.stage.pods()[pod]["metadata"]["annotations"][AUTHORITY_ANNOTATION])

    async def post(
        self, pod: str, body: Any = STEPS, *, token: str | None = None, url: str = "", method: str = "POST"
    ) -> Reply:
        """Send a report as the pod's program would."""
        authority = self.authority_of(pod)
        given = self.token(pod) if token is None else token
        return await send(url or self.url(pod), body, token=given, authority=authority, method=method)

    def progress(self, name: str = "a") -> Json:
        found: Json = self.stage.job(name).get("status", {}).get("tarragon", {}).get("progress", {})
        return found


@pytest.fixture
async def site(stage: Stage, tmp_path: Path) -> Site:
    await stage.node("n")
    await stage.world.create(SERVICE_ACCOUNTS, "default")
    return Site(stage, tmp_path)


async def test_a_report_of_a_program_is_in_the_status_of_its_job(site: Site) -> None:
    site.start()
    await site.run_job()
    reply = await site.post("a-worker-0")
    await site.stage.world.until(lambda: bool(site.progress()))

    status = site.stage.job("a")["status"]
    assert (reply.code, reply.body["trainerStatus"]["progressPercentage"]) == (200, 30)
    assert status["tarragon"]["progress"]["text"] == "step 1,200/4,000 (30 %) · loss 0.11"
    assert status["trainerStatus"]["estimatedRemainingSeconds"] == 120
    assert {"name": "loss", "value": "0.11"} in status["trainerStatus"]["metrics"]


async def test_the_url_names_the_kind_and_the_job(site: Site) -> None:
    site.start()
    await site.run_job()

    assert site.url("a-worker-0").endswith("/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/tfjobs/a/status")


async def test_an_empty_report_is_a_success_without_effect(site: Site) -> None:
    site.start()
    await site.run_job()

    bodies: list[Any] = [b"", {}, {"trainerStatus": {}}]

    assert [(await site.post("a-worker-0", body)).code for body in bodies] == [200] * 3
    assert not site.progress()


async def test_all_that_is_wrong_with_a_report_is_said_at_once(site: Site) -> None:
    site.start()
    await site.run_job()

    wrong = {"progressPercentage": 101, "estimatedRemainingSeconds": -1, "metrics": [{"name": "loss"}]}
    reply = await site.post("a-worker-0", {"trainerStatus": wrong})

    assert reply.code == 422
    assert all(name in reply.message for name in ("progressPercentage", "estimatedRemaining", "metrics[0].value"))


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"trainerStatus": NaN}', b"\xff", b'{"trainerStatus": 1}'])
async def test_a_body_that_is_no_report_is_refused(site: Site, body: bytes) -> None:
    site.start()
    await site.run_job()

    assert (await site.post("a-worker-0", body)).code == 422


async def test_a_body_that_is_too_large_is_refused(site: Site) -> None:
    site.start()
    await site.run_job()
    reply = await site.post("a-worker-0", b" " * (MAX_BODY_BYTES + 1))

    assert (reply.code, reply.message) == (413, "the body has more than 65,536 bytes")


async def test_without_a_token_of_ours_a_report_is_unauthorized_and_the_api_server_is_not_asked(site: Site) -> None:
    site.start()
    await site.run_job()
    pod = "a-worker-0"
    tokens = [
        "",
        "x",
        "a.b.c",
        "a." + base64.urlsafe_b64encode(b"[]").decode() + ".c",
        site.token(pod, audiences=(ISSUER,)),
        site.token(pod, bound_kind="", bound={}),
    ]

    replies = [await site.post(pod, token=token) for token in tokens]

    assert [reply.code for reply in replies] == [401] * len(tokens)
    assert all("KUBEFLOW_TRAINER_SERVER_TOKEN" in reply.message for reply in replies)
    assert site.client.reviews == 0


async def test_a_token_that_somebody_else_signed_is_unauthorized(site: Site, tmp_path: Path) -> None:
    site.start()
    await site.run_job()
    key = SigningKey(tmp_path / "other.key")
    forger = TokenAuthority(site.stage.world.api.committed_objects, key, SystemClock())
    bound = {"name": "a-worker-0", "uid": site.stage.pods()["a-worker-0"]["metadata"]["uid"]}
    wanted = TokenSpec(namespace="default", account="default", audiences=(AUDIENCE,), bound_kind="pod", bound=bound)

    assert (await site.post("a-worker-0", token=forger.issue(wanted)[0])).code == 401
    assert site.client.reviews == 1


async def test_an_accepted_token_is_reviewed_once(site: Site) -> None:
    site.start()
    await site.run_job()
    token = site.token("a-worker-0")

    assert [(await site.post("a-worker-0", token=token)).code for _ in range(3)] == [200] * 3
    assert site.client.reviews == 1


async def test_a_pod_of_another_job_or_of_none_may_not_report(site: Site) -> None:
    site.start()
    await site.run_job("a")
    await site.run_job("b")
    await site.stage.world.create(PODS, "stray", spec={"containers": [{"name": "c", "image": "i"}]})
    await site.stage.world.until(lambda: "stray" in site.stage.pods())
    gone = {"name": "a-worker-0", "uid": "of-an-earlier-pod"}

    of_another = await site.post("a-worker-0", token=site.token("b-worker-0"))
    of_none = await site.post("a-worker-0", token=site.token("stray"))
    of_a_former_pod = await site.post("a-worker-0", token=site.token("a-worker-0", bound=gone))

    assert [each.code for each in (of_another, of_none, of_a_former_pod)] == [403] * 3
    assert "default/b-worker-0 belongs to tfjobs default/b, not tfjobs default/a" in of_another.message
    assert "default/stray belongs to no job" in of_none.message
    assert "does not exist" in of_a_former_pod.message
    assert not site.progress("a")


async def test_anything_but_a_post_to_the_url_is_not_found(site: Site) -> None:
    site.start()
    await site.run_job()
    url = site.url("a-worker-0")

    assert (await site.post("a-worker-0", method="PUT")).code == 404
    assert (await site.post("a-worker-0", url=f"{url}/x")).code == 404
    assert (await site.post("a-worker-0", url=url.replace("tfjobs/a", "jaxjobs/a"))).code == 403


async def test_a_pod_that_reports_too_often_is_told_to_wait(site: Site) -> None:
    site.start()
    await site.run_job()
    token = site.token("a-worker-0")
    replies = [await site.post("a-worker-0", token=token) for _ in range(BURST + 5)]

    limited = [reply for reply in replies if reply.code == 429]
    assert limited
    assert {reply.code for reply in replies} == {200, 429}
    assert limited[0].headers["Retry-After"] == "5"


async def test_who_forges_tokens_of_a_pod_does_not_use_up_what_it_may_send(site: Site) -> None:
    site.start()
    await site.run_job()
    own = site.token("a-worker-0")
    accepted = await site.post("a-worker-0", token=own)
    head, claims, signature = own.split(".")
    forged = [await site.post("a-worker-0", token=f"{head}.{claims}.{signature[::-1]}") for _ in range(BURST + 5)]

    assert accepted.code == 200
    assert {reply.code for reply in forged} <= {401, 429}
    assert (await site.post("a-worker-0", token=own)).code == 200


async def test_while_tokens_cannot_be_reviewed_the_program_is_told_to_report_again(site: Site) -> None:
    site.start()
    await site.run_job()
    site.client.is_away = True
    away = await site.post("a-worker-0")
    site.client.is_away = False
    back = await site.post("a-worker-0")

    assert (away.code, away.headers["Retry-After"], back.code) == (503, "10", 200)


async def test_that_tokens_cannot_be_reviewed_is_not_logged_for_each_report(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.start()
    await site.run_job()
    site.client.is_away = True
    codes = [(await site.post("a-worker-0", token=site.token("a-worker-0"))).code for _ in range(5)]

    assert codes == [503] * 5
    assert capsys.readouterr().out.count("can't be reviewed") == 1


async def test_the_report_of_a_former_pod_does_not_stand_for_the_new_one(site: Site) -> None:
    site.start()
    await site.run_job(policy="OnFailure")
    former = site.token("a-worker-0")
    first = site.stage.pods()["a-worker-0"]["metadata"]["uid"]
    await site.post("a-worker-0")
    await site.stage.world.until(lambda: bool(site.progress()))

    await site.stage.world.delete(PODS, "a-worker-0")
    await site.stage.end_pods()
    await site.stage.world.until(
        lambda: site.stage.pods().get("a-worker-0", {}).get("metadata", {}).get("uid", first) != first
    )
    await site.stage.world.until(lambda: site.progress().get("earlier") is True)
    refused = await site.post("a-worker-0", token=former)

    assert refused.code == 403
    assert "text" not in site.progress()
    assert not site.stage.job("a")["status"]["trainerStatus"]


class Writes(NoMeter):
    """Keeps what became of writes."""

    def __init__(self) -> None:
        self.results: list[str] = []
        self.second_decided = asyncio.Event()

    def progress_written(self, result: str) -> None:
        self.results.append(result)
        if result == "gone" or self.results.count("written") > 1:
            self.second_decided.set()


async def test_a_report_that_waits_does_not_reach_a_new_job_of_the_same_name(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarragon.operator.progress.writer.SECONDS_BETWEEN", 1.0)
    writes = Writes()
    site.start(meter=writes)
    await site.run_job()
    await site.post("a-worker-0", {"trainerStatus": {"progressPercentage": 10}})
    await site.stage.world.until(lambda: bool(site.progress()))
    await site.post("a-worker-0", {"trainerStatus": {"progressPercentage": 20}})
    await site.stage.world.delete(TFJOBS, "a")
    await site.stage.submit("a", Worker=group(1))
    async with asyncio.timeout(60):
        await writes.second_decided.wait()

    assert site.progress() == {}


async def test_when_the_job_has_ended_its_last_report_stays(site: Site) -> None:
    site.start()
    await site.run_job()
    done = {"name": "step", "value": "4000"}
    await site.post("a-worker-0", {"trainerStatus": {"metrics": [done, {"name": "total_steps", "value": "4000"}]}})
    await site.stage.plays("a-worker-0", "Succeeded", 0)
    await site.stage.until_state("a", "Succeeded")
    await site.stage.world.until(lambda: bool(site.progress()))

    assert site.progress()["text"] == "step 4,000/4,000 (100 %)"


async def test_what_waits_to_be_written_is_written_when_the_job_ends(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when its turn comes, when nobody looks any more."""
    monkeypatch.setattr("tarragon.operator.progress.writer.SECONDS_BETWEEN", 10 * PATIENCE)
    site.start()
    await site.run_job()
    await site.post("a-worker-0", {"trainerStatus": {"progressPercentage": 10}})
    await site.stage.world.until(lambda: bool(site.progress()))
    await site.post("a-worker-0", {"trainerStatus": {"progressPercentage": 20}})
    await site.stage.plays("a-worker-0", "Failed", 1)
    await site.stage.world.until(lambda: site.progress().get("done") == 20)


async def test_jobs_run_where_reports_cannot_be_served(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        site.start(site.options(taken.getsockname()[1]))
        await site.run_job()
        await site.stage.until_state("a", "Running")

    assert "env" not in site.stage.pods()["a-worker-0"]["spec"]["containers"][0] or not any(
        each["name"] == URL_VARIABLE for each in site.stage.pods()["a-worker-0"]["spec"]["containers"][0]["env"]
    )


async def test_a_connection_that_says_nothing_does_not_hold_up_others(site: Site) -> None:
    site.start()
    await site.run_job()
    port = int(site.url("a-worker-0").split(":")[2].split("/")[0])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    try:
        assert (await site.post("a-worker-0")).code == 200
    finally:
        for each in silent:
            each.close()


NESTED = b'{"trainerStatus": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001


async def test_what_is_nested_too_deeply_is_refused(site: Site) -> None:
    site.start()
    await site.run_job()
    claims = base64.urlsafe_b64encode(b'{"aud":' + b"[" * 3_000 + b"]" * 3_000 + b"}").decode().rstrip("=")

    assert (await site.post("a-worker-0", NESTED)).code in {200, 422}
    assert (await site.post("a-worker-0", token=f"a.{claims}.c")).code == 401
    assert (await site.post("a-worker-0")).code == 200


@given(
    st.text(max_size=200) | st.binary(max_size=100).map(lambda text: f"a.{base64.urlsafe_b64encode(text).decode()}.b")
)
def test_any_text_may_be_sent_as_a_token(text: str) -> None:
    assert read_claims(text) is None


async def raw(site: Site, request: bytes) -> bytes:
    """Send these bytes, and return all that the server says until it closes the connection."""
    url = urlsplit(site.url("a-worker-0"))
    trust = ssl.create_default_context(cadata=site.authority_of("a-worker-0"))
    reader, writer = await asyncio.open_connection("127.0.0.1", url.port, ssl=trust)
    writer.write(request.replace(b"PATH", url.path.encode()))
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


class Counts(NoMeter):
    """Counts reports and writes by result."""

    def __init__(self) -> None:
        self.reports: Counter[str] = Counter()
        self.writes: Counter[str] = Counter()

    def progress_reported(self, result: str) -> None:
        self.reports[result] += 1

    def progress_written(self, result: str) -> None:
        self.writes[result] += 1


async def test_each_report_is_counted_once_by_what_became_of_it(site: Site) -> None:
    counts = Counts()
    site.start(meter=counts)
    await site.run_job()
    await site.post("a-worker-0")
    await site.post("a-worker-0", b"")
    await site.post("a-worker-0", b"[")
    await site.post("a-worker-0", token="x")
    await site.post("a-worker-0", b" " * 70_000)
    await site.post("a-worker-0", method="PUT")
    site.client.is_away = True
    await site.post("a-worker-0", token=site.token("a-worker-0"))
    await site.stage.world.until(lambda: bool(site.progress()))

    assert counts.reports == {"accepted": 1, "empty": 1, "invalid": 3, "unauthorized": 1, "unavailable": 1}
    assert counts.writes["written"] == 1


HEAD = b"POST PATH HTTP/1.1\r\nHost: h\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (b"\x00\x01\x02\r\n\r\n", 400),
        (HEAD + b"Authorization: Bearer " + b"x" * 20_000 + b"\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", 400),
        (HEAD + b"Authorization: Bearer \xff.\xff.\xff\r\nContent-Length: 0\r\n\r\n", 401),
        (HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}", 401),
        (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde", 401),
        (HEAD + b"Content-Length: 70000\r\n\r\n" + b" " * 70_000, 413),
        (b"GET PATH HTTP/1.1\r\nHost: h\r\n\r\n", 404),
    ],
)
async def test_any_bytes_get_an_answer_and_the_connection_ends_and_nothing_is_logged(
    site: Site, request_bytes: bytes, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Any pod can send them, so a traceback for each would fill the log."""
    site.start()
    await site.run_job()
    answer = await raw(site, request_bytes)

    assert answer.split(b" ")[1] == str(code).encode()
    assert caplog.records == []


async def test_what_is_compressed_is_not_unpacked(site: Site) -> None:
    """A small body could become a large one."""
    site.start()
    await site.run_job()
    body = gzip.compress(json.dumps(STEPS).encode())
    head = HEAD + f"Authorization: Bearer {site.token('a-worker-0')}\r\n".encode()
    head += f"Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    assert (await raw(site, head + body)).startswith(b"HTTP/1.1 422")


async def test_a_fault_of_ours_is_logged_and_ends_one_request_only(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.start()
    await site.run_job()

    def fails(_: object) -> None:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patched:
        patched.setattr("tarragon.operator.progress.receiver.read_claims", fails)
        assert (await site.post("a-worker-0")).code == 500
    assert (await site.post("a-worker-0")).code == 200
    assert "a fault of ours" in capsys.readouterr().out


async def test_a_body_that_does_not_come_is_waited_for_a_while(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_SECONDS", 0.05)
    site.start()
    await site.run_job()

    assert (await raw(site, HEAD + b"Content-Length: 9\r\n\r\n")).startswith(b"HTTP/1.1 408")


# CPython's ssl does not close a socket that is reset before the client begins its handshake.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_connections_beyond_the_bound_are_reset_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that would wait for an answer would train more slowly."""
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    site.start()
    await site.run_job()
    port = urlsplit(site.url("a-worker-0")).port
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    with pytest.raises(urllib.error.URLError):
        await site.post("a-worker-0")
    for _, writer in silent:
        writer.close()
    async with asyncio.timeout(20):
        while not await _is_heard(site):
            await site.stage.world.clock.sleep(0.01)
    gc.collect()  # here, where it is known why such sockets are left


async def _is_heard(site: Site) -> bool:
    try:
        return (await site.post("a-worker-0")).code == 200
    except urllib.error.URLError:
        return False


async def test_a_change_of_progress_alone_concerns_no_pod_and_no_queue(site: Site) -> None:
    """Ten thousand jobs may report: each report would otherwise cost a reconcile and a scheduling cycle."""
    site.start()
    await site.run_job()
    await site.stage.until_state("a", "Running")
    before = await site.client.get(TFJOBS, Key("default", "a"))
    await site.post("a-worker-0")
    await site.stage.world.until(lambda: bool(site.progress()))
    after = await site.client.get(TFJOBS, Key("default", "a"))
    patch = {"spec": {"runPolicy": {"suspend": True}}}
    suspended = await site.client.patch(TFJOBS, Key("default", "a"), patch)

    assert changes_progress_only(before, after)
    assert not changes_progress_only(after, after)
    assert not changes_progress_only(after, suspended)


class Counting(DelegatingClient):
    """Counts the writes of statuses."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.statuses = 0

    async def patch(self, resource: Any, key: Any, patch: Any, *, subresource: str = "") -> Any:
        self.statuses += subresource == "status"
        return await super().patch(resource, key, patch, subresource=subresource)


async def test_a_standby_takes_reports_as_the_leader_does(site: Site) -> None:
    """A Service leads to any replica. Which one leads, pods don't know."""
    ports: dict[str, int] = {}
    stopping = asyncio.Event()
    key = Key("default", "tarragon")
    config = LeaseConfig(lease_duration=9.0, renew_deadline=6.0, retry_period=0.2)
    own = {name: Counting(site.client) for name in ("a", "b")}

    def process(name: str) -> Process:
        options = replace(site.options(), on_listen=lambda port: ports.update({name: port}))
        settings = ProcessSettings(
            options=OperatorOptions(seed=1, progress=options),
            lease_claim=LeaseLock(key=key, identity=name, config=config),
        )
        clients = ClusterClients(operator=site.client, leader_election=site.client, progress=own[name])
        return Process(clients, site.stage.world.clock, settings)

    async with asyncio.TaskGroup() as tasks:
        await site.stage.world.follow(LEASES)
        tasks.create_task(process("a").run(stopping))
        await site.stage.world.until(lambda: f"leases/{key}" in site.stage.world.objects)
        tasks.create_task(process("b").run(stopping))
        await site.run_job()
        await site.stage.until_state("a", "Running")  # A write at the same time as the report's would make two of it.
        async with asyncio.timeout(60):
            while len(ports) < 2:
                await site.stage.world.clock.sleep(0.01)
        of_leader = site.url("a-worker-0")
        of_standby = of_leader.replace(str(ports["a"]), str(ports["b"]))
        reply = await site.post("a-worker-0", url=of_standby)
        await site.stage.world.until(lambda: bool(site.progress()))
        stopping.set()

    assert of_standby != of_leader
    assert reply.code == 200
    assert (own["a"].statuses, own["b"].statuses) == (0, 1)
