"""Everything runs on another device: placement is proven on one that is pretended.

Its numbers are the CPU's, so what is said there must be what is said on the host.
"""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
import torch
import torch.nn.functional as F
from torch import Tensor

import nightingale
from nightingale import Nightingale
from nightingale.backends.base import TokenRequest, TokenWindow, WindowJob
from nightingale.backends.torch.decoder import WindowedDecoder
from nightingale.backends.torch.flow import encoder
from nightingale.backends.torch.flow.model import CONFIGS as FLOW_CONFIGS
from nightingale.backends.torch.flow.model import Flow, FlowChunk
from nightingale.backends.torch.flow.window import JointWindow
from nightingale.backends.torch.slot_engine import SlotTokenEngine
from nightingale.backends.torch.t3.model import CONFIGS, T3
from nightingale.backends.torch.t3.slots import SlotStep
from nightingale.backends.torch.vocoder import stft
from nightingale.core import PLANS, Family, FlowPrompt, Plan
from nightingale.families import FAMILIES as FAMILY_SPECS
from nightingale.loader import LoadOptions
from nightingale.measure import limits, self_test
from nightingale.measure.bench import bench
from nightingale.measure.random_model import random_components, random_voice
from nightingale.measure.stages import torch_stages
from nightingale.measure.verify import Verifier
from nightingale.nn import deterministic, device
from nightingale.nn.device import Placement
from nightingale.nn.meta_init import meta_init
from nightingale.noise import NoiseStream, exponential
from nightingale.voice.clone import clone
from nightingale.windowing import token_windows
from tests.backends.torch import pretend
from tests.backends.torch.flow.tiny import tiny_prompt
from tests.backends.torch.pretend import HiddenSyncError, Machine, WrongDeviceError
from tests.backends.torch.vocoder.small import small_vocoder
from tests.server.running import serving
from tests.tiny import tiny_t3, tiny_text, tiny_voice
from tests.tiny_release import Releases, release_flow

FAMILIES = ("english", "multilingual-hi", "turbo", "nano")
TEXT = "The billing issue is resolved."
WINDOWS = Plan("windows", prompt_cache=True, window_sizes=(3, 5), trims_silence=True)
SITE = Path(__file__).parent / "pretend_site"
PYTHONPATH = os.pathsep.join((str(SITE), str(Path(nightingale.__file__).parents[1])))


@pytest.fixture(params=[False, True], ids=["cuda", "mps"])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with pretend.pretending(mps=request.param) as there:
        yield there


@pytest.fixture
def gpu() -> Iterator[Machine]:
    with pretend.pretending() as there:
        yield there


