"""Caches that log their errors."""

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
    """A cache that logs watch errors and objects that cannot be decoded, which its subscribers never see."""
    cache = Cache(cluster, resource, clock, selection, jitter=jitter)
    cache.on_trouble(_log)
    cache.on_recovery(_log_end)
    return cache


def _log(trouble: Trouble) -> None:
    log.warning("a controller's cache cannot follow the API", trouble=str(trouble))


def _log_end(recovery: Recovery) -> None:
    log.info("the cache follows the API again", over=str(recovery))
