"""What the service counts, in Prometheus' format."""

from __future__ import annotations

import time
from collections.abc import Callable, Container

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TIMES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
GONE = 499  # stands for clients that closed the connection before the answer


class Metrics:
    def __init__(self, waiting: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        ProcessCollector(registry=own)
        self.requests = Counter("lagr_requests", "Requests answered", ("path", "status"), registry=own)
        self.seconds = Histogram("lagr_request_seconds", "Time of an answer", ("path",), registry=own, buckets=TIMES)
        self.batches = Histogram("lagr_batch_sentences", "Sentences parsed together", registry=own, buckets=SIZES)
        self.batch_seconds = Histogram("lagr_batch_seconds", "Time of the model", registry=own, buckets=TIMES)
        Gauge("lagr_waiting_sentences", "Sentences that wait", registry=own).set_function(waiting)

    def batch(self, size: int, seconds: float) -> None:
        self.batches.observe(size)
        self.batch_seconds.observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class Measured:
    """Counts every request by its path and status. Paths that the service doesn't have count as one."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Callable[[], Container[str]]) -> None:
        self.app, self.metrics, self.paths = app, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        status, began = GONE, time.perf_counter()

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, note_status)
        finally:
            path = scope["path"] if scope["path"] in self.paths() else "other"
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - began)
        return None