@pytest.fixture
def plain_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums on the host are cut as on devices, that is, not at all: the numbers are the same."""
    monkeypatch.setattr(deterministic, "HOST", torch.device("meta"))


def load(model: str | Path, where: str, **wanted: Any) -> Nightingale:
    return Nightingale.load(model, device=where, **wanted)


# The device itself.


def test_mixed_devices_are_refused(gpu: Machine) -> None:
    here, there = torch.ones(3), torch.ones(3, device=pretend.NAME)
    assert there.device.type == pretend.NAME
    assert torch.equal((there + there * torch.tensor(2.0)).cpu(), 3 * here)
    mixes: tuple[Callable[[], Any], ...] = (
        lambda: here + there, lambda: torch.cat((there, here)), lambda: there @ here
    )  # fmt: skip
    for mix in mixes:
        with pytest.raises(WrongDeviceError, match="expected all tensors on pretend"):
            mix()
    with pytest.raises(TypeError, match="to numpy"):
        there.numpy()
    there[1:] = 5  # views are views
    assert there.cpu().tolist() == [1, 5, 5]


def test_float64_is_refused_where_mps_is_pretended() -> None:
    with pretend.pretending(mps=True), pytest.raises(WrongDeviceError, match="float64"):
        torch.arange(3, dtype=torch.float64).to(pretend.NAME)
    with pretend.pretending():
        torch.arange(3, dtype=torch.float64).to(pretend.NAME)


def test_waiting_for_the_device_is_found(gpu: Machine) -> None:
    there = torch.ones(3, device=pretend.NAME)
    waits = (
        lambda: float(there[0]), there.cpu, lambda: bool(there.sum() > 1),
        there.nonzero, lambda: torch.get_device_module(there.device).synchronize(),
    )  # fmt: skip
    for wait in waits:
        n_before = gpu.n_syncs
        wait()
        assert gpu.n_syncs > n_before
        with pretend.without_syncs(), pytest.raises(HiddenSyncError):
            wait()
    with pretend.without_syncs():
        torch.softmax(there * 2, 0)


def test_a_mask_that_cuda_cannot_read_is_refused(gpu: Machine) -> None:
    """As the encoder's was: 8 new tokens behind 17, T - 1 floats into their storage."""
    queries, keys = (torch.ones(1, 1, n, 8, device=pretend.NAME) for n in (8, 17))
    mask = encoder.align_distances(torch.zeros(1, 1, 8, 25, device=pretend.NAME))
    with pytest.raises(WrongDeviceError, match="misaligned"):
        F.scaled_dot_product_attention(queries, keys, keys, attn_mask=mask)
    F.scaled_dot_product_attention(queries, keys, keys, attn_mask=mask.contiguous())


# The whole of it.


@pytest.mark.slow
@pytest.mark.usefixtures("plain_products")
@pytest.mark.parametrize("plan", [PLANS["reference"], WINDOWS], ids=lambda plan: plan.name)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_says_there_what_it_says_here(
    gpu: Machine, releases: Releases, name: str, plan: Plan
) -> None:
    here, there = (load(releases(name), where, plan=plan) for where in ("cpu", pretend.NAME))
    assert torch_stages(there.components).t3.speech_emb.weight.device.type == pretend.NAME
    wanted, made = (tts.say("Yes.", seed=3, max_tokens=7) for tts in (here, there))
    assert made.tokens == wanted.tokens
    # Watermarked, both of them; random weights make 1e-4 of another order of summing up.
    assert np.abs(made.samples - wanted.samples).max() < 1e-3
    assert made.plan == plan
    assert sum(gpu.n_kernels.values()) > 1000


@pytest.mark.slow
@pytest.mark.usefixtures("plain_products")
@pytest.mark.parametrize("plan", ["reference", "live"])
def test_the_bundled_model_speaks_there(gpu: Machine, plan: str) -> None:
    wanted = {"decoder": "meanflow", "watermark": False}
    said = replace(PLANS[plan], t3="fp32", flow="fp32", vocoder="fp32")
    here = load("fledgling", "cpu", plan=said, **wanted).say("Yes.", max_tokens=12)
    made = load("fledgling", pretend.NAME, plan=plan, **wanted).say("Yes.", max_tokens=12)
    assert made.tokens == here.tokens
    assert np.abs(made.samples - here.samples).max() < 1e-4
    assert made.plan is not None
    assert made.plan.t3 == "fp32"  # packed weights are the CPU's


@pytest.mark.slow
def test_half_precision_runs_where_the_device_has_it(
    gpu: Machine, releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Placement, "has_bf16", property(lambda _placement: True))
    for name in ("english", "nano"):
        tts = load(releases(name), pretend.NAME, plan="live")
        stages = torch_stages(tts.components)
        assert (tts.components.plan.t3, tts.components.plan.flow) == ("bf16", "bf16")
        assert stages.t3.speech_emb.weight.dtype is torch.bfloat16
        assert stages.flow.estimator.dtype is torch.bfloat16
        assert stages.vocoder.dtype is torch.float32
        samples = tts.say(TEXT, max_tokens=10).samples
        assert np.isfinite(samples).all()
        assert np.abs(samples).max() > 0


