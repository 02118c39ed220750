"""Claims 2 and 3: the rate of the engines alone, and what the uint8 front costs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .results import Settings

BATCHES = (1, 64, 256, 512, 1024)
CALLS = 2000


def run(settings: Settings) -> dict[str, Any]:
    """`{"plans": {name: {"256": {"ms", "rate", ...}}}, "front": {"int8": {"float32_ms", "uint8_ms", "cost"}}}`."""
    from .bare import primary_context

    with primary_context(settings.device):
        plans: dict[str, Any] = {
            f"{layout}_{precision}": {} for layout in ("uint8", "float32") for precision in ("fp16", "int8")
        }
        for name in plans:
            plans[name] = _rates(settings, name)
        front = {precision: _front(settings, precision) for precision in ("fp16", "int8")}
    return {"plans": plans, "front": front}


def _rates(settings: Settings, name: str) -> dict[str, Any]:
    from .bare import BareLoop, load, measured

    plan = load(settings.plan(name))
    found = {}
    largest = max(profile.max[0] for profile in plan.profiles)
    for batch in (batch for batch in BATCHES if batch <= largest):
        loop = BareLoop(plan, batch)
        found[str(batch)] = measured(loop, settings.times(CALLS, 20))
        print(f"{name} batch {batch}: {found[str(batch)]['ms']:.4f} ms, {found[str(batch)]['rate']:,.0f}/s", flush=True)
        loop.close()
    plan.close()
    return found


def _front(settings: Settings, precision: str, batch: int = 256) -> dict[str, float]:
    """Both engines in turns: the share by which the one with the front takes longer."""
    from face3d_trt.bench.timing import alternately

    from .bare import BareLoop, load

    batch = min(batch, settings.largest)
    plans = [load(settings.plan(f"{layout}_{precision}")) for layout in ("float32", "uint8")]
    loops = [BareLoop(plan, batch) for plan in plans]
    for loop in loops:
        loop.warm_up()
    float32, uint8 = alternately(*(loop.window for loop in loops))
    for loop, plan in zip(loops, plans, strict=True):
        loop.close()
        plan.close()
    return {"batch": batch, "float32_ms": float32, "uint8_ms": uint8, "cost": uint8 / float32 - 1}
