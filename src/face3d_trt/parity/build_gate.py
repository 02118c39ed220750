"""The gate at the end of `build`: on the photos that calibrated, before the plan gets its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from face3d_trt.errors import MissingError, ModelError
from face3d_trt.names import CROP
from face3d_trt.records import GateRecord
from face3d_trt.report import SILENT, Reporter

if TYPE_CHECKING:
    from pathlib import Path

    from face3d_trt.engine.options import BuildOptions
    from face3d_trt.parity.judging import Judge, Judged
    from face3d_trt.records import Manifest

PICTURES = 32  # as many as `compare` takes of a folder: fewer say another thing with every draw


@dataclass(frozen=True)
class BuildGate:
    """Judges a plan's typed graph, and the plan itself where this machine can run it, against float32 PyTorch.

    Args:
        images: A photo, a crop or a folder; None: the calibration pictures, and without those the package's samples.
        model: Directory or ModelScope id; None: the one that was exported.
        limits: A file like `limits.json`; None: the package's.
        report: Told what is judged, or why nothing is.
        held_out: The pictures that took no part in `--until-passes`' choice judge, and never those of the calibration.
    """

    images: Path | None = None
    model: str | None = None
    limits: Path | None = None
    report: Reporter = SILENT
    held_out: bool = False

    def __call__(self, options: BuildOptions, manifest: Manifest, plan: bytes, typed: Path) -> GateRecord:
        """Judge; what is missing on this machine is a reason why it was not, and no error.

        Raises:
            UsageError: The limits file is malformed; no picture of `images` can be used.
        """
        if manifest.precision == "int8" and manifest.model.weights == "seeded":
            return self._not_run("seeded weights, whose int8 figures mean nothing")
        try:
            judge = self._judge(options, manifest)
            found = dict(self._candidates(judge, manifest, plan, typed))
        except (MissingError, ModelError) as error:
            how = f"face3d-trt compare --plan {options.plan}, where PyTorch and the model are"
            return self._not_run(f"{' '.join(error.problem.split())}; later: {how}")
        failures = [failure.text for judged in found.values() for failure in judged.failures]
        worst = max(found.values(), key=lambda judged: judged.strain).worst
        said = GateRecord(
            passed=not failures,
            reason=failures[0] + (f" (and {len(failures) - 1} more)" if len(failures) > 1 else "") if failures else "",
            judged=tuple(found),
            pictures=len(judge.truths.names),
            origin=judge.origin,
            worst=worst,
        )
        outcome = "failed" if failures else "passed"
        self.report.stage(f"gate       {outcome} on {said.pictures} pictures ({said.origin}): {worst}")
        return said

    def _judge(self, options: BuildOptions, manifest: Manifest) -> Judge:
        from face3d_trt.parity.judging import JudgeOptions, find_judge
        from face3d_trt.parity.places import find_directory

        opt = manifest.profiles[0].opt
        side = (opt[2], opt[3]) if manifest.model.input == "float32" else (opt[1], opt[2])
        images = self.images
        if images is None and not self.held_out and options.calibration is not None:
            images = find_directory(str(options.calibration), options.plan)  # of a record made elsewhere it may be gone
        asked = JudgeOptions(
            manifest.model, options.plan, manifest.precision, images, self.model, self.limits, PICTURES, side
        )
        return find_judge(asked, self.report, held_out=self.held_out)

    def _candidates(self, judge: Judge, manifest: Manifest, plan: bytes, typed: Path) -> Iterator[tuple[str, Judged]]:
        from face3d_trt.graph.info import read_graph
        from face3d_trt.parity.engine import bytes_candidate

        at_once = max(1, 8 * CROP * CROP // (judge.side[0] * judge.side[1]))
        yield "onnxruntime-typed", judge.graph(read_graph(typed), typed, at_once)
        engine = bytes_candidate(plan, manifest)
        if not isinstance(engine, str):
            yield engine.name, judge.candidate(engine, 0, manifest.profiles[0].opt[0])

    def _not_run(self, reason: str) -> GateRecord:
        self.report.stage(f"gate       not run: {reason}")
        return GateRecord(passed=None, reason=reason)
