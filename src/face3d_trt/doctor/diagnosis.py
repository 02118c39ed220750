"""From the facts of a machine to what it can do, what is wrong, and the command that mends it. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from face3d_trt.doctor.machine import Machine, TensorRTFacts, release
from face3d_trt.doctor.needs import (
    EXTRAS,
    ONNX,
    ONNXRUNTIMES,
    OPENCVS,
    POLYGRAPHY,
    SCIKIT_IMAGE,
    TENSORRT,
    TENSORRT_RTX,
    Need,
)
from face3d_trt.engine.flavour import precision_by_flags, rtx_runs_on
from face3d_trt.engine.sizes import format_size
from face3d_trt.optional import install_command

OLDEST_PYTHON, NEWEST_PYTHON = (3, 10), (3, 13)  # what the tests run on
MIN_FREE_BYTES = 2 << 30  # a mesh graph in three precisions with its plans is about 1 GB
DRIVER_OF_CUDA = {"cu11": 450, "cu12": 525, "cu13": 580}  # oldest Linux driver branch, CUDA's release notes
_ASK_DRIVER = "nvidia-smi  # a container has to be started with --gpus all"
MAIN_JOB = ("export", "build --fp16", "build --int8", "compare")


@dataclass(frozen=True)
class Task:
    """One thing a user may want of this machine. `note` says why not, or what to know."""

    name: str
    can: bool
    note: str
    run: str | None = None


@dataclass(frozen=True)
class Caution:
    """Something that will bite, and the command that mends it."""

    problem: str
    run: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    """What `face3d-trt doctor` says."""

    machine: Machine
    tasks: tuple[Task, ...]
    warnings: tuple[Caution, ...]

    @property
    def healthy(self) -> bool:
        """Can the main job (export, build, compare) run here?"""
        return all(task.can for task in self.tasks if task.name in MAIN_JOB)


def diagnose(machine: Machine) -> Diagnosis:
    """Apply every rule to the facts of `machine`."""
    return Diagnosis(machine, _tasks(machine), tuple(_warnings(machine)))


def not_needed(extra: str, machine: Machine) -> bool:
    """Is `extra` for another kind of machine: those for a GPU where there is none, `cpu` and `rtx` where one is?"""
    return extra in (("cpu", "rtx") if machine.gpus else ("gpu", "decode-gpu"))


def builder(machine: Machine) -> TensorRTFacts | None:
    """The flavour that `build` uses: TensorRT where there is a GPU for it, else TensorRT-RTX."""
    by_module = {flavour.module: flavour for flavour in machine.tensorrt if flavour.where}
    if machine.gpus and "tensorrt" in by_module:
        return by_module["tensorrt"]
    return by_module.get("tensorrt_rtx")


def _tasks(machine: Machine) -> tuple[Task, ...]:
    runtime = "gpu" if machine.gpus else "cpu"
    flavour = builder(machine)
    no_flavour = () if flavour else (("gpu", TENSORRT),) if machine.gpus else (("rtx", TENSORRT_RTX),)
    built_by = f"with {flavour.module} {flavour.version}" if flavour else ""
    photos = _lacking(machine, ("detect",))
    faces = "; aligned crops only, photos need the detector" if photos else ""
    runner = _run_engines(machine)
    engines = "" if runner.can else "the typed graph runs in ONNX Runtime, the engine is not run here"
    engines += "" if SCIKIT_IMAGE.met(machine) else "; no SSIM: scikit-image is missing"
    read = () if runner.can else _lacking(machine, ("cpu",)) + ((("export", ONNX),) if not ONNX.met(machine) else ())
    read += () if POLYGRAPHY.met(machine) else (("compare", POLYGRAPHY),)
    by_flags = flavour is not None and precision_by_flags(flavour.module, release(flavour.version))
    half = () if by_flags else ("quantize", "cpu")  # FP16 by a flag takes the float32 graph as it is
    half_more = no_flavour + ((("export", ONNX),) if by_flags and not ONNX.met(machine) else ())
    return (
        _task(machine, "export", ("export", "cpu"), note="ONNX checked against PyTorch", runtime=runtime),
        _task(machine, "calib", ("detect",), note="photos to aligned faces", runtime=runtime),
        _task(machine, "build --fp16", half, half_more, note=built_by, runtime=runtime),
        _task(machine, "build --int8", ("quantize", "cpu"), no_flavour, note=built_by + faces, runtime=runtime),
        _task(machine, "compare", ("export", "cpu"), note=(engines + faces).lstrip("; "), runtime=runtime),
        _task(machine, "compare --reference", (), read, note=engines.lstrip("; "), runtime=runtime),
        runner,
    )


def _task(
    machine: Machine,
    name: str,
    extras: tuple[str, ...],
    more: tuple[tuple[str, Need], ...] = (),
    *,
    note: str,
    runtime: str,
) -> Task:
    """A task that needs the packages of `extras`, and of `more`, given as (extra, package)."""
    lacking = _lacking(machine, extras) + more
    if machine.python[:2] < OLDEST_PYTHON:
        return Task(name, False, f"CPython {_dotted(machine.python)} is too old")
    if not lacking:
        return Task(name, True, note)
    wanted = sorted({runtime if extra == "cpu" else extra for extra, _ in lacking})
    return Task(name, False, _say(lacking, machine), install_command(*wanted))


def _run_engines(machine: Machine) -> Task:
    name = "run engines"
    modules = {flavour.module for flavour in machine.tensorrt if flavour.where}
    if not machine.gpus:
        return Task(name, False, "no NVIDIA GPU answers")
    gpu = machine.gpus[0]
    if "tensorrt" in modules:
        return Task(name, True, f"with tensorrt on {gpu.name}")
    if "tensorrt_rtx" in modules and gpu.compute_capability and rtx_runs_on(gpu.compute_capability):
        why = f"compare runs plans of tensorrt; those of TensorRT-RTX run on {gpu.name} in a runtime of your own"
        return Task(name, False, why, install_command("gpu"))
    if "tensorrt_rtx" in modules and gpu.compute_capability:
        why = f"TensorRT-RTX does not support compute capability {gpu.compute_capability} ({gpu.name})"
        return Task(name, False, why, install_command("gpu"))
    return Task(name, False, "no TensorRT for this GPU", install_command("gpu"))


def _lacking(machine: Machine, extras: Iterable[str]) -> tuple[tuple[str, Need], ...]:
    """(extra, need) for every package of `extras` that is not there, or too old, or too new."""
    return tuple((extra, need) for extra in extras for need in EXTRAS[extra] if not need.met(machine))


def _say(lacking: Iterable[tuple[str, Need]], machine: Machine) -> str:
    """`missing: onnx, torch; polygraphy 0.49.0 is not >=0.53.4`."""
    needs = dict.fromkeys(need for _, need in lacking)
    missing = [need.package for need in needs if need.found(machine) is None]
    wrong = [f"{found[0]} {found[1]} is not {need.wanted}" for need in needs if (found := need.found(machine))]
    return "; ".join(([f"missing: {', '.join(missing)}"] if missing else []) + wrong)


def _warnings(machine: Machine) -> Iterator[Caution]:
    if machine.python[:2] > NEWEST_PYTHON:
        yield Caution(f"CPython {_dotted(machine.python)} is newer than the tested {_dotted(NEWEST_PYTHON)}")
    if machine.gpu_trouble:
        yield Caution(f"no NVIDIA GPU can be used: {machine.gpu_trouble}", _ASK_DRIVER)
    yield from _overwritten(machine, ONNXRUNTIMES, ONNXRUNTIMES[bool(machine.gpus)])
    yield from _overwritten(machine, OPENCVS, OPENCVS[0])
    for flavour in machine.tensorrt:
        yield from _flavour_warnings(flavour, machine)
    if machine.free_bytes < MIN_FREE_BYTES:
        free = f"{format_size(machine.free_bytes)} free in {machine.folder}"
        yield Caution(
            f"{free}; a mesh model in three precisions takes about 1 GB",
            f"df -h '{machine.folder}'",
        )


def _overwritten(machine: Machine, rivals: tuple[str, ...], keep: str) -> Iterator[Caution]:
    """Packages that put the same files in place: whichever came last won, and removing one breaks the other."""
    present = [name for name in rivals if name in machine.packages]
    if len(present) > 1:
        versions = " and ".join(f"{name} {machine.packages[name]}" for name in present)
        yield Caution(
            f"{versions} overwrite each other's files",
            f"pip uninstall -y {' '.join(present)} && pip install {keep}",
        )


def _flavour_warnings(flavour: TensorRTFacts, machine: Machine) -> Iterator[Caution]:
    names = " ".join(sorted(flavour.packages))
    again = install_command("rtx" if flavour.module == "tensorrt_rtx" else "gpu")
    remedy = f"pip uninstall -y {names} && {again}"
    cudas = sorted({part for name in flavour.packages for part in name.split("-") if part in DRIVER_OF_CUDA})
    versions = sorted({*flavour.packages.values()}, key=release)
    listed = ", ".join(f"{name} {version}" for name, version in sorted(flavour.packages.items()))
    if flavour.where is None:
        yield Caution(f"{listed}: installed, and there is no module {flavour.module}", remedy)
    elif len(cudas) > 1:
        yield Caution(f"{flavour.module} is installed for several CUDA versions at once: {listed}", remedy)
    elif len(versions) > 1:
        yield Caution(f"{flavour.module} is installed in parts of different versions: {listed}", remedy)
    if cudas and machine.gpus:
        driver = machine.gpus[0].driver
        needed = DRIVER_OF_CUDA[cudas[-1]]
        if release(driver) and release(driver)[0] < needed:
            yield Caution(
                f"{flavour.module} is built for CUDA {cudas[-1][2:]}: driver {needed} or newer, and this is {driver}",
                f"pip uninstall -y {names} && pip install {flavour.module.replace('_', '-')}-{_cuda_for(driver)}",
            )


def _cuda_for(driver: str) -> str:
    branch = release(driver)[0]
    return max((cuda for cuda, oldest in DRIVER_OF_CUDA.items() if oldest <= branch), default="cu11")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
