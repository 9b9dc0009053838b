"""Caches whose troubles are logged."""

from __future__ import annotations

import random
from typing import TypeVar

import structlog

from tarragon.base.clock import Clock
from tarragon.client.informer.cache_reader import Recovery, Trouble
from tarragon.client.informer.reflector import Cache
from tarragon.client.port import EVERYTHING, Cluster, Selection
from tarragon.kube.meta import Resource

T = TypeVar("T")

log = structlog.get_logger(__name__)


def logged_cache(
    cluster: Cluster,
    resource: Resource[T],
    clock: Clock,
    jitter: random.Random,
    selection: Selection = EVERYTHING,
) -> Cache[T]:
    """An object that can't be read, or a watch that fails, is left out by whoever follows it: somebody must say so."""
    cache = Cache(cluster, resource, clock, selection, jitter=jitter)
    cache.on_trouble(_log)
    cache.on_recovery(_log_end)
    return cache


def _log(trouble: Trouble) -> None:
    log.warning("a part of the cluster can't follow the API", trouble=str(trouble))


def _log_end(recovery: Recovery) -> None:
    log.info("that part of the cluster follows the API again", over=str(recovery))
