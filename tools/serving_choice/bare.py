"""FastAPI on one uvicorn, the engine in a thread of the same process. See common.py."""

import asyncio
from contextlib import suppress

import uvicorn
from common import MAX_BATCH, MAX_WAIT_S, Model, arguments
from fastapi import FastAPI, Request, Response

given = arguments()
app, model = FastAPI(), Model(given.plan)
waiting: asyncio.Queue[tuple[bytes, asyncio.Future[bytes]]] = asyncio.Queue()
tasks: set[asyncio.Task[None]] = set()


async def work() -> None:
    """Gather and run batches."""
    now = asyncio.get_running_loop().time
    while True:
        batch = [await waiting.get()]
        deadline = now() + MAX_WAIT_S
        while len(batch) < MAX_BATCH and (left := deadline - now()) > 0:
            with suppress(asyncio.TimeoutError):
                batch.append(await asyncio.wait_for(waiting.get(), left))
        answers = await asyncio.to_thread(model.run, [body for body, _ in batch])
        for (_, future), answer in zip(batch, answers, strict=True):
            future.set_result(answer)


@app.post("/v1/coeffs")
async def coeffs(request: Request) -> Response:
    """Crops to coefficients."""
    if not tasks:
        tasks.add(asyncio.create_task(work()))
    future = asyncio.get_running_loop().create_future()
    waiting.put_nowait((await request.body(), future))
    return Response(await future, media_type="application/octet-stream")


uvicorn.run(app, port=given.port, log_level="warning", access_log=False)
