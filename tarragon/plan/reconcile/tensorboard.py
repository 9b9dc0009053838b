"""The TensorBoard of a job: one pod and one service. It is no replica: it never delays the job or makes it fail.

It is a pod rather than a Deployment so that the operator needs no permissions for further kinds; recreating a pod that
is gone, which a Deployment would do, is done here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tarragon.job.model import TensorBoardSpec
from tarragon.job.phase import Phase
from tarragon.kube.core import PODS, SERVICES, Pod, Service
from tarragon.kube.meta import JsonObject, Key
from tarragon.kube.pod_validation import main_container
from tarragon.plan.lifecycle.graceful_eviction import delete_pod
from tarragon.plan.lifecycle.pod_control import delete_service, has_missing_objects, prerequisites
from tarragon.plan.objects.desired import JobBlueprint, build_metadata
from tarragon.plan.view.actions import Actions, Create, Delete
from tarragon.plan.view.job_view import JobView, is_controlled_by

CONTAINER = "tensorboard"
PORT = 6006
SERVICE_PORT = 80
PORT_NAME = "tb-port"
ADDRESS = "TENSORBOARD_ADDRESS"
RECREATE_SECONDS = 60.0
"""Time between two pods when the first one finished by itself: it was evicted, or its node rejected it."""

# The address is that of the service, with port 80, except where a service is a port of the machine itself.
# Not every image has the command; the module exists wherever TensorBoard is installed.
_SCRIPT = f"""\
case ${ADDRESS} in
  *:{SERVICE_PORT}) set -- --host 0.0.0.0 --port {PORT} "$@" ;;
  *) set -- --host "${{{ADDRESS}%:*}}" --port "${{{ADDRESS}##*:}}" "$@" ;;
esac
command -v tensorboard > /dev/null 2>&1 && exec tensorboard "$@"
exec "$(command -v python || command -v python3)" -m tensorboard.main "$@"
"""
_COPIED_POD_FIELDS = ("imagePullSecrets", "securityContext", "serviceAccountName", "tolerations", "nodeSelector")
_OWN_PREFIX = "tarragon.dev/"
_NOT_COPIED = frozenset({"tarragon.dev/gpus"})

NOT_WANTED = "the job has no TensorBoard any more"
ENDED = "the pod has finished and is replaced"


def with_tensorboard_actions(view: JobView, step: Actions) -> Actions:
    """Return the step with the actions for the job's TensorBoard added. An invalid job's TensorBoard is left as is."""
    job_goes = any(delete.resource == view.framework.resource for delete in step.deletes)
    if view.is_spec_invalid or job_goes:
        return step
    missing = list(_creates(view))
    retry_at = view.observed.optional_retry_at.get(_name(view), view.now) if missing else view.now
    is_backing_off = retry_at > view.now
    wakes = [step.requeue_at, _recreate_at(view), retry_at if is_backing_off else None]
    return replace(
        step,
        deletes=[*step.deletes, *_deletes(view)],
        creates=[*step.creates, *([] if is_backing_off else missing)],
        requeue_at=min((at for at in wakes if at is not None), default=None),
    )


def build_tensorboard_services(plan: JobBlueprint) -> Iterator[JsonObject]:
    """Yield the TensorBoard's service if the job has a TensorBoard."""
    if plan.job.tensorboard is not None:
        yield _service(plan, plan.job.tensorboard)


def build_tensorboard_pods(plan: JobBlueprint) -> Iterator[JsonObject]:
    if plan.job.tensorboard is not None:
        yield _pod(plan, plan.job.tensorboard)


def _deletes(view: JobView) -> Iterator[Delete]:
    pod, service = _existing_pod(view), _existing_service(view)
    if _is_wanted(view):
        if pod is not None and pod.is_finished and not pod.metadata.is_being_deleted and _recreate_at(view) is None:
            yield delete_pod(pod, ENDED)
        return
    if pod is not None and not pod.metadata.is_being_deleted:
        yield delete_pod(pod, NOT_WANTED)
    if service is not None and not service.metadata.is_being_deleted:
        yield delete_service(service, NOT_WANTED)


def _creates(view: JobView) -> Iterator[Create]:
    """Yield what is missing once all replicas have their pods: the last pod of a quota is for a replica."""
    board = view.job.tensorboard
    if board is None or not _is_wanted(view) or not _may_start(view):
        return
    key = Key(view.job.key.namespace, _name(view))
    if key not in view.observed.services_by_key:
        yield Create(resource=SERVICES, body=_service(view.blueprint, board), is_optional=True)
    if key not in view.observed.pods_by_key:
        yield Create(resource=PODS, body=_pod(view.blueprint, board), is_optional=True)


