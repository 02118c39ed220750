"""Options of `face3d-trt build` that mean nothing beside one another: each such pair is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAN = (
    "--profile",
    "--workspace",
    "--timing-cache",
    "--optimization-level",
    "--hardware-compat",
    "--version-compat",
    "--target",
    "--no-gate",
)
_JUDGE = ("--images", "--model", "--limits")
_GRAPH = (
    "--fp32",
    "--fp16",
    "--int8",
    "--calib",
    "--typed-only",
    "--keep",
    "--until-passes",
    "--onnx",
    "--calib-method",
)
_TYPED = "face3d-trt build --typed engines/face3d_resnet50.int8.onnx"
_ONLY = "face3d-trt build --typed-only --for 8.6"
_UNTIL = "face3d-trt build --int8 --calib calibration/ --until-passes"


def check_words(precision: str, options: dict[str, object]) -> None:
    """Refuse what would be left aside; but --no-gate may be put behind the command of a build that its gate failed.

    Args:
        precision: "fp32", "fp16" or "int8".
        options: What was given, by the name on the command line; None, False or empty: not given.

    Raises:
        UsageError: One of them means nothing beside another.
    """
    given = {name: value for name, value in options.items() if value is not None and value is not False and value != []}
    if "--typed" in given:
        _refuse(given, _GRAPH, "--typed and {name} exclude each other: the typed graph is made already", _TYPED)
    if "--until-passes" in given:
        _refuse(
            given, ("--calib-method", "--keep"), "{} and --until-passes exclude each other: it looks for it", _UNTIL
        )
    else:
        _refuse(given, ("--most",), "{} goes with --until-passes", f"{_UNTIL} --most {given.get('--most')}")
    if "--typed-only" in given:
        _refuse(given, _PLAN, "{} means nothing with --typed-only: no plan is built", _ONLY)
        if "--until-passes" not in given:
            _refuse(given, _JUDGE, "{} means nothing with --typed-only: nothing is judged", _ONLY)
    else:
        run = f"face3d-trt build --typed-only --for {given.get('--for')}"
        _refuse(given, ("--for",), "{} goes with --typed-only: a plan is built by the TensorRT of this machine", run)
    if "--typed" not in given:
        _of_precision(precision, given)


def one_of(**flags: bool) -> Any:
    """The precision that was chosen; fp16 where none was.

    Raises:
        UsageError: Several were.
    """
    from face3d_trt.errors import UsageError

    chosen = [name for name, given in flags.items() if given]
    if len(chosen) > 1:
        raise UsageError(
            f"{' and '.join(f'--{name}' for name in chosen)} exclude each other",
            allowed="one of --fp32, --fp16, --int8 for one plan",
            run=f"face3d-trt build --{chosen[0]}, then once more with --{chosen[1]}",
        )
    return chosen[0] if chosen else "fp16"


def method_of(text: str) -> Any:
    """The calibration method.

    Raises:
        UsageError: There is none of that name.
    """
    from face3d_trt.errors import UsageError

    if text not in ("output", "entropy", "max"):
        raise UsageError(
            f"--calib-method {text!r} is unknown",
            allowed="output, entropy, max",
            run="face3d-trt build --int8 --calib calibration/ --calib-method output",
        )
    return text


def _of_precision(precision: str, given: dict[str, object]) -> None:
    if precision != "int8":
        run = f"face3d-trt build --int8 --calib calibration/ --calib-method {given.get('--calib-method')}"
        _refuse(given, ("--calib-method",), f"{{}} is for --int8; --{precision} calibrates nothing", run)
    if precision == "fp32":
        run = f"face3d-trt build --fp32 --images {given.get('--calib')}    # pictures that judge"
        _refuse(given, ("--calib",), "{} means nothing with --fp32, which calibrates nothing", run)


def _refuse(given: dict[str, object], names: Iterable[str], problem: str, run: str) -> None:
    from face3d_trt.errors import UsageError

    for name in names:
        if name in given:
            value = given[name]
            text = name if value is True or isinstance(value, list) else f"{name} {value}"
            raise UsageError(problem.format(text, name=name), allowed=f"the command without {name}", run=run)
