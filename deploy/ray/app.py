"""A Ray Serve application whose replicas each run `siskin serve` and pass requests on to it.

    cd deploy/ray && MODEL=/models/smollm2.gguf serve run app:app

Ray adds and removes replicas by the number of requests that run. If other machines reach its proxy, the servers need
`--api-key-file`, and for their chat page `--allow-origin` with the address of the proxy. Settings are environment
variables:

    SISKIN          the program, `siskin`
    MODEL           the model file
    ARGUMENTS       further arguments of `siskin serve`, such as `--context 4096 --parallel 8`
    MIN_REPLICAS    1
    MAX_REPLICAS    2
    TARGET          the number of running requests per replica above which one is added, 4
    CPUS            the number of processors of a replica, 1
    UPSCALE_DELAY, DOWNSCALE_DELAY
                    how long more, or fewer, replicas must be needed, in seconds: 5 and 300
"""

import asyncio
import ctypes
import os
import re
import shlex
import signal

import httpx
from ray import serve
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

SISKIN = os.environ.get("SISKIN", "siskin")
MODEL = os.environ["MODEL"]
ARGUMENTS = shlex.split(os.environ.get("ARGUMENTS", ""))
CPUS = float(os.environ.get("CPUS", "1"))
TARGET = float(os.environ.get("TARGET", "4"))
# Headers of a connection, which each side has its own of.
OF_CONNECTION = {"connection", "content-length", "host", "keep-alive", "transfer-encoding", "upgrade"}


def passed_on(headers):
    return [(name, value) for name, value in headers.items() if name.lower() not in OF_CONNECTION]


def end_with_replica():
    """Lets Linux end the child if the replica is killed."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


@serve.deployment(
    ray_actor_options={"num_cpus": CPUS},
    max_ongoing_requests=256,
    health_check_period_s=5,
    graceful_shutdown_timeout_s=60,
    autoscaling_config={
        "min_replicas": int(os.environ.get("MIN_REPLICAS", "1")),
        "max_replicas": int(os.environ.get("MAX_REPLICAS", "2")),
        "target_ongoing_requests": TARGET,
        "upscale_delay_s": float(os.environ.get("UPSCALE_DELAY", "5")),
        "downscale_delay_s": float(os.environ.get("DOWNSCALE_DELAY", "300")),
    },
)
class Replica:
    """A child process that serves the model on a free port, and a client of it."""

    async def __init__(self):
        command = [SISKIN, "serve", "--port", "0", "--threads", str(max(1, int(CPUS))), *ARGUMENTS, MODEL]
        self.process = await asyncio.create_subprocess_exec(
            *command, stderr=asyncio.subprocess.PIPE, preexec_fn=end_with_replica
        )
        async for line in self.process.stderr:
            if found := re.search(rb"http://\S+", line):
                break
        else:
            raise RuntimeError(f"{SISKIN} serve {MODEL} did not start")
        # Else the child blocks when the pipe is full.
        self.reader = asyncio.create_task(self.process.stderr.read())
        limits = httpx.Limits(max_connections=None)
        self.client = httpx.AsyncClient(base_url=found[0].decode(), timeout=None, limits=limits)

    async def check_health(self):
        """Ray replaces a replica for which this fails."""
        (await self.client.get("/health/live", timeout=10)).raise_for_status()

    async def __call__(self, request: Request) -> Response:
        sent = self.client.build_request(
            request.method,
            httpx.URL(path=request.url.path, query=request.url.query.encode()),
            headers=passed_on(request.headers),
            content=await request.body(),
        )
        response = await self.client.send(sent, stream=True)
        # A client that leaves ends this response, and with it the request to the child.
        return StreamingResponse(
            response.aiter_raw(),
            response.status_code,
            dict(passed_on(response.headers)),
            background=BackgroundTask(response.aclose),
        )

    async def __del__(self):
        """Ends the child after its running requests."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            await self.process.wait()


app = Replica.bind()