def _is_wanted(view: JobView) -> bool:
    board = view.job.tensorboard
    return board is not None and not (board.ends_with_job and view.recorded_status.phase.is_final)


def _may_start(view: JobView) -> bool:
    if view.recorded_status.phase.is_final:
        return view.recorded_status.start_time is not None
    may_run_now = view.may_run and view.recorded_status.phase is not Phase.SUSPENDED and not view.job.run_policy.suspend
    status = view.recorded_status
    return may_run_now and not has_missing_objects(view, status) and not any(prerequisites(view, status))


def _recreate_at(view: JobView) -> dt.datetime | None:
    """Return when a pod that finished by itself is replaced; None for now, or where there is no such pod."""
    pod = _existing_pod(view)
    if pod is None or not pod.is_finished or pod.metadata.creation_timestamp is None:
        return None
    recreated_at = pod.metadata.creation_timestamp + dt.timedelta(seconds=RECREATE_SECONDS)
    return recreated_at if recreated_at > view.now else None


def _name(plan: JobView | JobBlueprint) -> str:
    return plan.dialect.names.tensorboard(plan.job)


def _existing_pod(view: JobView) -> Pod | None:
    name, owner = _name(view), view.job.owner_identity
    return next((pod for pod in view.observed.pods if pod.metadata.name == name and is_controlled_by(pod, owner)), None)


def _existing_service(view: JobView) -> Service | None:
    name, owner = _name(view), view.job.owner_identity
    owned = (service for service in view.observed.services if is_controlled_by(service, owner))
    return next((service for service in owned if service.metadata.name == name), None)


def _labels(plan: JobBlueprint) -> dict[str, str]:
    """Return the job's labels without a replica type, so that selectors for replicas do not match."""
    return {**plan.dialect.selector(plan.job), "app": CONTAINER}


def _service(plan: JobBlueprint, board: TensorBoardSpec) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": build_metadata(plan, _name(plan), _labels(plan), {}),
        "spec": {
            "type": board.service_type,
            "selector": _labels(plan),
            "ports": [{"name": PORT_NAME, "port": SERVICE_PORT, "targetPort": PORT}],
        },
    }


def _pod(plan: JobBlueprint, board: TensorBoardSpec) -> JsonObject:
    """Return the pod without a node: the default scheduler binds it."""
    address = f"{_name(plan)}.{plan.job.key.namespace}.svc:{SERVICE_PORT}"
    container: JsonObject = {
        "name": CONTAINER,
        "image": board.image,
        "command": ["sh", "-c", _SCRIPT, CONTAINER, "--logdir", board.log_dir],
        "env": [{"name": ADDRESS, "value": address}],
        "ports": [{"name": PORT_NAME, "containerPort": PORT}],
        "volumeMounts": list(board.volume_mounts),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **_copied_security_context(plan),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": build_metadata(plan, _name(plan), _labels(plan), _annotations(plan)),
        "spec": {
            **_copied_pod_fields(plan),
            "restartPolicy": "Always",
            "containers": [container],
            "volumes": list(board.volumes),
        },
    }


def _template(plan: JobBlueprint) -> JsonObject:
    chief = plan.job.chief
    group = plan.job.replica_spec(chief.type) if chief is not None else None
    return group.template if group is not None else {}


def _annotations(plan: JobBlueprint) -> Mapping[str, str]:
    """Return the annotations by which a process node finds folders and environments, copied from the chief replica."""
    template_annotations = _template(plan).get("metadata", {}).get("annotations", {})
    return {
        name: value
        for name, value in template_annotations.items()
        if name.startswith(_OWN_PREFIX) and name not in _NOT_COPIED
    }


def _copied_pod_fields(plan: JobBlueprint) -> JsonObject:
    """Return the pod fields copied from the chief: they let the pod pull its image, run and read the chief's files."""
    spec = _template(plan).get("spec", {})
    return {name: spec[name] for name in _COPIED_POD_FIELDS if name in spec}


def _copied_security_context(plan: JobBlueprint) -> JsonObject:
    """Return the chief container's security context, so that a namespace that admits the chief admits this pod."""
    main = main_container(_template(plan), plan.framework.main_container) or {}
    context = main.get("securityContext")
    return {} if context is None else {"securityContext": context}
