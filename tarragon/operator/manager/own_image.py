"""Finds the image of the operator's own pod: init containers that bring a tool of ours run the same one.

A Deployment says only there which image it has, and `kubectl set image` and kustomize change it only there.
"""

from __future__ import annotations

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


async def read_own_image(cluster: Client, clock: Clock, pod: Key) -> str:
    """Return the image of the operator's container; empty if there is no such pod, or it may not be read."""
    while True:
        try:
            containers = (await cluster.get(PODS, pod)).spec.containers
        except (NotFound, Forbidden) as error:
            log.warning("the operator's own image is not known", error=str(error), remedy="--kubectl-delivery-image")
            return ""
        except ApiError as error:
            log.debug("the operator's own pod was not read", error=str(error))
            await clock.sleep(max(RETRY_SECONDS, error.retry_after))
        else:
            own = [each for each in containers if each.name == OWN_CONTAINER]
            return (own or containers)[0].image
