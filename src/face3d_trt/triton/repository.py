"""Plans put into a model repository: NAME/config.pbtxt, NAME/VERSION/model.plan and its manifest beside it.

write_repository(TritonOptions(Path("models"), (Path("engines/face3d_resnet50.int8.plan"),)))

What is written lies under a hidden name until it is whole. A version that is there stays, and so does a configuration
that somebody has edited, unless asked otherwise.
"""

from __future__ import annotations

import difflib
import os
import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from face3d_trt import __version__
from face3d_trt.errors import PlanError, UsageError
from face3d_trt.files import output_lock, storage_errors
from face3d_trt.records import Manifest, manifest_path
from face3d_trt.report import SILENT, Reporter
from face3d_trt.runtime.plans import open_plan
from face3d_trt.triton.config import MODEL_FILE, Config, body_of, model_config
from face3d_trt.triton.staging import Staged, bytes_beside, clear_leftovers, plan_beside, swap_in
from face3d_trt.triton.versions import next_version, versions

if TYPE_CHECKING:
    from face3d_trt.triton.options import TritonOptions

CONFIG_FILE = "config.pbtxt"
_SHOWN = 8  # changed lines of a configuration
_COMMENT = (
    f"Written by face3d-trt {__version__}. What a version's plan is, model.plan.json beside it says.\n"
    "A new version replaces this file where it needs to, unless it was edited."
)


@dataclass(frozen=True)
class Written:
    """A model that was put into the repository.

    Args:
        name: Of the model.
        version: Of it.
        plan: In the repository.
        manifest: Of the plan.
        config: Of the model, as it was made; another may be there where `keep_config` was asked.
    """

    name: str
    version: int
    plan: Path
    manifest: Manifest
    config: Config


@dataclass(frozen=True)
class _Model:
    name: str
    plan: Path
    manifest: Manifest
    config: Config


def write_repository(options: TritonOptions, report: Reporter = SILENT) -> tuple[Written, ...]:
    """Put plans into a repository, each as a model of its own.

    Every plan is checked before the first is written.

    Args:
        options: See TritonOptions.
        report: Told of what is written and replaced.

    Raises:
        PlanError: A plan is damaged, has no manifest, or is one of TensorRT-RTX.
        UsageError: Options and plans do not go together, or something would be replaced unasked.
        StorageError: The repository cannot be written.
    """
    repository = options.repository
    if os.path.lexists(repository) and not os.path.isdir(repository):
        raise UsageError(f"{repository} is not a folder", allowed="a folder, which is made if nothing is there")
    models = [_check(name, plan, options, report) for name, plan in options.models]
    written = []
    for model in models:
        folder = repository / model.name
        with output_lock(folder, "writing"), storage_errors(folder):
            written.append(_write(model, folder, options, report))
    return tuple(written)


def _check(name: str, plan: Path, options: TritonOptions, report: Reporter) -> _Model:
    manifest, _ = open_plan(plan)
    if manifest.flavour != "tensorrt":
        raise PlanError(
            f"{plan} is a plan of TensorRT-RTX {manifest.flavour_version}, which Triton's TensorRT backend cannot load",
            allowed="a plan of TensorRT, built where that and the GPU are",
            run=f"{_without_targets(manifest.command)}    # on a GPU machine with the extra gpu; or face3d-trt serve",
        )
    if manifest.gate is not None and manifest.gate.passed is False:
        report.warn(f"{plan} failed the gate at the end of its build: {manifest.gate.worst or manifest.gate.reason}")
    config = model_config(name, manifest, options)
    if config.beyond is not None:
        report.warn(
            f"{plan} has profiles for batches up to {config.beyond}, but not for every batch up to that at every size: "
            f"max_batch_size is {config.max_batch}"
        )
    return _Model(name, plan, manifest, config)


