"""What a run over a cluster is: the options that mean something there, the job, the stages as Ray Data knows them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from face3d_trt.errors import Face3DError, MissingError, StoppedError, UsageError
from face3d_trt.reconstruct.cluster.parcels import Job, Parcel, pack
from face3d_trt.reconstruct.cluster.steps import EngineActor, describe_engine, finish, prepare
from face3d_trt.reconstruct.engines import EngineSetup
from face3d_trt.reconstruct.gpus import CPU
from face3d_trt.reconstruct.messages import Ready, Setup
from face3d_trt.reconstruct.shared import Layout
from face3d_trt.reconstruct.start import crop_sizes

if TYPE_CHECKING:
    from face3d_trt.reconstruct.cluster.nodes import Node
    from face3d_trt.reconstruct.options import ReconstructOptions

_GROUP = 16  # pictures in a task: what is done again when a node dies in the midst of it
_CROPS_IN_A_GROUP = 64  # likewise of pictures that take a millisecond each
_MOST_GROUPS = 4096
_ENGINE_BYTES = 512 << 20  # of memory that Ray sets aside for an engine's process
_ALLOWED_DEVICES = "--ray with --devices all (every GPU of the cluster, the CPU where there is none) or cpu"


def describe_on(ray: Any, setup: EngineSetup) -> Ready:
    """What the engines have in common, from a node that can open one.

    Raises:
        Face3DError: It cannot be opened there.
    """
    resources = {"num_cpus": 1} if setup.device == CPU else {"num_gpus": 1}
    try:
        found = ray.get(ray.remote(**resources)(describe_engine).remote(setup))
    except Exception as error:
        raise StoppedError(f"no node could open the engine: {str(error).strip().splitlines()[-1]}") from error
    if isinstance(found, Face3DError):
        raise found
    assert isinstance(found, Ready)
    return found


def job_of(
    options: ReconstructOptions, plan: Path, face: Path | None, ready: Ready, nodes: Sequence[Node], on_cpu: bool
) -> Job:
    """What the processes have to know; with an engine for each GPU, or for every second CPU at most."""
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    setup = Setup(
        bays=(0, Layout(0, 0, False)),  # no memory is shared
        output=options.output.absolute(),
        detector=options.detector_name,
        landmarks=options.landmarks.absolute() if options.landmarks else None,
        faces=options.faces,
        products=options.products,
        keeps_photos=options.keeps_photos,
        template=ready.template,
        sizes=crop_sizes(options, ready),
        face=face,
        checkpoint_sha256=ready.checkpoint_sha256,
    )
    full = max(ready.batch[0], min(options.batch or ready.batch[1], ready.batch[1]))
    return Job(
        run=uuid.uuid4().hex,
        setup=setup,
        engine=EngineSetup(plan, CPU if on_cpu else 0, 1),  # Ray shows an actor its own GPU alone
        batch=(ready.batch[0], full),
        engines=max(1, cpus // 2) if on_cpu else gpus,
    )


def runs_on_cpu(options: ReconstructOptions, nodes: Sequence[Node]) -> bool:
    """Whether the engines run on the CPU.

    Raises:
        MissingError: The cluster is too small for that.
    """
    gpus, cpus = sum(node.gpus for node in nodes), sum(node.cpus for node in nodes)
    on_cpu = options.devices == "cpu" or not gpus
    if cpus < 1 + on_cpu:
        raise MissingError(
            f"the cluster gives out {cpus} CPUs",
            allowed="one for the engine where there is no GPU, and one for the rest",
        )
    return on_cpu


def check_options(options: ReconstructOptions) -> None:
    """Refuse what is decided by Ray, or by each machine for itself."""
    if options.devices not in ("all", "cpu"):
        raise UsageError(f"--devices {options.devices} with --ray", allowed=_ALLOWED_DEVICES)
    for name, given in (("--workers", options.workers), ("--queue", options.queue)):
        if given is not None:
            raise UsageError(f"{name} with --ray", allowed=f"no {name}: Ray gives out what the cluster has")
    if options.decode == "gpu":
        raise UsageError("--decode gpu with --ray", allowed="--decode cpu: photos are decoded on the CPUs of all nodes")
    if options.limits.temperature_c is not None or options.limits.memory is not None:
        raise UsageError("limits of GPUs with --ray", allowed="limits without --ray; nodes are watched by `monitor`")


def group_size(options: ReconstructOptions, items: int, cpus: int) -> int:
    """How many pictures a task has: few where there are few, so that every node gets some."""
    most = _CROPS_IN_A_GROUP if options.crops_only and not options.keeps_photos else _GROUP
    return max(1, min(most, -(-items // (4 * cpus))), -(-items // _MOST_GROUPS))


def stages_of(ray: Any, job: Job, parcels: Sequence[Parcel], size: int, options: ReconstructOptions) -> Any:
    """The stages, as Ray Data knows them. The engine's memory keeps Ray from running `prepare` inside of its actors."""
    data = ray.data
    context = data.DataContext.get_current()
    context.max_errored_blocks = -1  # what is lost with them is missing at the end, and done again
    if hasattr(context, "max_consecutive_actor_init_deaths"):
        context.max_consecutive_actor_init_deaths = -1  # EngineActor counts
    tables = [pack(parcels[at : at + size]) for at in range(0, len(parcels), size)]
    on_cpu = job.engine.device == CPU
    batch = min(job.batch[1], _GROUP if options.keeps_photos else job.batch[1])
    return (
        data.from_arrow(tables)
        .map_batches(prepare, fn_args=(job,), batch_size=None, batch_format="pyarrow", num_cpus=1)
        .map_batches(
            EngineActor,
            fn_constructor_args=(job,),
            batch_size=batch,
            batch_format="pyarrow",
            memory=_ENGINE_BYTES,
            compute=data.ActorPoolStrategy(min_size=1, max_size=job.engines, initial_size=1 if on_cpu else job.engines),
            **({"num_cpus": 1} if on_cpu else {"num_gpus": 1}),
        )
        .map_batches(finish, fn_args=(job,), batch_size=None, batch_format="pyarrow", num_cpus=1)
    )
