"""Runs of several interpreters and machines as groups whose rows may be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from face3d_trt.bench.machines import NOT_KNOWN, machine_name, same_machine
from face3d_trt.bench.medians import median_row
from face3d_trt.bench.records import BenchFile, Ceilings, LayerProfile, Machine, Row, Work
from face3d_trt.errors import UsageError

if TYPE_CHECKING:
    from face3d_trt.bench.records import Arithmetic, Mode

_FRAMEWORKS = ("torch", "tensorrt", "tensorrt-rtx", "onnxruntime", "onnxruntime-gpu")


@dataclass(frozen=True, order=True)
class Series:
    """What is one line of a plot: a backend in one mode, whatever the batch.

    Attributes:
        backend: As --backend names it.
        plan: File name of plan or ONNX file; "": none.
        arithmetic: What it computes in.
        input: What its input is.
        mode: Engine-only or host to host.
    """

    backend: str
    plan: str
    arithmetic: Arithmetic
    input: Literal["float32", "uint8"]
    mode: Mode

    @classmethod
    def of(cls, row: Row) -> Series:
        """The series that a row is of."""
        return cls(row.backend, row.plan or "", row.arithmetic, row.input, row.mode)


@dataclass(frozen=True)
class Group:
    """One machine, one model, one size of pictures, one kind of outputs: rows here may be compared.

    Attributes:
        machine: As far as any of its runs knows it.
        model: As the runs call it.
        model_sha256: Of the checkpoint, where a run knew it.
        height: Of the pictures, pixels.
        width: Of the pictures, pixels.
        outputs: What is computed.
        files: The runs, in the order of time.
        runs: By series and batch, every run's row, in the order of time.
        notes: What a reader has to know.
    """

    machine: Machine
    model: str
    model_sha256: str | None
    height: int
    width: int
    outputs: Literal["coeffs", "mesh"]
    files: tuple[BenchFile, ...]
    runs: dict[tuple[Series, int], tuple[Row, ...]]
    notes: tuple[str, ...] = field(default=())

    @property
    def rows(self) -> tuple[Row, ...]:
        """One for each series and batch: medians where there are several runs."""
        return tuple(median_row(runs) for runs in self.runs.values())

    @property
    def ceilings(self) -> Ceilings:
        """The best that any run measured."""
        best: dict[str, float | None] = {}
        for name in Ceilings.model_fields:
            known = [value for file in self.files if (value := getattr(file.ceilings, name)) is not None]
            best[name] = max(known, default=None)
        return Ceilings(**best)

    @property
    def work(self) -> Work | None:
        """Of one picture; None where no run counted it."""
        return next((file.work for file in reversed(self.files) if file.work is not None), None)

    @property
    def layers(self) -> tuple[LayerProfile, ...]:
        """The newest profile of each plan and batch."""
        newest = {(each.plan, each.batch): each for file in self.files for each in file.layers}
        return tuple(newest[key] for key in sorted(newest))


def merge(files: Iterable[BenchFile], *, any_weights: bool = False) -> tuple[Group, ...]:
    """Put together what belongs together, in the order in which machines and models first appear.

    Args:
        files: Of any machines and models.
        any_weights: Whether all models are one network, of whatever weights. Speed and memory do not depend on them;
            errors do, and are kept of the newest run's weights alone.

    Raises:
        UsageError: `any_weights`, and the runs counted different work: they are of different networks.
    """
    groups = []
    for alike in _alike(sorted(files, key=lambda file: file.created), any_weights=any_weights):
        sizes = dict.fromkeys((row.height, row.width, row.outputs) for file in alike for row in file.rows)
        groups += [_group(alike, *size) for size in sizes]
    return tuple(groups)


def same_model(one: BenchFile, other: BenchFile) -> bool:
    """Whether two runs are of one model: by the checkpoint's hash; by its name where a run did not know the hash."""
    if one.model_sha256 is not None and other.model_sha256 is not None:
        return one.model_sha256 == other.model_sha256
    return one.model == other.model