def _write(model: _Model, folder: Path, options: TritonOptions, report: Reporter) -> Written:
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UsageError(f"{folder} is not a folder, so no model can lie there", allowed="--name with another name")
    there = versions(folder)
    version = options.version or next_version(there, folder)
    target = folder / str(version)
    if os.path.lexists(target) and not options.replace:
        raise UsageError(
            f"{model.name} has a version {version} already; nothing was changed",
            allowed="--version with a free number, none for the next free one, or --replace",
        )
    served = _served(sorted({*there, version}), options)
    if version in served:
        _check_others(model, folder, [each for each in served if each != version], options, report)
    text = _new_config(model, folder / CONFIG_FILE, version in served, options, report)
    clear_leftovers(folder, target)
    _put(model, target, text, options, report)
    if version not in served:
        report.warn(f"Triton will not serve version {version} of {model.name}, but {_listed(served)}")
    others = [each for each in there if each != version]
    report.stage(f"written   {target / MODEL_FILE}" + (f", beside {_listed(others)}" if others else ""))
    return Written(model.name, version, target / MODEL_FILE, model.manifest, model.config)


def _put(model: _Model, target: Path, text: str | None, options: TritonOptions, report: Reporter) -> None:
    """A version's folder, and the configuration where it is to be written; all on the disk before a folder is made."""
    folder = target.parent
    fresh = not folder.exists()
    outer = folder if fresh else target
    with ExitStack() as stack:
        plan, manifest = stack.enter_context(plan_beside(model.plan, outer, options.link, report))
        if manifest != model.manifest:
            raise PlanError(f"{model.plan} was replaced while it was read", run="the same command again")
        record = stack.enter_context(bytes_beside(manifest.to_json(), outer))
        config = None if text is None else stack.enter_context(bytes_beside(text.encode(), outer))
        staged = stack.enter_context(Staged(outer))
        inside = staged.path / target.name if fresh else staged.path
        inside.mkdir(exist_ok=True)
        os.rename(plan, inside / MODEL_FILE)
        os.rename(record, manifest_path(inside / MODEL_FILE))
        if fresh and config is not None:
            os.rename(config, staged.path / CONFIG_FILE)
        swap_in(staged)
        if not fresh and config is not None:
            os.replace(config, folder / CONFIG_FILE)


def _served(after: list[int], options: TritonOptions) -> list[int]:
    return after if options.serve_versions is None else after[-options.serve_versions :]


def _new_config(model: _Model, path: Path, served: bool, options: TritonOptions, report: Reporter) -> str | None:
    """The text to be written; None: what is there stays, as it does where another version is served."""
    if not os.path.lexists(path):
        return model.config.text(_COMMENT)
    if not served:
        return None
    with storage_errors(path):
        body, ours = body_of(path.read_text(encoding="utf-8", errors="replace"))
    if options.keep_config:
        if body != model.config.body:
            report.warn(f"{path} stays, which is not what would have been written: {_changes(model.config.body, body)}")
        return None
    if body == model.config.body and ours:
        return None
    if not ours and not options.replace:
        raise UsageError(
            f"{path} was not written by this command, or was edited since; nothing was changed",
            allowed="--keep-config to leave it, --replace to write it anew, or another --name",
        )
    report.warn(f"{path} is replaced: {_changes(body, model.config.body)}")
    return model.config.text(_COMMENT)


def _check_others(model: _Model, folder: Path, others: list[int], options: TritonOptions, report: Reporter) -> None:
    """One configuration holds for all versions that are served; `others` are those beside the new one."""
    for other in () if options.keep_config else others:
        record = manifest_path(folder / str(other) / MODEL_FILE)
        if not record.is_file():
            report.warn(f"{folder / str(other)} has no manifest: whether this configuration suits it is not known")
        elif model_config(model.name, Manifest.read(record), options).body != model.config.body:
            raise UsageError(
                f"version {other} of {model.name} wants another configuration, and would be served with this one",
                allowed="--serve-versions 1, or another --name",
            )


def _changes(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    changed = [f"{line[0]}{line[1:].strip()}" for line in lines if line[:2] not in ("--", "++", "@@")]
    shown = "; ".join(changed[:_SHOWN])
    return f"{shown}; …" if len(changed) > _SHOWN else shown or "its comment"


def _listed(numbers: list[int]) -> str:
    return f"version{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _without_targets(command: str) -> str:
    """A command of `build` without `--target`, which only TensorRT-RTX knows."""
    words = shlex.split(command)
    kept = [
        word
        for index, word in enumerate(words)
        if word != "--target" and not word.startswith("--target=") and (index == 0 or words[index - 1] != "--target")
    ]
    return shlex.join(kept)
