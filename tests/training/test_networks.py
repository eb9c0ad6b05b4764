"""The networks as training runs them: the same function as at inference, and a loss that falls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.audio.mel import token_log_mel
from nightingale.backends.torch.flow.model import Flow
from nightingale.backends.torch.t3.model import T3, Utterance
from nightingale.backends.torch.vocoder.model import excitation, sound
from nightingale.measure.stages import torch_stages
from nightingale.pipeline import Nightingale
from nightingale.weights.manifest import BUNDLE
from training import codes, flow, speakers, speech_tokenizer, t3, vocoder, world
from training.batch import IGNORED, Batch
from training.loop import Losses


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def flow_batch(n_tokens: int = 24) -> flow.Batch:
    mask = flow.window_mask(n_tokens, 4, np.random.default_rng(0))
    mel = torch.randn(2, 2 * n_tokens, 80)
    tokens, xvector = torch.randint(6561, (2, n_tokens)), torch.randn(2, speakers.D_XVECTOR)
    return flow.Batch(tokens, mel, xvector, 4, mask)


def falls(net: nn.Module, losses: Callable[[], Losses], n_steps: int = 8, lr: float = 1e-3) -> bool:
    """On one batch with the same random numbers in each step."""
    optimizer, found = torch.optim.Adam(net.parameters(), lr), []
    for _ in range(n_steps):
        torch.manual_seed(1)
        loss = losses()["loss"]
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        found.append(float(loss.detach()))
    return found[-1] < 0.98 * found[0]


@torch.inference_mode()
def test_flow_velocity_in_training_is_the_estimators() -> None:
    net, batch = Flow(flow.config()), flow_batch()
    flow.init_noise_path(net.estimator)
    x, time = torch.randn_like(batch.mel), torch.full((2,), 0.3)
    mu, known = flow.conditioning(net, replace(batch, mask=None))
    _, speaker, cond = known.chunk(3, dim=-1)
    context = net.estimator.context(mu, speaker[:, 0], cond, guided=False)
    shifts = net.estimator.shifts(time[:1], time[:1])[0]
    wanted = net.estimator(x, context, shifts)
    found = flow.velocity(net.estimator, x, known, time, time, None)
    assert torch.allclose(found, wanted, atol=1e-4)
    later = flow.velocity(net.estimator, x, known, time + 0.3, time + 0.3, None)
    assert not torch.allclose(later, wanted, atol=1e-2)


@pytest.mark.slow
def test_flow_loss_falls() -> None:
    net, batch = Flow(flow.config()), flow_batch()
    flow.init_noise_path(net.estimator)
    codes.add_digit_embedding(net.input_embedding, 1.0)
    assert falls(net, lambda: flow.losses(net, batch))


def t3_batch(n_speech: int = 20) -> Batch:
    text = F.pad(torch.randint(3, 29, (2, 10)), (1, 1), value=0)
    text[:, 0] = 255
    speech, prompt = torch.randint(6561, (2, n_speech)), torch.randint(6561, (2, 40))
    place = torch.linspace(1, 10, n_speech).expand(2, -1)
    wanted = speech.clone()
    wanted[1, -3:] = IGNORED
    return Batch(text, speech, wanted, place, prompt, F.normalize(torch.randn(2, 256)))


def test_t3_states_in_training_give_the_logits_of_inference(tmp_path: Path) -> None:
    components = Nightingale.load(BUNDLE, home=tmp_path).components
    net, prompt = torch_stages(components).t3, components.voice.t3
    options = replace(components.spec.options, cfg_weight=0.0, exaggeration=t3.EXAGGERATION)
    ids = components.tokenizer.encode("The cat sat.", options.language)
    speech = torch.randint(6561, (1, 12))
    text, speaker = torch.tensor(ids)[None], torch.from_numpy(prompt.speaker)[None]
    nowhere = torch.zeros(1, 12)
    batch = Batch(
        text, speech, speech, nowhere, torch.from_numpy(prompt.tokens)[None].long(), speaker
    )
    with torch.inference_mode():
        states, *_ = t3.hidden_states(net, batch, torch.ones(1))
        utterance = Utterance(net, ids, net.prefix(prompt, options.exaggeration), options, None)
        wanted = [utterance.first()]
        wanted += [utterance.next(token, i) for i, token in enumerate(speech[0, :-1])]
        found = F.linear(states[0], net.speech_head.weight)
    assert torch.allclose(found, torch.stack(wanted).float(), atol=2e-3)


def test_t3_loss_falls_and_its_heads_begin_to_align() -> None:
    net = T3(t3.DRAFT)
    t3.init_small(net)
    for layer in (net.speech_emb, net.speech_head):
        codes.add_digit_embedding(layer, 0.05)
    objective, batch = t3.Objective(net), t3_batch()
    first = objective.losses(batch, plain=True)["alignment"]
    assert falls(net, lambda: objective.losses(batch))
    assert objective.losses(batch, plain=True)["alignment"] < first


def test_code_rows_are_merged_as_they_are() -> None:
    table = nn.Embedding(6563, 8)
    codes.add_digit_embedding(table, 0.05)
    before = table.weight.detach().clone()
    alike = F.cosine_similarity(before[0], before[1], dim=0)  # they differ in one digit
    assert alike > F.cosine_similarity(before[0], before[6560], dim=0)  # and these in all
    codes.merge_digit_embedding(table)
    assert torch.equal(table.weight, before)


def vocoder_segments() -> vocoder.Segments:
    """A vowel and its analysis, made up."""
    n, n_fine = vocoder.N_FRAMES, world.PER_FRAME * vocoder.N_FRAMES + 1
    time = torch.arange(n * 480) / 24_000
    tone = 0.1 * sum((2 * torch.pi * 150 * k * time).sin() / k for k in range(1, 20))
    envelope = torch.linspace(-3, -9, world.N_BINS)[:, None].expand(2, -1, n_fine)
    return vocoder.Segments(
        torch.full((2, 80, n), -5.0) + 0.1 * torch.randn(2, 80, n),
        torch.full((2, n), 220.0),
        torch.ones(2, n) > 0,
        envelope - 1,
        envelope - 3,
        envelope,
        torch.as_tensor(tone).expand(2, -1),
        vocoder.EDGE,
        n - vocoder.EDGE,
    )


@torch.inference_mode()
def test_vocoder_filter_in_training_is_that_of_inference() -> None:
    net, mel = vocoder.new_vocoder(), vocoder_segments().mel
    source = vocoder.source(net, torch.full((2, vocoder.N_FRAMES), 150.0))
    found = sound(vocoder.filter_parameters(net, mel), excitation(source, net.config), net.config)
    assert torch.allclose(found, net.synthesize(mel, source), atol=1e-6)


@torch.inference_mode()
def test_new_vocoder_follows_the_envelope_of_the_mel() -> None:
    """A band that is louder by two is louder by two in what the filter says."""
    net, mel = vocoder.new_vocoder(), torch.full((1, 80, 20), -6.0)
    louder = mel.clone()
    louder[:, 30] += 2
    off = (vocoder.filter_parameters(net, louder) - vocoder.filter_parameters(net, mel))[
        0, : world.N_BINS, 40
    ]
    bands, _ = vocoder._bands_of_bins()
    at = int(bands[:, 30].argmax())
    assert off[at] == pytest.approx(2 * float(bands[at, 30]), abs=0.3)
    assert off[:10].abs().max() < 0.2


def test_vocoder_loss_of_gains_falls() -> None:
    net, segments = vocoder.new_vocoder(), vocoder_segments()

    def losses() -> Losses:
        found = vocoder.gain_losses(vocoder.filter_parameters(net, segments.mel), segments)
        return {"loss": vocoder.weighted_sum(found)}

    assert falls(net, losses, n_steps=4, lr=1e-4)


@pytest.mark.slow
def test_vocoder_loss_of_sound_falls() -> None:
    net, segments = vocoder.new_vocoder(), vocoder_segments()
    assert falls(net, lambda: vocoder.sound_losses(net, segments), n_steps=4, lr=1e-4)


def test_vocoder_pitch_loss_falls() -> None:
    predictor, segments = vocoder.new_vocoder().f0_predictor, vocoder_segments()
    assert falls(predictor, lambda: vocoder.pitch_loss(predictor, segments), lr=1e-4)


@torch.inference_mode()
def test_compensation_multiplies_quefrencies_of_gains_alone() -> None:
    net, mel = vocoder.new_vocoder(), vocoder_segments().mel
    gain = torch.linspace(1, 2, world.N_BINS)
    before = vocoder.filter_parameters(net, mel).chunk(3, dim=1)
    vocoder.compensate_variance(net, gain)
    pulses, phases, noise = vocoder.filter_parameters(net, mel).chunk(3, dim=1)
    assert torch.equal(phases, before[1])
    for found, was in ((pulses, before[0]), (noise, before[2])):
        wanted = vocoder.cepstrum(was.mT) * gain
        assert torch.allclose(vocoder.cepstrum(found.mT), wanted, rtol=1e-3, atol=0.02)


@torch.inference_mode()
def test_variance_gain_undoes_smoothing() -> None:
    """Above quefrency 100, gains that vary half as much as those of speech are doubled."""
    net, segments = vocoder.new_vocoder(), vocoder_segments()
    mel = segments.mel + torch.randn(segments.mel.shape)
    learned = vocoder.filter_parameters(net, mel)[:, : world.N_BINS].clamp(min=world.FLOOR)
    sharper = replace(segments, mel=mel, pulses=cepstral_gain(learned, 100))
    gain = vocoder.variance_gain(net, [sharper])
    assert gain[:90] == pytest.approx(1.0, abs=0.01)
    assert gain[110:] == pytest.approx(2.0, abs=0.02)


def cepstral_gain(bins: Tensor, above: int) -> Tensor:
    quefrencies = vocoder.cepstrum(bins.mT)
    quefrencies[..., above:] *= 2
    both = torch.cat((quefrencies, quefrencies[..., 1:-1].flip(-1)), dim=-1)
    made: Tensor = torch.fft.ifft(both).real[..., : world.N_BINS].mT
    return made


def test_speech_tokenizer_heads_learn_from_its_tokens() -> None:
    net = speech_tokenizer.TokenizerWithHeads(n_voices=2, n_phonemes=5)
    token_mel, mel = torch.randn(2, 128, 48), torch.randn(2, 24, 80)

    def losses() -> Losses:
        levels, smooth = net.levels(token_mel)
        assert set(levels.flatten().tolist()) <= {-1.0, 0.0, 1.0}
        rebuilt = net.rebuild(levels, torch.tensor([0, 1]))
        spelled = net.ctc_head(levels.transpose(1, 2))
        assert spelled.shape == (2, 6, levels.shape[1])
        other = speech_tokenizer.decorrelation_loss(smooth.flatten(0, 1))
        return {"loss": F.l1_loss(rebuilt, mel) + other}

    assert falls(net, losses)


def test_xvector_student_learns_and_records_its_statistics() -> None:
    net = speakers.XVectorStudent()
    speakers.make_norms_trainable(net)
    fbank, wanted = torch.randn(3, 100, 80), torch.randn(3, speakers.D_XVECTOR)
    means = {name: t.clone() for name, t in net.state_dict().items() if "running_mean" in name}

    def losses() -> Losses:
        near = F.cosine_similarity(cast(Tensor, net(fbank)), wanted, dim=1)
        return {"loss": 1 - near.mean()}

    assert falls(net, losses)
    after = net.state_dict()
    assert means
    assert all(not torch.equal(mean, after[name]) for name, mean in means.items())


def test_the_shipped_student_moves_as_its_teacher_did() -> None:
    teacher, before = flow.shipped(), flow.shipped(meanflow=True).state_dict()
    with torch.no_grad():
        teacher.estimator.final_proj.weight.add_(0.5)
    after = flow.shipped_student(teacher).state_dict()
    name = "decoder.estimator.final_proj.weight"
    assert [key for key in after if not torch.equal(after[key], before[key])] == [name]
    assert torch.allclose(after[name] - before[name], torch.tensor(0.5))


def test_warped_bands_have_a_tone_at_its_new_frequency_and_keep_their_time() -> None:
    def loudest(hertz: float, ratio: float) -> tuple[int, int]:
        second = torch.arange(16_000) / 16_000
        tone = torch.sin(2 * torch.pi * hertz * second) * (second > 0.5)
        frames = token_log_mel(tone).T.numpy()
        warped = speech_tokenizer.warp_frequencies(frames, ratio)
        assert warped.shape == frames.shape and warped.dtype == frames.dtype
        levels = warped.max(1)
        return int(warped[75].argmax()), int(np.abs(np.diff(levels)).argmax())

    for hertz, ratio in ((300.0, 1.4), (2000.0, 0.75), (1000.0, 1.0)):
        (band, start), (wanted, wanted_start) = loudest(hertz, ratio), loudest(hertz * ratio, 1.0)
        assert abs(band - wanted) <= 1 and abs(start - wanted_start) <= 1
