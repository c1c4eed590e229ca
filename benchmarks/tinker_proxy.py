"""What the Tinker proxy adds to a request: the same requests sent directly and through a hub, taking turns.

    python -m benchmarks.tinker_proxy [REQUESTS]

Prints the median and the 99th percentile of both and of their difference, and the load of the machine. The service is a
process of its own that answers at once, so that the difference is the cost of the proxy, its recording included.
"""

from __future__ import annotations

import http.client
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.spawn import environment

SERVICE = """
import asyncio
ANSWER = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: 18\\r\\n\\r\\n"
ANSWER += b'{"request_id":"r"}'
async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            size = [line for line in head.lower().split(b"\\r\\n") if line.startswith(b"content-length:")]
            await reader.readexactly(int(size[0].split(b":")[1]) if size else 0)
            writer.write(ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
BODY = b'{"model_id":"session:train:0","prompt":"' + b"x" * 4000 + b'"}'
_LINE = re.compile(r"stepscope hub: http://[^ ]+:(\d+) ")


def main() -> int:
    """Measure, print, and fail when the median of the difference is 2 ms or more."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory() as folder:
        service = subprocess.Popen([sys.executable, "-c", SERVICE], stdout=subprocess.PIPE, text=True)
        assert service.stdout is not None
        port = int(service.stdout.readline())
        hub = subprocess.Popen(
            [sys.executable, "-m", "stepscope", "hub", "--home", f"{folder}/hub", "--port", "0", "--grpc-port", "0",
             "--tinker-upstream", f"http://127.0.0.1:{port}"],
            stdout=subprocess.PIPE, text=True, env=environment(Path(folder)),
        )  # fmt: skip
        try:
            assert hub.stdout is not None
            found = _LINE.match(hub.stdout.readline())
            assert found is not None
            direct, proxied = measure(port, int(found[1]), count)
        finally:
            hub.terminate()
            hub.wait(60)
            service.kill()
            service.wait()
    return report(direct, proxied)


def measure(service: int, hub: int, count: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each request, directly and through the hub."""
    connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for port in (service, hub)]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(count + 50):
        for connection, found in zip(connections, times, strict=True):
            began = time.perf_counter()
            connection.request("POST", "/api/v1/asample", BODY, {"content-type": "application/json"})
            connection.getresponse().read()
            found.append((time.perf_counter() - began) * 1000)
    for connection in connections:
        connection.close()
    return times[0][50:], times[1][50:]


def report(direct: list[float], proxied: list[float]) -> int:
    """Print what was measured; 1 when the proxy adds 2 ms or more."""
    added = [after - before for before, after in zip(direct, proxied, strict=True)]
    for name, values in (("direct", direct), ("through the hub", proxied), ("added", added)):
        cuts = statistics.quantiles(values, n=100)
        print(f"{name:<16} p50 {statistics.median(values):7.3f} ms   p99 {cuts[98]:7.3f} ms")
    print(f"{len(added)} requests of {len(BODY)} bytes; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return int(statistics.median(added) >= 2.0)


if __name__ == "__main__":
    sys.exit(main())
