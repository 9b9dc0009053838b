"""Finds the image of the operator's own pod: init containers that bring a tool of ours run the same one, and anchors of
GPUs do.

A Deployment says only there which image it has, and `kubectl set image` and kustomize change it only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError, Forbidden, NotFound
from tarragon.client.port import Client
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key

OWN_CONTAINER = "operator"
"""The operator's container in deploy/; a service mesh may add others before it."""
RETRY_SECONDS = 1.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OwnImage:
    """The image of the operator's container, and the Secrets with which its node pulled it."""

    name: str
    pull_secrets: Sequence[str] = ()


async def read_own_image(cluster: Client, clock: Clock, pod: Key) -> OwnImage | None:
    """Return the image of the operator's container; None if there is no such pod, or it may not be read."""
    while True:
        try:
            spec = (await cluster.get(PODS.with_model(dict), pod))["spec"]
        except (NotFound, Forbidden) as error:
            log.warning("the operator's own image is not known", error=str(error), remedy="--kubectl-delivery-image")
            return None
        except ApiError as error:
            log.debug("the operator's own pod was not read", error=str(error))
            await clock.sleep(max(RETRY_SECONDS, error.retry_after))
        else:
            own = [each for each in spec["containers"] if each["name"] == OWN_CONTAINER]
            secrets = [each["name"] for each in spec.get("imagePullSecrets") or () if each.get("name")]
            return OwnImage((own or spec["containers"])[0]["image"], secrets)
