"""The model in PyTorch at its fastest, for those who cannot use TensorRT. docs/amp.md says which options to take."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from face3d_trt.errors import EngineError, InputError, UsageError
from face3d_trt.model.captured import Graphs
from face3d_trt.model.fast_options import CAPTURES, FastOptions, find_device
from face3d_trt.model.load import load_model
from face3d_trt.model.mixed import Mixed, float32_products
from face3d_trt.model.staging import DEPTH, Lane, Lanes
from face3d_trt.names import COEFFS, CROP, MAX_SIDE, MIN_SIDE, TEXTURE, VERTEX

if TYPE_CHECKING:
    import numpy.typing as npt

    from face3d_trt.model.load import FaceModel

    HostArray = npt.NDArray[Any]

_DEFAULT = FastOptions()
_WARM_UPS = 3  # torch.compile compiles, then captures, then replays
_HOST_SHAPES = 4  # whose page-locked memory is kept


class FastModel:
    """The coefficient network, and the morphable model where it is asked for, on one device.

        options = FastOptions(mode="half", compile="reduce-overhead")
        model = FastModel.from_directory("model/", options, device="cuda")
        model.warm_up(64)                         # compiles for batches of 64
        model(images)["coeffs"]                   # (batch, 257) float32

        for result in model.map(batches):         # numpy to numpy; copies and compute overlap
            result["coeffs"]

    What is called with a tensor answers with tensors on the model's device, on the current stream, without waiting.
    What is called with a numpy array answers with numpy arrays. Results are the caller's own: no later call overwrites
    them, unless it was asked for with `copy=False`.

    Every shape of input is another one: it is captured or compiled at its first call, which takes seconds. Several
    threads may call an eager model, or one with `graph`, by turns; a compiled one belongs to the thread that called it
    first, as torch keeps its CUDA graphs by thread.

    Args:
        model: Is copied.
        options: How it computes.
        device: Where; None: the current GPU, or the CPU where there is none.

    Raises:
        UsageError: The options do not fit the device, or `outputs="mesh"` of a model without its morphable model.
        MissingError: No such GPU, or it has no such arithmetic.
    """

    def __init__(
        self, model: FaceModel, options: FastOptions = _DEFAULT, *, device: str | torch.device | None = None
    ) -> None:
        self.options = options
        self.device = find_device(device, options)
        if options.outputs == "mesh" and model.morphable is None:
            raise UsageError("outputs mesh needs the morphable model", allowed="load_model(..., morphable=True)")
        decode = model.morphable if options.outputs == "mesh" else None
        self._module = Mixed(model.network, decode, options.mode, options.channels_last).to(self.device)
        self._names = (COEFFS,) if decode is None else (COEFFS, VERTEX, TEXTURE)
        self._on_gpu = self.device.type == "cuda"
        self._lock = threading.RLock()
        self._thread: int | None = None
        self._stream: torch.cuda.Stream | None = None
        self._seen: set[tuple[torch.Size, torch.dtype]] = set()
        self._lanes: OrderedDict[tuple[tuple[int, ...], str], Lanes] = OrderedDict()
        self._upload: torch.cuda.Stream | None = None
        if self._on_gpu:
            self._upload = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self._run: Callable[[Tensor], tuple[Tensor, ...]] = self._module
        if options.graph:
            self._run = Graphs(self._module, self.device, options.shapes)
        elif options.compile:
            self._run = torch.compile(self._module, mode=options.compile, dynamic=False, fullgraph=True)

    @classmethod
    def from_directory(
        cls,
        model: str | Path,
        options: FastOptions = _DEFAULT,
        *,
        device: str | torch.device | None = None,
    ) -> FastModel:
        """The model in a directory or of a ModelScope id, see `resolve_model`.

        Raises:
            ModelError: A file of it is missing or damaged.
            MissingError: No such model can be had here.
        """
        return cls(load_model(model, morphable=options.outputs == "mesh"), options, device=device)

    @overload
    def __call__(self, images: HostArray, *, copy: bool = True) -> dict[str, HostArray]: ...
    @overload
    def __call__(self, images: Tensor, *, copy: bool = True) -> dict[str, Tensor]: ...
    def __call__(self, images: HostArray | Tensor, *, copy: bool = True) -> dict[str, HostArray] | dict[str, Tensor]:
        """Run a batch.

        Args:
            images: (batch, 3, height, width) RGB 0..1 of any float type, or (batch, height, width, 3) uint8 RGB. On a
                GPU a float tensor of the network's own type and memory order saves a conversion.
            copy: False: a tensor's results may lie in a CUDA graph's memory, and the next call overwrites them.

        Returns:
            By name: `coeffs` (batch, 257), and with `outputs="mesh"` `vertex` and `texture` (batch, V, 3); float32.

        Raises:
            InputError: The array has another shape or type.
            EngineError: A compiled model was called by a second thread.
        """
        _check(images)
        if isinstance(images, Tensor):
            return dict(zip(self._names, self._compute(images, copy), strict=True))
        with self._lock:
            if not self._on_gpu:
                found = self._compute(torch.from_numpy(_plain(images)), copy=True)
                return {name: each.numpy() for name, each in zip(self._names, found, strict=True)}
            return self._collect(*self._submit(images))

    def map(self, batches: Iterable[HostArray]) -> Iterator[dict[str, HostArray]]:
        """Run a stream of numpy arrays, yield the results in order; on a GPU up to DEPTH batches are in flight.

        Raises:
            InputError: As for a call.
        """
        pending: deque[tuple[Lanes, Lane]] = deque()
        try:
            for images in batches:
                if not self._on_gpu:
                    yield self(images)
                    continue
                _check(images)
                if len(pending) == DEPTH:
                    yield self._collect(*pending.popleft())
                pending.append(self._submit(images))
            while pending:
                yield self._collect(*pending.popleft())
        finally:
            for lanes, lane in pending:  # the reader has left
                lane.wait()
                lanes.give_back(lane)

    def warm_up(
        self, batch: int = 1, height: int = CROP, width: int = CROP, input: Literal["float32", "uint8"] = "float32"
    ) -> None:
        """Do what the first calls of a shape would do: choose algorithms, capture, compile. Waits until it is done."""
        if input == "uint8":
            pixels = torch.randint(0, 256, (batch, height, width, 3), dtype=torch.uint8)
        else:
            pixels = torch.rand(batch, 3, height, width)
        pixels = pixels.to(self.device)
        for _ in range(_WARM_UPS):
            self(pixels, copy=False)
        if self._on_gpu:
            torch.cuda.synchronize(self.device)

    def prepare(self, pixels: Tensor) -> Tensor:
        """A float tensor as the network takes it without a conversion: device, type, memory order."""
        return pixels.to(self.device, self._module.dtype, non_blocking=True, memory_format=self._module.memory)

    def _collect(self, lanes: Lanes, lane: Lane) -> dict[str, HostArray]:
        found = lane.collect()
        lanes.give_back(lane)
        return dict(zip(self._names, found, strict=True))

    def _submit(self, images: HostArray) -> tuple[Lanes, Lane]:
        assert self._upload is not None
        with self._lock, torch.cuda.device(self.device):
            key = (images.shape, images.dtype.str)
            lanes = self._lanes.get(key) or Lanes(images, self.device, self._upload)
            self._lanes[key] = lanes
            self._lanes.move_to_end(key)
            if len(self._lanes) > _HOST_SHAPES:
                self._lanes.popitem(last=False)
            lane = lanes.take(images)
            try:
                lane.submit(images, lambda pixels: self._compute(pixels, copy=False))
            except BaseException:
                torch.cuda.synchronize(self.device)  # before its memory goes
                raise
            return lanes, lane

    def _compute(self, pixels: Tensor, copy: bool) -> tuple[Tensor, ...]:
        with self._lock, contextlib.ExitStack() as stack:
            self._own_thread()
            for each in self._surroundings(pixels):
                stack.enter_context(each)
            if not self.options.graph:  # a graph's own memory takes any type and order
                pixels = self._normal(pixels)
            if self.options.compile in CAPTURES:
                torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            results = self._run(pixels)
            self._seen.add(self._key(pixels))
            return tuple(each.clone() for each in results) if copy and self.options.overwrites else results

    def _surroundings(self, pixels: Tensor) -> Iterator[AbstractContextManager[Any]]:
        """What is to hold while the module runs."""
        # torch.compile guards on what it was traced under, and has had trouble with tensors made in inference mode.
        yield torch.no_grad() if self.options.compile else torch.inference_mode()
        if self._on_gpu:
            yield torch.cuda.device(self.device)
            self._after_other_streams()
            if self.options.mode in ("fp32", "tf32") or self.options.outputs == "mesh":
                yield float32_products(self.options.mode == "tf32")
        if self._new(pixels):
            yield _first_call(self.options)

    def _key(self, pixels: Tensor) -> tuple[torch.Size, torch.dtype]:
        return pixels.shape, torch.uint8 if pixels.dtype == torch.uint8 else self._module.dtype

    def _new(self, pixels: Tensor) -> bool:
        """Whether this is the first call of a shape."""
        if self._key(pixels) in self._seen:
            return False
        if self.options.compile and len(self._seen) >= self.options.shapes:
            raise InputError(
                f"{tuple(pixels.shape)} would be compiled as shape number {len(self._seen) + 1}",
                allowed=f"{self.options.shapes} shapes: batches of few sizes, or FastOptions(shapes=...)",
            )
        return True

    def _normal(self, pixels: Tensor) -> Tensor:
        if pixels.dtype == torch.uint8:
            return pixels.to(self.device, non_blocking=True).contiguous()
        return self.prepare(pixels)

    def _own_thread(self) -> None:
        if self.options.compile not in CAPTURES:
            return
        here = threading.get_ident()
        self._thread = self._thread or here
        if here != self._thread:
            raise EngineError(
                "this compiled model is called by a second thread, and torch keeps its CUDA graphs by thread",
                allowed="the thread that called it first; a model for each thread; or graph=True instead of compile",
            )

    def _after_other_streams(self) -> None:
        """Memory of CUDA graphs is shared by all calls: one on another stream waits for the former one."""
        current = torch.cuda.current_stream(self.device)
        if self.options.overwrites and self._stream is not None and self._stream != current:
            current.wait_stream(self._stream)
        self._stream = current


@contextlib.contextmanager
def _first_call(options: FastOptions) -> Iterator[None]:
    """Algorithms are chosen, and compiled code is made, at the first call of a shape, and kept."""
    with contextlib.ExitStack() as stack:
        cudnn = torch.backends.cudnn
        before = cudnn.benchmark
        cudnn.benchmark = before or options.search
        stack.callback(setattr, cudnn, "benchmark", before)
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "Plan failed")  # of an algorithm that cuDNN tried and does not take
        warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")  # float32 is what was asked for
        if options.compile:
            from torch._dynamo import config

            # By default the ninth shape of a function is run eagerly, and nothing says so.
            limits = {"recompile_limit": 1024, "accumulated_recompile_limit": 4096}
            stack.enter_context(config.patch(limits))
        yield


def _check(images: HostArray | Tensor) -> None:
    """Refuse what is no batch of pictures."""
    shape = tuple(images.shape)
    if isinstance(images, Tensor):
        whole, real = images.dtype == torch.uint8, images.dtype.is_floating_point
    else:
        whole, real = images.dtype == np.uint8, images.dtype.kind == "f"
    channels, sides = (shape[3:4], shape[1:3]) if whole else (shape[1:2], shape[2:4])
    fits = len(shape) == 4 and channels == (3,) and shape[0] > 0 and all(MIN_SIDE <= s <= MAX_SIDE for s in sides)
    if not (fits and (whole or real)):
        raise InputError(
            f"images is {images.dtype} {shape}",
            allowed="(batch, 3, height, width) float, RGB 0..1, or (batch, height, width, 3) uint8, RGB; "
            f"height and width {MIN_SIDE} to {MAX_SIDE}",
        )


def _plain(images: HostArray) -> HostArray:
    """The array as torch takes it in silence."""
    return np.require(images, requirements=("C", "W"))
