"""LitServe: one worker, its batching, its quick queue. It takes no raw body, hence a form. See common.py."""

import litserve
from common import MAX_BATCH, MAX_WAIT_S, Model, arguments
from fastapi import Request, Response


class Api(litserve.LitAPI):
    """The engine's worker."""

    def __init__(self, plan: str) -> None:
        super().__init__(max_batch_size=MAX_BATCH, batch_timeout=MAX_WAIT_S, api_path="/v1/coeffs")
        self.plan = plan

    def setup(self, device: str) -> None:
        """In the worker."""
        self.model = Model(self.plan)

    def decode_request(self, request: Request) -> bytes:
        """The form's file."""
        return request["crops"].file.read()

    def batch(self, inputs: list[bytes]) -> list[bytes]:
        """As it is."""
        return inputs

    def predict(self, bodies: list[bytes]) -> list[bytes]:
        """A batch."""
        return self.model.run(bodies)

    def unbatch(self, output: list[bytes]) -> list[bytes]:
        """As it is."""
        return output

    def encode_response(self, output: bytes) -> Response:
        """Raw."""
        return Response(output, media_type="application/octet-stream")


if __name__ == "__main__":
    given = arguments()
    server = litserve.LitServer(Api(given.plan), accelerator="cpu", timeout=60, fast_queue=True)
    server.run(port=given.port, generate_client_file=False, log_level="warning", access_log=False)
