"""Judges reports of progress: who sends them, about which job, how often, and whether they are valid."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError
from tarragon.client.port import Client
from tarragon.job.progress import encode_trainer_status, parse_report
from tarragon.kube.core import Pod
from tarragon.kube.meta import CustomObject, Json, Key
from tarragon.operator.informers.informers import Informers
from tarragon.operator.metrics.meter import Meter
from tarragon.operator.progress.token_reviews import PodIdentity, TokenReviewer, read_claims
from tarragon.operator.progress.writer import ProgressWriter

BURST = 20
"""Reports that a pod may send at once."""
REPORTS_PER_SECOND = 1.0
"""Reports that a pod may send in the long run. Libraries send one in five seconds."""
WARNING_SECONDS = 60.0
"""The least time between two warnings."""
MAX_SENDERS = 40_000
"""Senders whose rate is remembered. One that is forgotten begins with a full burst."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A request as it arrived: the job in its path, the bearer token and the body."""

    plural: str
    job: Key
    token: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a report: `result` is the label of the metric, `message` for people, `body` on success."""

    status: int
    result: str
    message: str = ""
    body: Mapping[str, Json] | None = None
    retry_after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sender:
    """A pod that may report, and its job."""

    pod: Pod
    kind: str
    job: CustomObject


UNAUTHORIZED = Answer(
    status=401,
    result="unauthorized",
    message="send `Authorization: Bearer TOKEN` with the token in the file that KUBEFLOW_TRAINER_SERVER_TOKEN names;"
    " read the file anew for each report, because the kubelet renews it",
)
UNAVAILABLE = Answer(
    status=503, result="unavailable", message="tokens can't be reviewed at the moment; report again", retry_after=10
)
LIMITED = Answer(
    status=429, result="limited", message=f"report at most {REPORTS_PER_SECOND:g} time a second", retry_after=5
)


def forbidden(message: str) -> Answer:
    return Answer(status=403, result="forbidden", message=message)


class ProgressReceiver:
    """Judges each report and leaves valid ones to the writer."""

    def __init__(self, cluster: Client, clock: Clock, informers: Informers, meter: Meter) -> None:
        self.writer = ProgressWriter(cluster, clock, informers, meter)
        self._reviewer = TokenReviewer(cluster, clock)
        self._limits = ReportLimits(clock)
        self._clock = clock
        self._informers = informers
        self._meter = meter
        self._next_warning = -math.inf

    def count(self, answer: Answer) -> None:
        """Count a report by its answer."""
        self._meter.progress_reported(answer.result)

    async def receive(self, report: Report) -> Answer:
        """Return the answer to a report. Never raises an ApiError."""
        claimed = read_claims(report.token)
        if claimed is None:
            return UNAUTHORIZED
        # First what costs nothing: somebody may send any number of forged tokens.
        sender = self._sender(claimed.pod, report)
        if isinstance(sender, Answer):
            return sender
        # A token that was not reviewed yet may be forged. It must not use up what the pod itself may send.
        limited = claimed.pod.uid if self._reviewer.is_remembered(claimed) else f"unreviewed {claimed.pod.uid}"
        if not self._limits.allow(limited):
            return LIMITED
        try:
            if not await self._reviewer.is_valid(claimed):
                return UNAUTHORIZED
        except ApiError as error:
            self._warn(claimed.pod, error)
            return UNAVAILABLE
        return self._accept(sender, report.body)

    def _warn(self, pod: PodIdentity, error: ApiError) -> None:
        """Log that tokens can't be reviewed, not for each report."""
        if self._clock.monotonic() >= self._next_warning:
            self._next_warning = self._clock.monotonic() + WARNING_SECONDS
            log.warning(
                "tokens of reports can't be reviewed; `create` of tokenreviews.authentication.k8s.io is needed",
                pod=str(pod.key),
                error=str(error),
            )

    def _sender(self, identity: PodIdentity, report: Report) -> _Sender | Answer:
        pod = self._informers.pods.objects.get(identity.key)
        if pod is None or pod.metadata.uid != identity.uid:
            return forbidden(f"the token's pod {identity.key} does not exist, or is not known here yet")
        job_id = self._informers.job_of(pod.metadata)
        job = None if job_id is None else self._informers.jobs[job_id[0]].objects.get(job_id[1])
        if job_id is None or job is None or job.owner_identity != pod.metadata.controller_identity:
            return forbidden(f"the token's pod {identity.key} belongs to no job that exists")
        kind, key = job_id
        plural = self._informers.frameworks[kind].resource.plural
        if (plural, key) != (report.plural, report.job):
            return forbidden(
                f"the token's pod {identity.key} belongs to {plural} {key}, not {report.plural} {report.job}"
            )
        return _Sender(pod=pod, kind=kind, job=job)

    def _accept(self, sender: _Sender, body: bytes) -> Answer:
        parsed = parse_report(body, self._clock.now())
        if parsed.problems:
            return Answer(status=422, result="invalid", message="; ".join(map(str, parsed.problems)))
        if parsed.progress is None:
            return Answer(status=200, result="empty", body={})
        found = replace(parsed.progress, pod_uid=sender.pod.metadata.uid)
        self.writer.submit(sender.kind, sender.job, found)
        return Answer(status=200, result="accepted", body={"trainerStatus": encode_trainer_status(found)})


class ReportLimits:
    """A token bucket for each pod, and one for what claims to be of it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By sender: the reports that it may send, and the time as of which."""

    def allow(self, sender: str) -> bool:
        """Whether the sender may send a report now; counts it if so."""
        now = self._clock.monotonic()
        left, as_of = self._buckets.get(sender, (BURST, now))
        left = min(BURST, left + (now - as_of) * REPORTS_PER_SECOND)
        is_allowed = left >= 1.0
        self._buckets[sender] = left - 1.0 if is_allowed else left, now
        self._buckets.move_to_end(sender)
        if len(self._buckets) > MAX_SENDERS:
            self._buckets.popitem(last=False)
        return is_allowed
