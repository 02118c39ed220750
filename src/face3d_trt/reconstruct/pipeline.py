"""A run: groups of pictures from the sources through workers and engines into the list of results.

reconstruct(ReconstructOptions(("photos",), Path("results")))
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from face3d_trt.errors import MissingError, StoppedError, StorageError, UsageError
from face3d_trt.reconstruct.codec import check_installed
from face3d_trt.reconstruct.crew import Crew
from face3d_trt.reconstruct.fleet import Fleet
from face3d_trt.reconstruct.gauges import Gauges
from face3d_trt.reconstruct.gpus import CPU, find_devices
from face3d_trt.reconstruct.messages import Ready, Setup
from face3d_trt.reconstruct.options import ReconstructOptions, cores, find_plan
from face3d_trt.reconstruct.queues import Feeder
from face3d_trt.reconstruct.resume import results_of
from face3d_trt.reconstruct.running import Run
from face3d_trt.reconstruct.shared import Bays, Memory
from face3d_trt.reconstruct.sizing import ROWS, Size, asked, size_of
from face3d_trt.reconstruct.sources import Item, find_items
from face3d_trt.reconstruct.start import (
    Interrupts,
    Summary,
    Tell,
    Watch,
    crop_sizes,
    face_file,
    facts_of_run,
    watch_signals,
)
from face3d_trt.report import SILENT, Reporter

_PATIENCE_S = 10.0  # for processes that are asked to end


def reconstruct(
    options: ReconstructOptions,
    report: Reporter = SILENT,
    watch: Watch | None = None,
    tell: Tell | None = None,
) -> Summary:
    """Reconstruct everything in the sources.

    Args:
        options: What, with what, and how much at a time.
        report: Told stages and warnings.
        watch: Called about ten times a second with a Status.
        tell: Called with the name of an event and its facts, for a log.

    Returns:
        How it ended. A run that is interrupted (SIGINT, SIGTERM) ends what is on its way; a second signal drops it.

    Raises:
        UsageError: The options, the sources or what lies in the output folder.
        MissingError: A package, a GPU, a plan; StorageError where the output cannot be written.
        StoppedError: A full disk, or engines that fail: what was done is in the list, and --resume goes on.
    """
    plan = find_plan(options.plan)
    devices = find_devices(options.devices)
    decoders = decoders_on(options, devices)
    numbers = asked(options, devices)
    report.stage(f"engine     {plan}")
    items = items_of(options)
    face = face_file(options, plan)
    facts = facts_of_run(options, plan, all(device == CPU for device in devices))
    order = {item.name: place for place, item in enumerate(items)}
    with ExitStack() as stack:
        results, former = stack.enter_context(
            results_of(options.results, options.output, facts, options.resume, report, order)
        )
        gauges = stack.enter_context(Gauges(devices, options.limits, options.metrics_port, report))
        signals = stack.enter_context(watch_signals())
        memory = Memory()
        fleet = Fleet(plan, devices, memory, max(1, cores() // len(devices)))
        stack.callback(lambda: fleet.end(0 if signals.hurry else _PATIENCE_S))
        videos = any(item.kind == "video" for item in items)
        crew = Crew(numbers.workers, memory, videos, decoders)
        stack.callback(lambda: crew.end(0 if signals.hurry else _PATIENCE_S))
        ready = fleet.await_ready()
        size = size_of(options, items, ready, numbers, len(devices))
        bays = Bays(memory, size.bays, size.layout)
        fleet.start(bays)
        crew.start(_setup(options, ready, face, size), bays)
        feeder = Feeder(items, former.names, size.group)
        run = Run(crew, fleet, bays, feeder, results, former, items, size, signals, gauges)
        run.listen(report, watch, tell)
        _go(run, signals)
    return Summary(
        counts=dict(run.stats.counts),
        here=run.stats.here,
        status=run.last,
        results=options.results,
        interrupted=not run.complete,
        backend=ready.backend,
        gpus=gauges.summaries(),
    )


def decoders_on(options: ReconstructOptions, devices: Sequence[int]) -> tuple[int, ...]:
    """GPUs that decode photos: all that have an engine, where that is asked for.

    Raises:
        MissingError: nvImageCodec is not installed, or the engines are on the CPU.
    """
    if options.decode == "cpu":
        return ()
    check_installed()
    if CPU in devices:
        raise MissingError(
            "--decode gpu without a GPU", allowed="--decode cpu, or --devices with GPUs", run="nvidia-smi"
        )
    return tuple(devices)


def _go(run: Run, signals: Interrupts) -> None:
    """The run itself; where it fails, processes are not waited for."""
    signals.running = True
    try:
        run.go()
    except StorageError as error:
        signals.hurry = True
        raise StoppedError(
            f"stopped: {error.problem}",
            allowed=error.allowed,
            run="the same command with --resume, once there is room",
        ) from error
    except BaseException:
        signals.hurry = True
        raise


def items_of(options: ReconstructOptions) -> tuple[Item, ...]:
    """What there is to do.

    Raises:
        UsageError: Nothing.
    """
    items = find_items(
        options.sources, options.output, rows=ROWS, arrays=options.crops_only, one_row=options.keeps_photos
    )
    if not items:
        raise UsageError(f"there is nothing in {' '.join(options.sources)}", allowed="pictures, videos, lists of them")
    return items


def _setup(options: ReconstructOptions, ready: Ready, face: Path | None, size: Size) -> Setup:
    return Setup(
        bays=(size.bays, size.layout),
        output=options.output,
        detector=options.detector_name,
        landmarks=options.landmarks,
        faces=options.faces,
        products=options.products,
        keeps_photos=options.keeps_photos,
        template=ready.template,
        sizes=crop_sizes(options, ready),
        face=face,
        checkpoint_sha256=ready.checkpoint_sha256,
    )
