"""A fault at every await of supervisor and dispatcher: no stream waits for ever.

The sources are rewritten so that each `await` and `async with` asks a plan first. For each of them
that a short life of a server reaches (start, a stream, a worker that dies in it, its resume, the
next stream), there is a run in which it raises OSError before or after its work, and one in which
it never returns. The process, its sockets and its death are real.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import sys
import time
import warnings
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import pytest

from nightingale.errors import NightingaleError
from nightingale.server.worker_request import WorkerRequest
from tests.server.scripted import N_CHUNK, N_CHUNKS, Scripted

MODULES = ("process", "supervisor", "admission", "link", "dispatch")  # each after what it imports
LIMITS = {  # of time, scaled down from minutes to what a test can wait for
    "_MAX_START_S": 3.0, "_MAX_WAIT_S": 3.0, "_MAX_OPEN_S": 8.0, "_HELLO_S": 1.0,
    "_PATIENCE_S": 4.0, "_TERMINATE_S": 0.5, "_REAP_S": 0.5, "_CLOSE_S": 0.5, "_FAREWELL_S": 0.5,
    "_SILENT_S": 3.0, "_PING_S": 1.0,
}  # fmt: skip
MAX_WAIT_S = 10.0
OWN = ("speak", "speak_at_once", "_opened")  # run in the client's task: it ends with its client
RAMP = np.arange(N_CHUNK * N_CHUNKS, dtype=np.float32)

Kind = Literal["error before", "error after", "hang"]


@dataclass
class Plan:
    """Which await of one run fails, and how."""

    kind: Kind | None = None
    number: int = -1
    sites: list[str] = field(default_factory=list)  # awaits so far

    def is_due(self, site: str) -> bool:
        self.sites.append(site)
        return len(self.sites) - 1 == self.number


PLAN: ContextVar[Plan] = ContextVar("plan")


async def inject(site: str, work: Awaitable[Any]) -> Any:
    plan = PLAN.get(Plan())
    if not plan.is_due(site):
        return await work
    if plan.kind == "error after":
        await work
    elif hasattr(work, "close"):
        work.close()
    if plan.kind == "hang":
        await asyncio.get_running_loop().create_future()
    raise OSError(f"injected at {site}")


class Injected:
    """An asynchronous context whose entering may fail."""

    def __init__(self, site: str, context: Any) -> None:
        self._site, self._context = site, context

    async def __aenter__(self) -> Any:
        plan = PLAN.get(Plan())
        entered = await self._context.__aenter__()
        if plan.is_due(self._site):
            error = OSError(f"injected at {self._site}")
            if plan.kind != "hang":
                await self._context.__aexit__(OSError, error, None)
                raise error
            try:
                await asyncio.get_running_loop().create_future()
            except BaseException as stop:
                if await self._context.__aexit__(type(stop), stop, None):
                    raise error from stop
                raise
        return entered

    async def __aexit__(self, *given: Any) -> Any:
        return await self._context.__aexit__(*given)


class Rewrite(ast.NodeTransformer):
    def __init__(self, name: str) -> None:
        self._name = name

    def _call(self, function: str, node: ast.AST, inner: ast.expr) -> ast.Call:
        site = ast.Constant(f"{self._name}.py:{getattr(node, 'lineno', 0)} {ast.unparse(inner)}")
        return ast.Call(ast.Name(function, ast.Load()), [site, inner], [])

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node if node.name in OWN else self.generic_visit(node)

    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        return ast.Await(self._call("inject_await", node, node.value))

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        self.generic_visit(node)
        for item in node.items:
            item.context_expr = self._call("InjectedContext", node, item.context_expr)
        return node


@pytest.fixture
def rewritten(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """All names of the modules, as they are with a fault at every await."""
    names: dict[str, Any] = {}
    for name in MODULES:
        spec = find_spec(f"nightingale.server.{name}")
        if spec is None or spec.origin is None:
            continue
        module = ModuleType(spec.name)
        module.__file__ = spec.origin
        tree = Rewrite(name).visit(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
        module.__dict__.update({"inject_await": inject, "InjectedContext": Injected})
        monkeypatch.setitem(sys.modules, spec.name, module)
        exec(compile(ast.fix_missing_locations(tree), spec.origin, "exec"), module.__dict__)
        for limit, seconds in LIMITS.items():
            if limit in module.__dict__:
                module.__dict__[limit] = seconds
        names |= module.__dict__
    return names


async def listen(dispatcher: Any, text: str) -> str:
    """How a stream ended; that it ends is the point, and that it is whole if it says so."""
    heard: list[Any] = []
    try:
        async with dispatcher.speak(WorkerRequest({}, [text])) as utterance:
            async for event in utterance:
                heard.append(event)
            assert utterance.outcome.ending == "stop"
    except (NightingaleError, OSError) as error:
        return type(error).__name__
    assert np.array_equal(np.concatenate(heard), RAMP), "a stream that ended well is not whole"
    return "whole"


class Lag:
    """How long this process itself did not get to run: nobody waits for that."""

    total_s = 0.0

    async def measure(self) -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.05)
            self.total_s += max(0.0, time.monotonic() - begun - 0.1)


async def live(
    names: dict[str, Any], folder: Path, plan: Plan, lag: Lag
) -> tuple[list[str], float]:
    """A server's life; how its streams ended, and how long the longest of them took."""
    PLAN.set(plan)
    folder.mkdir()
    supervisor = names["Supervisor"](Scripted(folder), folder)
    dispatcher = names["Dispatcher"](supervisor, names["Limits"](keep_alive_s=30))
    endings, longest_s = [], 0.0
    with suppress(NightingaleError, OSError):
        await asyncio.wait_for(dispatcher.start(), 2 * MAX_WAIT_S)
    for text in ("this one shall die", "next"):
        begun, lag_s = time.monotonic(), lag.total_s
        try:
            endings.append(await asyncio.wait_for(listen(dispatcher, text), 2 * MAX_WAIT_S))
        except TimeoutError:
            endings.append("waits for ever")
        longest_s = max(longest_s, time.monotonic() - begun - (lag.total_s - lag_s))
    with suppress(NightingaleError, OSError, TimeoutError):
        await asyncio.wait_for(dispatcher.stop(0.0), MAX_WAIT_S)
    if supervisor.pid is not None:
        supervisor.kill()
    return endings, longest_s


