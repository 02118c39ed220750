"""The engine's twin on ONNX Runtime: the same calls, errors and splitting, so that a service's tests need no GPU."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from face3d_trt.errors import EngineError, GraphError, InputError, MissingError, PlanError
from face3d_trt.optional import install_command, require
from face3d_trt.records import Manifest, ModelInfo, TensorRecord
from face3d_trt.runtime.dlpack import stream_handle
from face3d_trt.runtime.inputs import HostImages, Spec
from face3d_trt.runtime.interface import FaceEngine, HostArray, HostResults
from face3d_trt.runtime.onnxfile import is_typed
from face3d_trt.runtime.options import check_batch, check_batches, check_number
from face3d_trt.runtime.plans import open_plan
from face3d_trt.runtime.worker import Worker

_KEY = "face3d"  # of the model's facts in the file's metadata
_EXPORT = "face3d-trt export --model MODEL"
_TYPES = {"tensor(float)": "float32", "tensor(uint8)": "uint8", "tensor(float16)": "float16"}
_DEVICES = {"cpu": None, "cuda": 0}
_CUDA = "CUDAExecutionProvider"
_FATAL = 4  # ONNX Runtime's log level above errors, which are raised anyway


@dataclass(frozen=True)
class _Source:
    """What a session is made of."""

    path: Path
    data: bytes
    manifest: Manifest | None


class OrtEngine(FaceEngine):
    """A face reconstruction network on ONNX Runtime.

        with OrtEngine("engines/face3d_resnet50.onnx") as engine:
            engine(images)["coeffs"]

    Opened from a plan it runs the typed ONNX that the plan was built from, and takes what the plan's profiles take: a
    service that passes its tests with it gets no other refusal from the GPU. Figures are those of the typed graph with
    float16 results kept in float32 on the CPU, so they are near the plan's and not equal to them.

    Args:
        path: ONNX file of `export` or `build`, or a plan of `build` with its manifest and typed ONNX beside it.
        device: "cpu"; "cuda" or the index of a GPU, which needs onnxruntime-gpu.
        check: Whether float pictures are searched for NaN and values outside 0..1.
        depth: How many `submit`s are in flight before the next one waits.
        threads: Of ONNX Runtime, on the CPU; None: one for each core.

    Raises:
        PlanError: The plan, its manifest and its typed ONNX do not belong together.
        GraphError: The ONNX file is missing, damaged or not one of ours.
        MissingError: No ONNX Runtime, or none for CUDA.
    """

    def __init__(
        self,
        path: str | Path,
        device: Literal["cpu", "cuda"] | int = "cpu",
        *,
        check: bool = True,
        depth: int = 3,
        threads: int | None = None,
    ) -> None:
        super().__init__()
        depth = check_number("depth", depth, "a number of batches in flight, 1 or more")
        if threads is not None:
            threads = check_number("threads", threads, "a number of threads, 1 or more, or None")
        source = _read(Path(path))
        if isinstance(device, str) and device in _DEVICES:
            index = _DEVICES[device]
        else:
            index = check_number("device", device, "'cpu', 'cuda', or the index of a GPU, from 0 on", least=0)
        self._session = _session(source, index, threads)
        self.model = _facts(self._session, source.path)
        self.manifest = source.manifest
        self.inputs = tuple(map(_record, self._session.get_inputs()))
        self.outputs = tuple(map(_record, self._session.get_outputs()))
        self.profiles = source.manifest.profiles if source.manifest else ()
        self.backend = _title(source, index)
        self.depth = depth
        self._spec = Spec(self.inputs, self.outputs, self.profiles, check=check)
        self._worker = Worker(depth)
        self._closing = threading.Lock()

    def __call__(
        self,
        images: Any,
        *,
        outputs: Sequence[str] | None = None,
        out: Mapping[str, HostArray] | None = None,
        to: Literal["host", "device"] = "host",
        stream: Any = None,
    ) -> dict[str, Any]:
        """See FaceEngine; to="device" is refused."""
        self._check_usable()
        if to not in ("host", "device"):
            raise InputError(f"to={to!r}", allowed="'host', 'device'")
        stream_handle(stream)
        if to != "host":
            raise InputError(
                f"to={to!r}: results of {self.backend} are in host memory; "
                "Engine, from a .plan, leaves them on the GPU",
                allowed="to='host'",
                run="open_engine(PLAN, on='gpu')    # where the GPU is",
            )
        return self._run(*self._prepare(images, outputs, out))

    def submit(
        self, images: Any, *, outputs: Sequence[str] | None = None, out: Mapping[str, HostArray] | None = None
    ) -> Future[HostResults]:
        """See FaceEngine."""
        self._check_usable()
        checked, names, arrays = self._prepare(images, outputs, out)
        copied = checked._replace(array=checked.array.copy())
        return self._worker.submit(lambda: self._run(copied, names, arrays))

    def pinned(self, batch: int) -> HostArray:
        """See FaceEngine; here it is an ordinary array."""
        self._check_usable()
        return np.zeros(self._spec.shape(check_batch("pinned", batch)), self._spec.dtype)

    def warm_up(self, batches: int | Iterable[int] = (1,)) -> None:
        """See FaceEngine."""
        self._check_usable()
        for batch in check_batches(batches):
            self(self.pinned(batch))

    def close(self) -> None:
        """See FaceEngine."""
        with self._closing:  # of two threads that close it, one does
            if self._closed:
                return
            self._closed = True
        self._worker.stop()
        if not self._forked:  # ONNX Runtime waits for threads there that only the parent has
            self._session = None

    def _prepare(
        self, images: Any, outputs: Sequence[str] | None, out: Mapping[str, HostArray] | None
    ) -> tuple[HostImages, tuple[str, ...], HostResults]:
        checked = self._spec.check(images)
        assert isinstance(checked, HostImages)  # a Spec without device gives no other
        names = self._spec.choose(outputs)
        return checked, names, self._spec.arrays(names, checked.batch, out)

    def _run(self, images: HostImages, names: tuple[str, ...], results: HostResults) -> HostResults:
        session = self._session
        if session is None:
            self._check_usable()
        for piece in images.pieces:
            rows = np.ascontiguousarray(images.array[piece.start : piece.stop])
            try:
                found = session.run(list(names), {self._spec.name: rows})
            except Exception as error:  # ONNX Runtime's errors have no common base but Exception
                raise EngineError(f"{self.backend} failed at a batch of {piece.rows}: {error}") from error
            for name, value in zip(names, found, strict=True):
                results[name][piece.start : piece.stop] = value
        return results


def has_cuda() -> bool:
    """Whether the ONNX Runtime of this machine, if any, was built for CUDA."""
    try:
        return _CUDA in require("onnxruntime", "gpu", "an ONNX file on a GPU").get_available_providers()
    except MissingError:
        return False


def _read(path: Path) -> _Source:
    """The ONNX file itself, or the one that a plan was built from."""
    if path.suffix == ".onnx":
        return _Source(path, _bytes(path), None)
    manifest, _ = open_plan(path)
    typed = path.parent / manifest.typed
    if not typed.is_file():
        raise PlanError(
            f"{path} can run without a GPU only as its typed ONNX, and {typed} is missing",
            allowed=f"{manifest.typed} beside the plan, as build leaves it",
            run=manifest.command,
        )
    data = _bytes(typed)
    if hashlib.sha256(data).hexdigest() != manifest.typed_sha256:
        raise PlanError(
            f"{typed} is not the graph that {path.name} was built from: it was changed since",
            allowed="plan, manifest and typed ONNX of one build",
            run=manifest.command,
        )
    return _Source(typed, data, manifest)


def _bytes(path: Path) -> bytes:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is missing"
        raise GraphError(f"{path} {what}", allowed="an ONNX file of face3d-trt", run=_EXPORT)
    return path.read_bytes()


def _session(source: _Source, device: int | None, threads: int | None) -> Any:
    extra, purpose = ("cpu", "an engine without a GPU") if device is None else ("gpu", "an ONNX file on a GPU")
    ort = require("onnxruntime", extra, purpose)
    providers: list[Any] = ["CPUExecutionProvider"]
    if device is not None:
        if _CUDA not in ort.get_available_providers():
            raise _no_cuda(ort, f"it has {', '.join(ort.get_available_providers())}")
        providers = [(_CUDA, {"device_id": device}), *providers]
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL
    options.intra_op_num_threads = threads or 0
    levels = ort.GraphOptimizationLevel
    try:
        options.graph_optimization_level = levels.ORT_DISABLE_ALL if is_typed(source.data) else levels.ORT_ENABLE_ALL
        session = ort.InferenceSession(source.data, options, providers=providers)
    except Exception as error:  # ONNX Runtime's errors have no common base but Exception
        raise GraphError(
            f"ONNX Runtime cannot load {source.path}: {error}", allowed="an ONNX file of face3d-trt", run=_EXPORT
        ) from error
    if device is not None and session.get_providers()[0] != _CUDA:  # it falls back on the CPU by itself
        raise _no_cuda(ort, f"CUDA did not start on GPU {device}")
    return session


def _no_cuda(ort: Any, reason: str) -> MissingError:
    return MissingError(
        f"ONNX Runtime {ort.__version__} does not run on a GPU here: {reason}",
        allowed="onnxruntime-gpu with the CUDA and cuDNN that it was built for, and no onnxruntime beside it",
        run=f"pip uninstall -y onnxruntime && {install_command('gpu')}",
    )


def _facts(session: Any, path: Path) -> ModelInfo:
    text = session.get_modelmeta().custom_metadata_map.get(_KEY)
    if text is None:
        raise GraphError(
            f"{path} was not written by this tool: it has no metadata {_KEY!r}",
            allowed="an ONNX file of face3d-trt",
            run=_EXPORT,
        )
    try:
        return ModelInfo.model_validate_json(text)
    except ValidationError as error:
        raise GraphError(f"{path} was written by another version: {error}", run=_EXPORT) from error


def _record(value: Any) -> TensorRecord:
    shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
    return TensorRecord(name=value.name, dtype=_TYPES.get(value.type, value.type), shape=shape)


def _title(source: _Source, device: int | None) -> str:
    version = require("onnxruntime", "cpu", "an engine without a GPU").__version__
    place = "the CPU" if device is None else f"GPU {device}"
    return f"ONNX Runtime {version} on {place}" + (f", {source.path.name}" if source.manifest else "")
