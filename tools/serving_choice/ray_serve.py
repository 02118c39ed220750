"""Ray Serve: its proxy, one replica, its batching. See common.py."""

import asyncio
import signal

import ray
from common import MAX_BATCH, MAX_WAIT_S, Model, arguments
from fastapi import FastAPI, Request, Response
from ray import serve

given = arguments()
app = FastAPI()


@serve.deployment(max_ongoing_requests=1000, ray_actor_options={"num_cpus": 0})
@serve.ingress(app)
class Server:
    """One replica."""

    def __init__(self, plan: str) -> None:
        self.model = Model(plan)

    @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=MAX_WAIT_S)
    async def run(self, bodies: list[bytes]) -> list[bytes]:
        """A batch."""
        return await asyncio.to_thread(self.model.run, bodies)

    @app.post("/v1/coeffs")
    async def coeffs(self, request: Request) -> Response:
        """Crops to coefficients."""
        return Response(await self.run(await request.body()), media_type="application/octet-stream")


ray.init(include_dashboard=False, log_to_driver=False)
serve.start(http_options={"port": given.port})
serve.run(Server.bind(given.plan))
signal.sigwait({signal.SIGTERM, signal.SIGINT})
serve.shutdown()
ray.shutdown()
