"""What a client has done, in numbers: as a dict, as Prometheus' text, and through both libraries."""

import asyncio
import sys
import threading

import pytest
from conftest import wait_until

import polylatch
from polylatch.metrics import PrometheusCollector, observe_with_opentelemetry

CODES = {"expired", "broken", "hold_limit", "no_progress"}


def story(client, name):
    """Two acquisitions, one of which is lost; one that is refused, one whose wait is over, and an error."""
    with client.lock(name):
        assert client.lock(name).try_acquire() is None
        with pytest.raises(polylatch.WaitTimeout):
            client.lock(name, wait=0.05).acquire()
        assert client.stats()["held"] == 1
    guard = client.lock(name, lease=0.2, renew=False).acquire()
    assert guard.lost.wait(60)


def check(stats, backend):
    assert stats["backend"] == backend
    outcomes = {
        outcome: stats[outcome] for outcome in ("acquired", "refused", "timed_out", "failed", "cancelled")
    }
    assert outcomes == {"acquired": 2, "refused": 1, "timed_out": 1, "failed": 0, "cancelled": 0}
    assert (stats["waiting"], stats["held"]) == (0, 0)
    assert stats["losses"]["expired"] == 1 and sum(stats["losses"].values()) == 1
    assert CODES <= set(stats["losses"])
    assert stats["errors"]["wait_timeout"] == 1 and stats["errors"]["backend_unavailable"] == 0
    for name in ("wait", "hold"):
        histogram = stats[name]
        assert len(histogram["counts"]) == len(histogram["bounds"]) + 1
        assert sum(histogram["counts"]) == histogram["count"] == 2
        assert histogram["bounds"] == sorted(histogram["bounds"])
    assert 0.19 < stats["hold"]["sum"] < 60


def test_numbers_tell_a_small_story(url, name):
    with polylatch.connect(url) as client:
        empty = client.stats()
        assert (empty["acquired"], empty["wait"]["sum"]) == (0, 0)
        story(client, name)
        check(client.stats(), client.capability["backend"])


def test_a_waiter_is_counted_while_it_waits(url, name):
    with polylatch.connect(url) as client:
        got = []
        with client.lock(name):
            waiter = threading.Thread(target=lambda: got.append(client.lock(name).acquire()))
            waiter.start()
            wait_until(lambda: client.stats()["waiting"] == 1, "it is counted")
        waiter.join()
        assert client.stats()["waiting"] == 0
        got.pop().release()


def test_a_coroutine_program_has_them_too(url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            async with client.lock(name):
                assert client.stats()["held"] == 1
            assert "polylatch_held{" in client.prometheus()
            return client.stats()

    assert asyncio.run(main())["acquired"] == 1


def test_prometheus_text_has_the_same_numbers(redis_url, name):
    from prometheus_client.parser import text_string_to_metric_families

    with polylatch.connect(redis_url) as client:
        story(client, name)
        text = client.prometheus({"service": 'a "shop"\\'})
        families = {family.name: family for family in text_string_to_metric_families(text)}
        (lost,) = [one for one in families["polylatch_losses"].samples if one.labels["reason"] == "expired"]
        assert lost.value == 1
        assert lost.labels == {"backend": "redis", "reason": "expired", "service": 'a "shop"\\'}
        with pytest.raises(polylatch.InvalidArgument, match="le"):
            client.prometheus({"le": "x"})


def test_a_collector_hands_them_to_prometheus_client(redis_url, name):
    from prometheus_client import CollectorRegistry, generate_latest

    with polylatch.connect(redis_url) as one, polylatch.connect(redis_url) as other:
        registry = CollectorRegistry()
        registry.register(PrometheusCollector(one, other))

        def value(name, **labels):
            return registry.get_sample_value(name, {"backend": "redis", **labels})

        assert value("polylatch_acquisitions_total", outcome="acquired") == 0
        story(one, name)
        with other.lock(name):
            assert value("polylatch_held") == 1
        assert value("polylatch_acquisitions_total", outcome="acquired") == 3
        assert value("polylatch_acquisitions_total", outcome="timed_out") == 1
        assert value("polylatch_losses_total", reason="expired") == 1
        assert value("polylatch_errors_total", code="wait_timeout") == 1
        assert value("polylatch_held_seconds_bucket", le="+Inf") == value("polylatch_held_seconds_count") == 3
        stats = (one.stats(), other.stats())
        assert value("polylatch_held_seconds_sum") == pytest.approx(
            sum(each["hold"]["sum"] for each in stats)
        )
        below = sum(sum(each["hold"]["counts"][:8]) for each in stats)
        assert value("polylatch_held_seconds_bucket", le="0.1") == below
        # The same names and labels as the client's own text.
        names = {
            line.split("{")[0] for line in generate_latest(registry).decode().splitlines() if line[0] != "#"
        }
        assert names == {line.split("{")[0] for line in one.prometheus().splitlines() if line[0] != "#"}


def test_instruments_hand_them_to_opentelemetry(redis_url, name):
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with polylatch.connect(redis_url) as client:
        observe_with_opentelemetry(provider.get_meter("test"), client)
        story(client, name)
        (resource,) = reader.get_metrics_data().resource_metrics
        (scope,) = resource.scope_metrics
        points = {metric.name: metric.data.data_points for metric in scope.metrics}

        def value(name, **labels):
            wanted = {"backend": "redis", **labels}
            (point,) = [point for point in points[name] if dict(point.attributes) == wanted]
            return point.value

        assert value("polylatch_acquisitions", outcome="acquired") == 2
        assert value("polylatch_losses", reason="expired") == 1
        assert value("polylatch_held") == 0
        assert value("polylatch_wait_seconds_count", outcome="acquired") == 2
        assert value("polylatch_wait_seconds_bucket", outcome="acquired", le="+Inf") == 2
        assert value("polylatch_held_seconds_sum") == pytest.approx(client.stats()["hold"]["sum"])
    provider.shutdown()


def test_a_library_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    with pytest.raises(ImportError, match="pip install prometheus-client"):
        PrometheusCollector()
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(ImportError, match="pip install opentelemetry-api"):
        observe_with_opentelemetry(None)