@pytest.mark.slow
def test_a_state_that_was_bytes_goes_on_there(gpu: Machine, releases: Releases) -> None:
    components = load(releases("english"), pretend.NAME, plan=WINDOWS).components
    decoder, prompt = components.loaded.wave_decoder, components.voice.flow
    first, second = list(filter(None, token_windows(range(9), (3, 5))))[:2]
    (begun,) = decoder.decode([WindowJob(first, decoder.start(prompt, 1))])
    states = begun.state, decoder.restore(begun.state.to_bytes(), prompt, 1)
    whole, restored = (decoder.decode([WindowJob(second, s)])[0].samples for s in states)
    assert np.array_equal(whole, restored)


def shared_windows(decoder: WindowedDecoder, prompts: list[FlowPrompt]) -> list[Any]:
    """The samples of one window of each, decoded in one call."""
    tokens = [torch.arange(7 * n, 7 * n + 15).tolist() for n in range(len(prompts))]
    windows = [TokenWindow(row, is_last=False) for row in tokens]
    starts = [decoder.start(prompt, n) for n, prompt in enumerate(prompts)]
    jobs = [WindowJob(window, at) for window, at in zip(windows, starts, strict=True)]
    return [one.samples for one in decoder.decode(jobs)]


@pytest.mark.slow
def test_windows_share_a_pass_of_fixed_shape_there(
    gpu: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Alone or in company, each sounds the same; a leak between requests is found."""
    flow = release_flow("meanflow").to(pretend.NAME)
    vocoder = small_vocoder().to(pretend.NAME)
    plan = replace(WINDOWS, window_slots=3)
    decoder = WindowedDecoder(flow, vocoder, plan, drops_last=False, max_prompt_bytes=2**30)
    prompts = [tiny_prompt(n, 9 + n) for n in range(3)]
    alone = shared_windows(decoder, prompts[:1])
    together = shared_windows(decoder, prompts)
    assert len(alone[0])
    assert np.array_equal(alone[0], together[0])
    assert not np.array_equal(together[0], together[1])
    plain = JointWindow.attend

    def leaky(self: Any, attention: Any, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return plain(self, attention, queries + 1e-3 * queries.roll(1, 0), keys, values)

    monkeypatch.setattr(JointWindow, "attend", leaky)
    assert not np.array_equal(shared_windows(decoder, prompts)[0], together[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["english", "nano"])
def test_a_voice_is_cloned_there(
    machine: Machine, releases: Releases, recording: Path, name: str
) -> None:
    wave = np.tile(soundfile.read(recording, dtype="float32")[0], 2)
    models = [load(releases(name), where) for where in ("cpu", pretend.NAME)]
    family = models[0].components.model.family
    here, there = (clone(wave, tts.cloner.load_encoders(), family) for tts in models)
    assert np.array_equal(there.t3.tokens, here.t3.tokens)
    assert np.array_equal(there.flow.tokens, here.flow.tokens)
    for made, wanted in (
        (there.t3.speaker, here.t3.speaker),
        (there.flow.mel, here.flow.mel),
        (there.flow.xvector, here.flow.xvector),
    ):
        assert np.abs(made - wanted).max() < 1e-4


@pytest.mark.slow
def test_verify_and_bench_run_there(
    machine: Machine, releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SIDE", 64)
    monkeypatch.setattr(limits, "MAX_BYTES", 2**20)
    reference = load(releases("english"), pretend.NAME, watermark=False)
    other = load(releases("english"), pretend.NAME, watermark=False, plan="live")
    verdict = Verifier(reference, ["Hello there."], max_tokens=8).verify(other)
    assert verdict.facts()["top-1 agreement"] == 1.0
    result = bench(other, n_trials=1, seconds=0.4)
    assert result.peak_mb == 1.0  # the device's own count


@pytest.mark.slow
def test_random_weights_of_a_packed_plan_run_there(gpu: Machine) -> None:
    """They were packed on the device and handed to C by address, which ended the process."""
    wanted = LoadOptions(device=pretend.NAME, plan=PLANS["balanced"])
    tts = Nightingale(random_components("nano", wanted))
    assert len(tts.say("Hello.", max_tokens=2).samples)


# No hidden waiting.


@pytest.mark.parametrize("name", [pytest.param("english", marks=pytest.mark.slow), "nano"])
def test_flow_and_vocoder_never_wait_for_the_device(
    gpu: Machine, releases: Releases, name: str
) -> None:
    tts = load(releases(name), pretend.NAME, plan=WINDOWS)
    stages, prompt = torch_stages(tts.components), tts.components.voice.flow
    codes = torch.arange(8)
    with pretend.without_syncs():
        state = stages.flow.prefill(prompt)
        mel, _ = stages.flow.render_chunk(codes, prompt, state, 1)
        stages.vocoder.vocode(mel, 1)
        stages.flow.render(codes, prompt, 1)


@pytest.mark.slow
def test_a_token_waits_a_few_times_at_most(gpu: Machine, releases: Releases) -> None:
    for name, most in (("english", 2), ("multilingual-hi", 5), ("nano", 2)):
        tts = load(releases(name), pretend.NAME)
        n_syncs: list[int] = []

        def note(_n_tokens: int, seen: list[int] = n_syncs) -> None:
            seen.append(gpu.n_syncs)

        tts.say(TEXT, max_tokens=8, progress=note)
        steps = [after - before for before, after in itertools.pairwise(n_syncs)]
        assert max(steps) <= most, name


# Planted faults.


def _noise_left_on_the_host(self: T3, seed: int) -> Any:
    n = self.config.n_speech
    return lambda index: torch.from_numpy(exponential(seed, NoiseStream.TOKENS, index, n))


def _through_waves_on_the_host(blocks: Any, x: Any, mask: Any, window: Any) -> Any:
    waves = functools.partial(encoder.distance_waves, x.shape[1], x.shape[2])
    for block in blocks:
        x = block(x, waves, mask, window)
    return x


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "name", "fault", "message"),
    [
        (T3, "_noise", _noise_left_on_the_host, "expected all tensors on pretend"),
        (stft, "_like", lambda x, table: table.to(x.device), "float64"),
        (encoder, "_through", _through_waves_on_the_host, "expected all tensors on pretend"),
    ],
)
def test_planted_faults_are_caught(
    releases: Releases,
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    fault: Any,
    message: str,
) -> None:
    with pretend.pretending(mps=True):
        tts = load(releases("english"), pretend.NAME)
        tts.say(TEXT, max_tokens=4)
        monkeypatch.setattr(place, name, fault)
        with pytest.raises(WrongDeviceError, match=message):
            tts.say(TEXT, max_tokens=4)


@pytest.mark.slow
def test_a_planted_wait_is_caught(
    gpu: Machine, releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    tts = load(releases("english"), pretend.NAME, plan=WINDOWS)
    stages, prompt = torch_stages(tts.components), tts.components.voice.flow
    plain = encoder.align_distances
    monkeypatch.setattr(
        encoder, "align_distances", lambda scores: plain(scores * (1 + 0 * float(scores.max())))
    )
    with pretend.without_syncs(), pytest.raises(HiddenSyncError):
        stages.flow.prefill(prompt)


# The self-test.


@pytest.mark.slow
def test_auto_falls_back_to_the_cpu_where_the_self_test_fails(
    gpu: Machine, releases: Releases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: attention with its values in the wrong order."""
    monkeypatch.setattr(device, "_BY_SPEED", (pretend.NAME, "cpu"))
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    good, bad = tmp_path / "good", tmp_path / "bad"
    trusted = Nightingale.load(releases("english"), home=good).components.resolved
    assert trusted.device == pretend.NAME
    monkeypatch.setenv("PRETEND_FAULT", "attention")
    kept = Nightingale.load(releases("english"), home=good).components.resolved
    assert kept.device == pretend.NAME  # it is run once
    fallen = Nightingale.load(releases("english"), home=bad).components.resolved
    assert fallen.device == "cpu"
    assert "pretend failed the self-test: speech token 1 is wrong" in str(fallen)


@pytest.mark.slow
def test_the_self_test_finds_a_fault_of_slots(
    gpu: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert self_test.difference("torch", pretend.NAME) == ""
    draw = SlotStep._draw

    def wrong(self: SlotStep, logits: Tensor, *rest: Any) -> Tensor:
        return draw(self, -logits, *rest)

    monkeypatch.setattr(SlotStep, "_draw", wrong)
    found = self_test.difference("torch", pretend.NAME)
    assert found == "speech token 2 is wrong with slots"
    assert self_test.difference("torch", "cpu") == ""


# Real processes.


def run(*arguments: str | Path, home: Path) -> subprocess.CompletedProcess[bytes]:
    environ = {**os.environ, "PYTHONPATH": PYTHONPATH, "NIGHTINGALE_HOME": str(home)}
    command = [sys.executable, "-m", "nightingale", *map(str, arguments)]
    return subprocess.run(command, env=environ, capture_output=True, check=False)


@pytest.mark.slow
def test_the_command_speaks_there(releases: Releases, tmp_path: Path) -> None:
    common = ("--model", releases("english"), "--device", pretend.NAME)
    for stream in ((), ("--stream",)):
        file = tmp_path / "out.wav"
        done = run("say", TEXT, *common, "--max-tokens", "6", "-o", file, *stream, home=tmp_path)
        assert done.returncode == 0, done.stderr.decode()
        assert b"plan auto on pretend (pretend was asked for): t3=fp32 (no bfloat16" in done.stderr
        assert (b"for streaming" in done.stderr) is bool(stream)
        assert soundfile.info(file).frames > 1000


@pytest.mark.slow
def test_a_server_speaks_there(releases: Releases, tmp_path: Path) -> None:
    flags = ("--device", pretend.NAME)
    with serving(releases("english"), tmp_path, {}, *flags, PYTHONPATH=PYTHONPATH) as server:
        body = server.body(TEXT, max_tokens=9, seed=3)
        reply = httpx.post(f"{server.url}/v1/audio/speech", json=body, timeout=60)
        assert reply.status_code == 200, reply.text
        assert reply.headers["x-plan"].startswith(
            "auto; t3=fp32; flow=fp32; vocoder=fp32; slots=8; windows=8"
        )
        assert reply.headers["x-plan"].endswith("; device=pretend")
        assert len(reply.content) > 1000
        assert "plan auto on pretend" in server.log.read_text()


# Budgets, by shapes: what a step and a render ask of a device, full size.

MAX_STEP_KERNELS = 850
MAX_RENDER_KERNELS = 10_000


@pytest.fixture
def shapes() -> Iterator[Machine]:
    with pretend.pretending() as there:
        there.shapes_only = True
        yield there


def full_size_step(family: Family, n_slots: int) -> SlotStep:
    with meta_init():
        t3 = T3(CONFIGS[family])
    pretend.as_shapes(t3.eval().requires_grad_(False))
    return SlotStep(t3, n_slots)


@pytest.mark.parametrize(
    "n_slots",
    [pytest.param(1, marks=pytest.mark.slow), 4, pytest.param(32, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("family", ["multilingual", pytest.param("turbo", marks=pytest.mark.slow)])
def test_a_step_is_captured_within_its_budget(
    shapes: Machine, family: Family, n_slots: int
) -> None:
    step = full_size_step(family, n_slots)
    shapes.n_kernels.clear()
    with pretend.capturing() as first:
        step(512)
    assert 300 < shapes.n_kernels.total() <= MAX_STEP_KERNELS
    assert (shapes.n_syncs, shapes.n_copies) == (0, 0)
    with pretend.capturing() as second:
        step(512)
    assert first == second


def test_steps_that_cannot_be_captured_are_refused(
    gpu: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait, a number from the host, and a shape that follows the length."""
    t3 = tiny_t3().to(pretend.NAME)
    step, draw = SlotStep(t3, 2), SlotStep._draw
    step.active.fill_(True)

    def waiting(self: SlotStep, logits: Tensor, *rest: Any) -> Tensor:
        assert float(logits[0, 0]) < torch.inf
        return draw(self, logits, *rest)

    def copying(self: SlotStep, logits: Tensor, *rest: Any) -> Tensor:
        return draw(self, logits.mul_(torch.ones(1).to(logits.device)), *rest)

    for broken in (waiting, copying):
        with monkeypatch.context() as patch, pretend.capturing():
            patch.setattr(SlotStep, "_draw", broken)
            with pytest.raises(HiddenSyncError):
                step(512)
    with pretend.capturing() as first:
        step(512)
    with pretend.capturing() as second:
        step(640 if step.reserve(640) else 0)
    assert first != second


@pytest.mark.slow
def test_one_read_back_is_all_that_a_token_costs(gpu: Machine) -> None:
    engine = SlotTokenEngine(tiny_t3().to(pretend.NAME), 4)
    options = replace(FAMILY_SPECS["multilingual"].options, max_tokens=40)
    live = [
        engine.add(TokenRequest(tiny_text(n), tiny_voice(n), replace(options, seed=n)))
        for n in range(3)
    ]
    for _ in range(3):
        engine.step(live)
    gpu.n_syncs = gpu.n_copies = 0
    for _ in range(10):
        engine.step(live)
    assert (gpu.n_syncs, gpu.n_copies) == (10, 0)


@pytest.mark.slow
def test_a_render_stays_within_its_budget(shapes: Machine) -> None:
    """Five seconds behind a recording of ten, in ten steps; every step after the first is alike."""
    config = FLOW_CONFIGS["standard"]
    with meta_init():
        flow = Flow(config)
    pretend.as_shapes(flow.eval().requires_grad_(False))
    totals = [0]
    for n_steps in (1, 2):
        schedule = replace(config.schedule, n_steps=n_steps)
        tokens, prompt = torch.zeros(125, dtype=torch.int64), random_voice(150, 10.0).flow
        flow.render(tokens, prompt, 0, schedule=schedule)
        totals.append(shapes.n_kernels.total())
    one, two = totals[1], totals[2] - totals[1]
    assert 5_000 < one + (config.schedule.n_steps - 1) * (two - one) <= MAX_RENDER_KERNELS
    assert shapes.n_syncs == 0


@pytest.mark.slow
def test_windows_of_four_requests_are_far_fewer_kernels_than_four_windows(shapes: Machine) -> None:
    config = FLOW_CONFIGS["meanflow"]
    with meta_init():
        flow = Flow(replace(config, estimator=replace(config.estimator, n_mid_blocks=2)))
    pretend.as_shapes(flow.eval().requires_grad_(False))
    prompt = random_voice(150, 10.0).flow
    state = flow.prefill(prompt)
    chunks = [FlowChunk(torch.arange(11), prompt, state, seed) for seed in range(4)]

    def n_kernels(work: list[FlowChunk], n_rows: int) -> int:
        before = shapes.n_kernels.total()
        flow.render_chunks(work, n_ahead=3, n_rows=n_rows)
        return shapes.n_kernels.total() - before

    one, padded, four = n_kernels(chunks[:1], 1), n_kernels(chunks[:1], 4), n_kernels(chunks, 4)
    assert padded < 1.3 * one
    assert four < 0.6 * 4 * one
    assert shapes.n_syncs == 0
