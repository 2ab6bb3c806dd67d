"""The numbers of clients (:meth:`polylatch.Client.stats`) for Prometheus and OpenTelemetry.

    from prometheus_client import REGISTRY
    from polylatch.metrics import PrometheusCollector

    REGISTRY.register(PrometheusCollector(client))

Nothing is counted here, and nothing runs in between: the numbers are read when they are asked for. Those of
several clients of one kind of store are added up. The libraries are optional: ``prometheus-client`` and
``opentelemetry-api`` are imported when they are used first.

Metrics (in OpenTelemetry without ``_total``): ``polylatch_wait_seconds``, ``polylatch_held_seconds`` and
``polylatch_renewal_lag_seconds`` (histograms), ``polylatch_acquisitions_total`` by ``outcome``,
``polylatch_losses_total`` by ``reason``, ``polylatch_errors_total`` by ``code``, ``polylatch_waiting`` and
``polylatch_held`` (now). Each has the label ``backend``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Callable, Union

if TYPE_CHECKING:
    from ._aio import AsyncClient
    from ._polylatch import Client, Histogram, Stats

__all__ = ["PrometheusCollector", "observe_with_opentelemetry"]

_HISTOGRAMS: dict[str, tuple[str, dict[str, str], Callable[[Stats], Histogram]]] = {
    "polylatch_wait_seconds": (
        "Time from the call of acquire until the lock was held.",
        {"outcome": "acquired"},
        lambda stats: stats["wait"],
    ),
    "polylatch_held_seconds": (
        "Time from the grant of a lease to its release or loss.",
        {},
        lambda stats: stats["hold"],
    ),
    "polylatch_renewal_lag_seconds": (
        "Time from when a renewal was due until the store confirmed it.",
        {},
        lambda stats: stats["renewal_lag"],
    ),
}

_COUNTERS: dict[str, tuple[str, str, Callable[[Stats], dict[str, int]]]] = {
    "polylatch_acquisitions": (
        "Ended acquisitions, by outcome.",
        "outcome",
        lambda stats: {
            "acquired": stats["acquired"],
            "refused": stats["refused"],
            "timed_out": stats["timed_out"],
            "failed": stats["failed"],
            "cancelled": stats["cancelled"],
        },
    ),
    "polylatch_losses": ("Leases that were lost, by reason.", "reason", lambda stats: stats["losses"]),
    "polylatch_errors": ("Operations that failed, by error code.", "code", lambda stats: stats["errors"]),
}

_GAUGES: dict[str, tuple[str, Callable[[Stats], int]]] = {
    "polylatch_waiting": ("Acquisitions that are queued.", lambda stats: stats["waiting"]),
    "polylatch_held": ("Leases that are held.", lambda stats: stats["held"]),
}


class PrometheusCollector:
    """Hands the numbers of these clients to ``prometheus_client``: ``registry.register(…)``, once.

    Raises: :class:`ImportError` without ``prometheus-client``.
    """

    def __init__(self, *clients: Union[Client, AsyncClient]) -> None:
        self._families = _library("prometheus_client.core", "prometheus-client")
        self._clients = clients

    def collect(self) -> Iterator[Any]:
        """Yields the metrics as they are now."""
        numbers = _numbers(self._clients)
        for name, (text, labels, read) in _HISTOGRAMS.items():
            family = self._families.HistogramMetricFamily(name, text, labels=["backend", *labels])
            for stats in numbers:
                histogram = read(stats)
                family.add_metric(
                    [stats["backend"], *labels.values()], list(_cumulative(histogram)), histogram["sum"]
                )
            yield family
        for name, (text, label, counts) in _COUNTERS.items():
            family = self._families.CounterMetricFamily(name, text, labels=["backend", label])
            for stats in numbers:
                for code, count in counts(stats).items():
                    family.add_metric([stats["backend"], code], count)
            yield family
        for name, (text, now) in _GAUGES.items():
            family = self._families.GaugeMetricFamily(name, text, labels=["backend"])
            for stats in numbers:
                family.add_metric([stats["backend"]], now(stats))
            yield family


def observe_with_opentelemetry(meter: Any, *clients: Union[Client, AsyncClient]) -> None:
    """Makes observable instruments of this ``meter`` that tell the numbers of these clients.

    OpenTelemetry has no observable histograms, so each histogram is three counters, named as Prometheus does:
    ``…_seconds_sum``, ``…_seconds_count``, and ``…_seconds_bucket``, cumulative by the attribute ``le``.

    Raises: :class:`ImportError` without ``opentelemetry-api``.
    """
    observation = _library("opentelemetry.metrics", "opentelemetry-api").Observation

    def tells(read: Callable[[Stats], Iterable[tuple[dict[str, str], float]]]) -> list[Callable[[Any], Any]]:
        def tell(_options: Any) -> Iterator[Any]:
            for stats in _numbers(clients):
                for labels, value in read(stats):
                    yield observation(value, {"backend": stats["backend"], **labels})

        return [tell]

    for name, (text, labels, read) in _HISTOGRAMS.items():
        for suffix, unit, values in (
            ("sum", "s", _sum_of(read)),
            ("count", "1", _count_of(read)),
            ("bucket", "1", _buckets_of(read)),
        ):
            meter.create_observable_counter(
                f"{name}_{suffix}", tells(_labelled(labels, values)), unit=unit, description=text
            )
    for name, (text, label, counts) in _COUNTERS.items():
        meter.create_observable_counter(name, tells(_by(label, counts)), description=text)
    for name, (text, now) in _GAUGES.items():
        meter.create_observable_up_down_counter(name, tells(_now(now)), description=text)


_Values = Callable[["Stats"], Iterable[tuple[dict[str, str], float]]]


def _sum_of(read: Callable[[Stats], Histogram]) -> _Values:
    return lambda stats: [({}, read(stats)["sum"])]


def _count_of(read: Callable[[Stats], Histogram]) -> _Values:
    return lambda stats: [({}, read(stats)["count"])]


def _buckets_of(read: Callable[[Stats], Histogram]) -> _Values:
    return lambda stats: [({"le": bound}, count) for bound, count in _cumulative(read(stats))]


def _by(label: str, counts: Callable[[Stats], dict[str, int]]) -> _Values:
    return lambda stats: [({label: code}, count) for code, count in counts(stats).items()]


def _now(read: Callable[[Stats], int]) -> _Values:
    return lambda stats: [({}, read(stats))]


def _labelled(labels: dict[str, str], values: _Values) -> _Values:
    return lambda stats: [({**labels, **own}, value) for own, value in values(stats)]


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        message = f"this needs the package {package}, which is not installed: pip install {package}"
        raise ImportError(message) from error


def _cumulative(histogram: Histogram) -> Iterator[tuple[str, int]]:
    count = 0
    for bound, more in zip([*map(str, histogram["bounds"]), "+Inf"], histogram["counts"]):
        count += more
        yield bound, count


def _numbers(clients: Iterable[Union[Client, AsyncClient]]) -> list[Stats]:
    """The numbers by the kind of store."""
    by_backend: dict[str, Stats] = {}
    for client in clients:
        stats = client.stats()
        known = by_backend.get(stats["backend"])
        by_backend[stats["backend"]] = stats if known is None else _added(known, stats)
    return list(by_backend.values())


def _added(one: Stats, other: Stats) -> Stats:
    return {
        "backend": one["backend"],
        "wait": _joined(one["wait"], other["wait"]),
        "hold": _joined(one["hold"], other["hold"]),
        "renewal_lag": _joined(one["renewal_lag"], other["renewal_lag"]),
        "acquired": one["acquired"] + other["acquired"],
        "refused": one["refused"] + other["refused"],
        "timed_out": one["timed_out"] + other["timed_out"],
        "failed": one["failed"] + other["failed"],
        "cancelled": one["cancelled"] + other["cancelled"],
        "waiting": one["waiting"] + other["waiting"],
        "held": one["held"] + other["held"],
        "losses": {reason: count + other["losses"][reason] for reason, count in one["losses"].items()},
        "errors": {code: count + other["errors"][code] for code, count in one["errors"].items()},
    }


def _joined(one: Histogram, other: Histogram) -> Histogram:
    return {
        "bounds": one["bounds"],
        "counts": [mine + its for mine, its in zip(one["counts"], other["counts"])],
        "sum": one["sum"] + other["sum"],
        "count": one["count"] + other["count"],
    }
