"""Creates Prometheus instruments from metric definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tarragon.operator.metrics.definitions import MetricDefinition

disable_created_metrics()  # type: ignore[no-untyped-call]  # halves the number of series; `_created` is not used


def counter(definition: MetricDefinition, registry: CollectorRegistry) -> Counter:
    return Counter(definition.name, definition.help, definition.labels, registry=registry)


def gauge(definition: MetricDefinition, registry: CollectorRegistry) -> Gauge:
    return Gauge(definition.name, definition.help, definition.labels, registry=registry)


def histogram(definition: MetricDefinition, registry: CollectorRegistry) -> Histogram:
    return Histogram(definition.name, definition.help, definition.labels, buckets=definition.buckets, registry=registry)


def gauge_family(definition: MetricDefinition) -> GaugeMetricFamily:
    return GaugeMetricFamily(definition.name, definition.help, labels=definition.labels)


class OnScrapeCollector(Collector):
    """A collector that computes its metrics at each scrape."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()
