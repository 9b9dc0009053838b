"""The TensorBoard beside a job: one pod and one service, and no replica. It holds nothing up, and fails nothing.

It is a pod rather than a Deployment so that the operator needs no right to more kinds than it has; what a Deployment
would do for it, making it anew when it is gone, is done here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tarragon.job.model import TensorBoard
from tarragon.job.phase import Phase
from tarragon.kube.core import PODS, SERVICES, Pod, Service
from tarragon.kube.meta import JsonObject, Key
from tarragon.kube.podtemplate import main_container
from tarragon.plan.lifecycle.graceful_eviction import delete_pod
from tarragon.plan.lifecycle.pod_control import delete_service, is_awaiting_a_pod
from tarragon.plan.objects.desired import Blueprint, metadata
from tarragon.plan.view.actions import Create, Delete, Step
from tarragon.plan.view.job_view import Scene, is_of

CONTAINER = "tensorboard"
PORT = 6006
SERVICE_PORT = 80
PORT_NAME = "tb-port"
ADDRESS = "TENSORBOARD_ADDRESS"
AGAIN_SECONDS = 60.0
"""Between two pods, when the first one ended by itself: it was evicted, or its node would not have it."""

# The address is the service's, and its port no other than 80, but where a service is a port of the machine itself.
# Not every image has the command; the module is there wherever TensorBoard is.
_SCRIPT = f"""\
case ${ADDRESS} in
  *:{SERVICE_PORT}) set -- --host 0.0.0.0 --port {PORT} "$@" ;;
  *) set -- --host "${{{ADDRESS}%:*}}" --port "${{{ADDRESS}##*:}}" "$@" ;;
esac
command -v tensorboard > /dev/null 2>&1 && exec tensorboard "$@"
exec "$(command -v python || command -v python3)" -m tensorboard.main "$@"
"""
_AS_WHO_DECIDES = ("imagePullSecrets", "securityContext", "serviceAccountName", "tolerations", "nodeSelector")
_OWN = "tarragon.dev/"
_NOT_FOR_IT = frozenset({"tarragon.dev/gpus"})

NOT_WANTED = "no TensorBoard is asked for any more"
ENDED = "it has ended, and is replaced by a new one"


def beside(scene: Scene, step: Step) -> Step:
    """The step, with what is to be done about the TensorBoard. Of a job that can't be read nobody knows."""
    job_goes = any(delete.resource == scene.framework.resource for delete in step.deletes)
    if scene.is_refused or job_goes:
        return step
    missing = list(_creates(scene))
    held_back_until = scene.observed.to_ask_again.get(_name(scene), scene.now) if missing else scene.now
    is_held_back = held_back_until > scene.now
    wakes = [step.wake_at, _again_at(scene), held_back_until if is_held_back else None]
    return replace(
        step,
        deletes=[*step.deletes, *_deletes(scene)],
        creates=[*step.creates, *([] if is_held_back else missing)],
        wake_at=min((at for at in wakes if at is not None), default=None),
    )


def services(plan: Blueprint) -> Iterator[JsonObject]:
    """Its own, of a job that asks for it."""
    if plan.job.tensorboard is not None:
        yield _service(plan, plan.job.tensorboard)


def pods(plan: Blueprint) -> Iterator[JsonObject]:
    if plan.job.tensorboard is not None:
        yield _pod(plan, plan.job.tensorboard)


def _deletes(scene: Scene) -> Iterator[Delete]:
    pod, service = _pod_there(scene), _service_there(scene)
    if _is_wanted(scene):
        if pod is not None and pod.is_finished and not pod.metadata.is_ending and _again_at(scene) is None:
            yield delete_pod(pod, ENDED)
        return
    if pod is not None and not pod.metadata.is_ending:
        yield delete_pod(pod, NOT_WANTED)
    if service is not None and not service.metadata.is_ending:
        yield delete_service(service, NOT_WANTED)


def _creates(scene: Scene) -> Iterator[Create]:
    """When all replicas have been made: a quota's last pod is for them."""
    board = scene.job.tensorboard
    if board is None or not _is_wanted(scene) or not _may_begin(scene):
        return
    key = Key(scene.job.key.namespace, _name(scene))
    if key not in scene.observed.services_there:
        yield Create(resource=SERVICES, body=_service(scene.blueprint, board), may_be_refused=True)
    if key not in scene.observed.pods_there:
        yield Create(resource=PODS, body=_pod(scene.blueprint, board), may_be_refused=True)


