"""An engine process whose GPU has no memory for large batches; there is no GPU here to run out of it."""

from __future__ import annotations

from typing import Any

from face3d_trt.errors import MissingError
from face3d_trt.reconstruct import engines

ROOM = 5  # rows


def serve(connection: Any, memory: Any, setup: Any) -> None:
    """The real process's main loop, with an engine that refuses as `runtime.cuda` does."""
    opened = engines.open_for

    def open_for(setup: engines.EngineSetup) -> Any:
        engine = opened(setup)
        submit = engine.submit

        def refusing(images: Any, **options: Any) -> Any:
            if len(images) > ROOM:
                raise MissingError("GPU 0 (NVIDIA H200) has too little memory: cuMemAlloc failed: out of memory")
            return submit(images, **options)

        engine.submit = refusing  # type: ignore[method-assign]
        return engine

    engines.open_for = open_for
    engines.serve(connection, memory, setup)
