"""What `triton` is told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from face3d_trt.errors import UsageError

LONGEST_NAME = 200  # characters; a folder's name may have 255 bytes
MOST_VERSION = 2**63 - 1  # Triton reads a version as a 64 bit number
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NUMBERS = re.compile(r"\d+(\+\d+)*")


@dataclass(frozen=True)
class Group:
    """Some instances of a model: Triton's `instance_group`.

        Group.parse("count=2,gpus=0+1,profiles=0+2")

    Args:
        count: Instances on each GPU, each with an execution context of its own.
        gpus: Which; (): all that Triton sees.
        profiles: Optimization profiles that it chooses from; (): all of the plan.
    """

    count: int = 1
    gpus: tuple[int, ...] = ()
    profiles: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Group:
        """Read `count=2,gpus=0+1,profiles=0+2`; each of the three may be left out.

        Raises:
            UsageError: A part is unknown, given twice, or no number.
        """
        found: dict[str, tuple[int, ...]] = {}
        for part in filter(None, text.replace(" ", "").split(",")):
            name, _, value = part.partition("=")
            if name not in ("count", "gpus", "profiles") or name in found or not _NUMBERS.fullmatch(value):
                raise _not_a_group(text, part)
            found[name] = tuple(map(int, value.split("+")))
        count = found.get("count", (1,))
        if len(count) != 1 or not 1 <= count[0] <= 64:
            raise _not_a_group(text, "count")
        for name in ("gpus", "profiles"):
            if len(set(found.get(name, ()))) != len(found.get(name, ())):
                raise _not_a_group(text, name)
        return cls(count[0], found.get("gpus", ()), found.get("profiles", ()))


@dataclass(frozen=True)
class TritonOptions:
    """How models are put into a repository.

    Attributes:
        repository: Folder of the models.
        plans: Plans with their manifests; each becomes a model.
        names: Of the models, in the order of the plans; (): the plans' own, without `.plan`.
        version: Of the models; None: the one after the highest that is there.
        groups: Where instances run.
        max_batch: Most pictures of a batch; None: as many as the profiles take.
        max_wait_s: That a request waits for others to fill a batch.
        preferred: Batch sizes that are sent without waiting; None: the optima of a plan with several profiles;
            (): none.
        max_queue: Requests that wait; beyond that Triton refuses. 0: no limit.
        deadline_s: That a request waits at most; beyond that Triton refuses it. 0: no limit.
        serve_versions: How many of the highest versions Triton serves; None: all.
        warm_up: Run each profile before the model is ready.
        link: Hard links to the plans, not copies.
        replace: Replace a version that is there, and a configuration that was edited.
        keep_config: Leave the configuration that is there as it is.
    """

    repository: Path
    plans: tuple[Path, ...]
    names: tuple[str, ...] = ()
    version: int | None = None
    groups: tuple[Group, ...] = (Group(),)
    max_batch: int | None = None
    max_wait_s: float = 0.0005
    preferred: tuple[int, ...] | None = None
    max_queue: int = 1024
    deadline_s: float = 10.0
    serve_versions: int | None = 1
    warm_up: bool = True
    link: bool = False
    replace: bool = False
    keep_config: bool = False

    def __post_init__(self) -> None:
        """Refuse what means nothing, before a file is touched.

        Raises:
            UsageError: A number out of range, a name that Triton does not take, or one name for two plans.
        """
        if not self.plans:
            raise UsageError("there is no plan", allowed="--plan FILE, once for each model")
        for name, value, least, most in (
            ("version", self.version, 1, MOST_VERSION),
            ("max-batch", self.max_batch, 1, 1 << 16),
            ("max-wait", self.max_wait_s, 0, 10),
            ("max-queue", self.max_queue, 0, 1 << 20),
            ("deadline", self.deadline_s, 0, 3600),
            ("serve-versions", self.serve_versions, 1, 1000),
        ):
            if value is not None and not least <= value <= most:
                raise UsageError(f"--{name} {value}", allowed=f"{least} to {most}")
        if self.replace and self.keep_config:
            raise UsageError("--replace and --keep-config contradict each other", allowed="one of them")
        if self.names and len(self.names) != len(self.plans):
            raise UsageError(
                f"{len(self.names)} names for {len(self.plans)} plans", allowed="--name once for each plan, or never"
            )
        self._check_names()

    @property
    def models(self) -> tuple[tuple[str, Path], ...]:
        """Name and plan of each model."""
        return tuple(zip(self.names or tuple(map(_own_name, self.plans)), self.plans, strict=True))

    def _check_names(self) -> None:
        seen: dict[str, Path] = {}
        for name, plan in self.models:
            if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
                raise UsageError(
                    f"{name!r} is no name of a model" + ("" if self.names else f"; it comes from {str(plan)!r}"),
                    allowed=f"--name: at most {LONGEST_NAME} letters, digits, `.`, `_`, `-`; a letter or digit first",
                )
            if name in seen:
                raise UsageError(
                    f"{seen[name]} and {plan} would both be the model {name}", allowed="--name once for each plan"
                )
            seen[name] = plan


def _own_name(plan: Path) -> str:
    return plan.name.removesuffix(".plan")


def _not_a_group(text: str, part: str) -> UsageError:
    return UsageError(
        f"group {text!r}: {part!r} is not understood",
        allowed="count (1 to 64), gpus and profiles, each at most once, several numbers joined by +",
        run="face3d-trt triton models/ --plan engines/face3d_resnet50.int8.plan --group count=2,gpus=0+1",
    )