def _is_wanted(scene: Scene) -> bool:
    board = scene.job.tensorboard
    return board is not None and not (board.ends_with_job and scene.before.phase.is_final)


def _may_begin(scene: Scene) -> bool:
    if scene.before.phase.is_final:
        return scene.before.started is not None
    has_begun = scene.may_run and scene.before.phase is not Phase.SUSPENDED and not scene.job.run_policy.suspend
    return has_begun and not is_awaiting_a_pod(scene, scene.before)


def _again_at(scene: Scene) -> dt.datetime | None:
    """When a pod that ended by itself is replaced; None for at once, or where there is none."""
    pod = _pod_there(scene)
    if pod is None or not pod.is_finished or pod.metadata.creation_timestamp is None:
        return None
    at = pod.metadata.creation_timestamp + dt.timedelta(seconds=AGAIN_SECONDS)
    return at if at > scene.now else None


def _name(plan: Scene | Blueprint) -> str:
    return plan.dialect.names.tensorboard(plan.job)


def _pod_there(scene: Scene) -> Pod | None:
    name, owner = _name(scene), scene.job.as_owner
    return next((pod for pod in scene.observed.pods if pod.metadata.name == name and is_of(pod, owner)), None)


def _service_there(scene: Scene) -> Service | None:
    name, owner = _name(scene), scene.job.as_owner
    owned = (service for service in scene.observed.services if is_of(service, owner))
    return next((service for service in owned if service.metadata.name == name), None)


def _labels(plan: Blueprint) -> dict[str, str]:
    """Of the job, but of no replica type: whoever counts replicas passes it over."""
    return {**plan.dialect.selector(plan.job), "app": CONTAINER}


def _service(plan: Blueprint, board: TensorBoard) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(plan, _name(plan), _labels(plan), {}),
        "spec": {
            "type": board.service_type,
            "selector": _labels(plan),
            "ports": [{"name": PORT_NAME, "port": SERVICE_PORT, "targetPort": PORT}],
        },
    }


def _pod(plan: Blueprint, board: TensorBoard) -> JsonObject:
    """Without a node: whoever schedules pods that are of no gang finds one."""
    address = f"{_name(plan)}.{plan.job.key.namespace}.svc:{SERVICE_PORT}"
    container: JsonObject = {
        "name": CONTAINER,
        "image": board.image,
        "command": ["sh", "-c", _SCRIPT, CONTAINER, "--logdir", board.log_dir],
        "env": [{"name": ADDRESS, "value": address}],
        "ports": [{"name": PORT_NAME, "containerPort": PORT}],
        "volumeMounts": list(board.mounts),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **_as_its_container(plan),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(plan, _name(plan), _labels(plan), _annotations(plan)),
        "spec": {
            **_as_who_decides(plan),
            "restartPolicy": "Always",
            "containers": [container],
            "volumes": list(board.volumes),
        },
    }


def _template(plan: Blueprint) -> JsonObject:
    chief = plan.job.chief
    group = plan.job.group(chief.type) if chief is not None else None
    return group.template if group is not None else {}


def _annotations(plan: Blueprint) -> Mapping[str, str]:
    """What tells a node of processes where folders and environments are, as for the replica that decides."""
    written = _template(plan).get("metadata", {}).get("annotations", {})
    return {name: value for name, value in written.items() if name.startswith(_OWN) and name not in _NOT_FOR_IT}


def _as_who_decides(plan: Blueprint) -> JsonObject:
    """What it takes to pull the image, and to run where that replica may and read the files that it writes."""
    spec = _template(plan).get("spec", {})
    return {name: spec[name] for name in _AS_WHO_DECIDES if name in spec}


def _as_its_container(plan: Blueprint) -> JsonObject:
    """A namespace that takes restricted pods only takes this one, too, if it takes the replica's."""
    main = main_container(_template(plan), plan.framework.main_container) or {}
    context = main.get("securityContext")
    return {} if context is None else {"securityContext": context}