async def sweep(names: dict[str, Any], folder: Path) -> list[tuple[str, list[str], float]]:
    """One run without a fault, to see what there is; then all others, some beside each other."""
    reference, lag = Plan(), Lag()
    measuring = asyncio.create_task(lag.measure())
    endings, _ = await asyncio.create_task(live(names, folder / "reference", reference, lag))
    assert endings == ["whole", "whole"]
    beside = asyncio.Semaphore(16)

    async def run(kind: Kind, number: int) -> tuple[str, list[str], float]:
        plan = Plan(kind, number)
        async with beside:
            endings, longest_s = await live(names, folder / f"{kind}-{number}", plan, lag)
        site = plan.sites[number] if number < len(plan.sites) else "not reached"
        return f"{kind} at {site}", endings, longest_s

    kinds: tuple[Kind, ...] = ("error before", "error after", "hang")
    runs = [run(kind, n) for kind in kinds for n in range(len(reference.sites))]
    results = await asyncio.gather(*runs)
    measuring.cancel()
    return list(results)


@pytest.mark.slow
def test_no_stream_waits_for_ever_whatever_await_fails(
    rewritten: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what injected faults left unclosed and not awaited
        results = asyncio.run(sweep(rewritten, tmp_path))
        gc.collect()
    faults = [result for result in results if "not reached" not in result[0]]
    late = [result for result in faults if result[2] > MAX_WAIT_S]
    sick = [result for result in faults if result[1][1] != "whole"]
    counts = Counter(ending for _, endings, _ in faults for ending in endings)
    with capfd.disabled():
        print(f"\n{len(faults)} faults, {dict(counts)}, longest {max(r[2] for r in faults):.1f} s")
        for result in [*late, *sick]:
            print("  ", *result)
    assert len(faults) > 60, "the sources were not rewritten"
    assert not late, late
    assert len(sick) <= len(faults) // 20, "the stream after a fault should be well again"
