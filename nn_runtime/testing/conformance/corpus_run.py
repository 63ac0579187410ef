# SPDX-License-Identifier: Apache-2.0
"""Runs a corpus of operation examples on one device and judges the results."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import signal
import threading
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

from nn_runtime.errors import NNError
from nn_runtime.hal.types import HalError
from nn_runtime.operations import definitions
from nn_runtime.testing.conformance.hal_runner import HalRunner
from nn_runtime.testing.conformance.ndk_runner import NdkRunner
from nn_runtime.testing.conformance.report import Filter, Report, Result, Through, Unsupported, Verdict
from nn_runtime.testing.corpus import as_kind, judge, read_spec, spec_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nn_runtime.device import Device
    from nn_runtime.testing.conformance.report import Outcome, Runner
    from nn_runtime.testing.corpus import Example, Kind


def run_corpus(
    folder: Path,
    device_selector: str | None,
    chosen: Filter | None = None,
    jobs: int = 1,
    through: Through = Through.NDK,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Run the examples of a folder on the first device that a selector names.

    `progress` gets the number of files done and of all files. Raises FileNotFoundError, UnavailableDevice.
    """
    chosen = chosen or Filter()
    files = spec_files(folder)
    report = Report(_select(device_selector).name)
    for done, results in enumerate(_all_results(files, device_selector, chosen, jobs, through), 1):
        report.results += results
        if progress is not None:
            progress(done, len(files))
    report.results.sort(key=lambda result: (result.spec, result.example, result.kind.value))
    return report


def run_example(example: Example, kind: Kind, runner: Runner) -> Result:
    """Run one example in one kind and judge every execution."""
    verdict, message = _verdict(as_kind(example, kind), kind, runner)
    return Result(example.name, example.spec, example.main_op, kind, verdict, message)


def make_runner(device: Device, through: Through) -> Runner:
    """Return a runner for a device."""
    return HalRunner(device.hal) if through == Through.HAL else NdkRunner(device, through)


def _select(selector: str | None) -> Device:
    from nn_runtime.devices import select  # loads drivers, which a user of HalRunner may not want

    return select(selector).devices[0]


def _all_results(
    files: Sequence[Path], selector: str | None, chosen: Filter, jobs: int, through: Through
) -> Iterator[list[Result]]:
    if jobs <= 1:
        for file in files:
            yield _run_file(file, selector, chosen, through)
        return
    # A started OpenCL runtime does not survive a fork.
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        try:
            with _interrupts_ignored():
                futures = [pool.submit(_run_file, file, selector, chosen, through) for file in files]
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(multiprocessing.active_children()).difference(others):
                worker.terminate()
            raise


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Start processes that Ctrl-C is nothing to: it is their parent's. Only a main thread can say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run_file(file: Path, selector: str | None, chosen: Filter, through: Through) -> list[Result]:
    if through == Through.SPLIT:
        logging.getLogger("nn_runtime").setLevel(logging.ERROR)  # fallbacks are to be expected
    runner = make_runner(_select(selector), through)
    return [
        run_example(example, kind, runner)
        for example in read_spec(file)
        if chosen.accepts(example)
        for kind in example.kinds
        if kind in chosen.kinds
    ]


def _verdict(example: Example, kind: Kind, runner: Runner) -> tuple[Verdict, str]:
    missing = _missing_definition(example)
    if missing:
        return Verdict.UNSUPPORTED, missing
    try:
        for attempt, outcomes in enumerate(runner.run(example, kind), 1):
            problem = _judged(example, outcomes)
            if problem:
                return Verdict.FAILED, problem if attempt == 1 else f"execution {attempt}: {problem}"
    except Unsupported as refusal:
        return Verdict.UNSUPPORTED, str(refusal)
    except (NNError, HalError) as error:
        return _judged_error(example, error)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return Verdict.FAILED, f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"
    return (Verdict.FAILED, "wanted a failure, but it ran") if example.expect_failure else (Verdict.PASSED, "")


def _missing_definition(example: Example) -> str:
    known = definitions()
    names = {op.type.name for graph in example.graphs for op in graph.operations if op.type not in known}
    return f"no definition for {', '.join(sorted(names))} yet" if names else ""


def _judged(example: Example, outcomes: Sequence[Outcome]) -> str:
    if example.expect_failure:
        return "wanted a failure, but it ran"
    problems = (judge(example, i, outcome.dimensions, outcome.data) for i, outcome in enumerate(outcomes))
    return next((problem for problem in problems if problem), "")


def _judged_error(example: Example, error: NNError | HalError) -> tuple[Verdict, str]:
    what = error.status.name if isinstance(error, HalError) else error.code.name
    if not example.expect_failure:
        return Verdict.FAILED, f"{what}: {error}"
    crash = _crash_behind(error)
    if crash is not None:
        return Verdict.FAILED, f"wanted a refusal, got a crash: {type(crash).__name__}: {crash}"
    if example.infinite_loop and not what.startswith("MISSED_DEADLINE"):
        return Verdict.FAILED, f"wanted MISSED_DEADLINE, got {what}: {error}"
    return Verdict.PASSED, ""


def _crash_behind(error: BaseException) -> BaseException | None:
    """Return the foreign exception that a failure was made from, if there is one: a crash is no refusal."""
    cause: BaseException | None = error
    while isinstance(cause, (NNError, HalError)):
        cause = cause.__cause__
    return cause
