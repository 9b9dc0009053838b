"""Caches that log their errors."""

from __future__ import annotations

import random
from typing import TypeVar

import structlog

from tarragon.base.clock import Clock
from tarragon.client.informer.cache_reader import CacheError, CacheRecovery
from tarragon.client.informer.informer import Informer
from tarragon.client.port import ALL_OBJECTS, Client, Selector
from tarragon.kube.meta import Resource

T = TypeVar("T")

log = structlog.get_logger(__name__)


def logged_cache(
    cluster: Client,
    resource: Resource[T],
    clock: Clock,
    jitter: random.Random,
    selection: Selector = ALL_OBJECTS,
) -> Informer[T]:
    """A cache that logs watch errors and objects that cannot be decoded, which its subscribers never see."""
    cache = Informer(cluster, resource, clock, selection, jitter=jitter)
    cache.on_error(_log)
    cache.on_recovery(_log_end)
    return cache


def _log(trouble: CacheError) -> None:
    log.warning("a controller's cache cannot follow the API", trouble=str(trouble))


def _log_end(recovery: CacheRecovery) -> None:
    log.info("the cache follows the API again", over=str(recovery))