def _alike(files: Sequence[BenchFile], *, any_weights: bool) -> list[list[BenchFile]]:
    """Files of one machine and one model. A run that knows no hash joins the only model of its machine."""
    found: list[list[BenchFile]] = []
    for file in sorted(files, key=lambda each: each.model_sha256 is None):
        here = [group for group in found if all(same_machine(file.machine, each.machine) for each in group)]
        own = here if any_weights else [group for group in here if any(same_model(file, each) for each in group)]
        if not own and file.model_sha256 is None and len(here) == 1:
            own = here
        if own:
            own[0].append(file)
        else:
            found.append([file])
    ordered = [sorted(group, key=lambda each: each.created) for group in found]
    return [_of_newest_weights(group) for group in ordered] if any_weights else ordered


def _of_newest_weights(files: Sequence[BenchFile]) -> list[BenchFile]:
    """Runs of one network in the order of time; those of other weights than the newest lose their errors."""
    counted = {file.work.model_dump_json() for file in files if file.work is not None}
    if len(counted) > 1:
        raise UsageError(
            "--any-weights was given runs of different networks: the operations that they counted differ",
            allowed="runs of one architecture at one size",
        )
    newest = files[-1]
    return [file if same_model(file, newest) else _without_errors(file) for file in files]


def _without_errors(file: BenchFile) -> BenchFile:
    return file.model_copy(update={"rows": tuple(row.model_copy(update={"error": None}) for row in file.rows)})


def _group(files: Sequence[BenchFile], height: int, width: int, outputs: Literal["coeffs", "mesh"]) -> Group:
    runs: dict[tuple[Series, int], tuple[Row, ...]] = {}
    for file in files:
        for row in file.rows:
            if (row.height, row.width, row.outputs) == (height, width, outputs):
                key = (Series.of(row), row.batch)
                runs[key] = (*runs.get(key, ()), row)
    own = [
        file
        for file in files
        if any((row.height, row.width, row.outputs) == (height, width, outputs) for row in file.rows)
    ]
    named = next((file for file in reversed(own) if file.model_sha256), own[0])
    ordered = sorted(runs.items(), key=lambda item: (_order(item[0][0].backend), *_rest(item[0])))
    return Group(
        machine=_machine([file.machine for file in own]),
        model=named.model,
        model_sha256=named.model_sha256,
        height=height,
        width=width,
        outputs=outputs,
        files=tuple(own),
        runs=dict(ordered),
        notes=tuple(_notes(own)),
    )


def _order(backend: str) -> int:
    """PyTorch first, engines last."""
    families = ("torch", "ort", "trt")
    return next((at for at, family in enumerate(families) if backend.startswith(family)), len(families))


def _rest(key: tuple[Series, int]) -> tuple[int, str, str, str, str, int]:
    from face3d_trt.bench.registry import BACKENDS

    series, batch = key
    names = list(BACKENDS)
    known = names.index(series.backend) if series.backend in names else len(names)
    return known, series.backend, series.plan, series.input, series.mode, batch


def _machine(machines: Sequence[Machine]) -> Machine:
    """What any of them knows; packages are each run's own."""
    known: dict[str, object] = {}
    for name in Machine.model_fields:
        known[name] = {} if name == "packages" else _first_known([getattr(each, name) for each in machines])
    return machines[0].model_copy(update=known)


def _first_known(values: Sequence[object]) -> object:
    return next((value for value in values if value not in NOT_KNOWN), values[0])


def _notes(files: Sequence[BenchFile]) -> Iterable[str]:
    if any(file.model_sha256 is None for file in files) and any(file.model_sha256 for file in files):
        names = ", ".join(sorted({file.model for file in files if file.model_sha256 is None}))
        yield f"A run did not know its checkpoint's hash ({names}); it is taken to be of the same model."
    if len({file.model_sha256 for file in files if file.model_sha256}) > 1:
        models = dict.fromkeys(f"{file.model} ({(file.model_sha256 or 'no hash')[:12]})" for file in files)
        yield f"Runs of several weights are put together here: {', '.join(models)}. Errors are those of the last."
    for package in _FRAMEWORKS:
        versions = {version for file in files if (version := file.machine.packages.get(package))}
        if len(versions) > 1:
            found = ", ".join(sorted(versions))
            yield f"Runs with several versions of {package} are put together here: {found}."


def group_title(group: Group) -> str:
    """`NVIDIA H200: 224x224, coefficients`."""
    what = {"coeffs": "coefficients", "mesh": "meshes"}[group.outputs]
    return f"{machine_name(group.machine)}: {group.height}x{group.width}, {what}"
