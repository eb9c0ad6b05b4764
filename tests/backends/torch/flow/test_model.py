"""The flow against the facts of the released decoders, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from nightingale.backends.torch.flow.model import CONFIGS, DEAD_TENSORS, Decoder, Flow
from nightingale.errors import LayoutError, OptionError
from nightingale.weights.load import load_into
from tests.backends.torch.flow.tiny import tiny_config, tiny_flow, tiny_prompt, tiny_tokens

N_DEAD = 10 * 512  # the key biases of the encoder
N_PARAMETERS: dict[Decoder, int] = {
    "standard": 112_549_360 - N_DEAD,
    "meanflow": 114_646_512 - N_DEAD,
}


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["standard", "meanflow"])
def test_full_size_flows_have_the_released_number_of_parameters(decoder: Decoder) -> None:
    with torch.device("meta"):
        flow = Flow(CONFIGS[decoder])
    assert sum(p.numel() for p in flow.parameters()) == N_PARAMETERS[decoder]
    assert flow.config.meanflow == (decoder == "meanflow")


@pytest.mark.parametrize(
    ("n_tokens", "n_prompt", "odd", "n_frames"),
    [(1, 12, False, 2), (1, 12, True, 1), (9, 1, False, 18), (9, 3, True, 17), (2, 0, False, 4)],
)
def test_two_frames_a_token_and_one_less_behind_an_odd_prompt(
    n_tokens: int, n_prompt: int, odd: bool, n_frames: int
) -> None:
    prompt = tiny_prompt(n_tokens=n_prompt, odd=odd)
    mel = tiny_flow("meanflow").render(tiny_tokens(n_tokens=n_tokens), prompt, seed=0)
    assert mel.shape == (80, n_frames)
    assert mel.isfinite().all()


@pytest.mark.parametrize(
    ("tokens", "complaint"),
    [
        ([5, 6561], r"the speech tokens lie in 5\.\.6561, but only 0\.\.6560 stand for sound"),
        ([6562], "drop control tokens first"),
        ([-1, 3], r"lie in -1\.\.3"),
        ([5.0, 6.0], "torch.float32"),
        ([[5, 6]], r"int64 \[1, 2\]"),
        ([], "no speech tokens"),
    ],
)
def test_tokens_that_are_no_sound_are_refused(tokens: list[Any], complaint: str) -> None:
    ids = torch.tensor(tokens) if tokens else torch.empty(0, dtype=torch.int64)
    with pytest.raises(OptionError, match=complaint):
        tiny_flow().render(ids, tiny_prompt(), seed=0)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("tokens", np.full(12, 6561), "the voice's speech tokens"),
        ("mel", np.zeros((23, 80)), r"mel \[23, 80\].*needs mel \[24 or 25, 80\]"),
        ("mel", np.zeros((26, 80)), "make it anew"),
        ("mel", np.zeros((24, 100)), r"mel \[24, 100\]"),
        ("xvector", np.zeros(256), r"x-vector \[256\].*x-vector \[192\]"),
    ],
)
def test_a_voice_of_another_shape_is_refused(name: str, value: Any, complaint: str) -> None:
    prompt = replace(tiny_prompt(), **{name: value})
    with pytest.raises(OptionError, match=complaint):
        tiny_flow().render(tiny_tokens(), prompt, seed=0)


def test_noise_that_does_not_fit_is_refused() -> None:
    with pytest.raises(OptionError, match=r"noise is \[1, 80\], but must be \[42, 80\]"):
        tiny_flow().render(tiny_tokens(), tiny_prompt(), seed=0, noise=torch.zeros(1, 80))


@pytest.mark.slow
def test_ids_stay_whole_in_half_precision() -> None:
    """As floats of 16 bits, 6559 and 6560 would be one."""
    flow, prompt = tiny_flow().bfloat16(), tiny_prompt()
    one, other = (flow.encode(torch.tensor([id_]), prompt) for id_ in (6559, 6560))
    assert not torch.allclose(one, other)
    voices = [replace(prompt, tokens=np.full(12, id_)) for id_ in (6559, 6560)]
    one, other = (flow.encode(torch.tensor([7]), voice) for voice in voices)
    assert not torch.allclose(one, other)
    assert torch.equal(flow.encode(torch.tensor([7], dtype=torch.int32), voices[1]), other)


def test_a_voice_is_known_by_the_direction_of_its_xvector() -> None:
    flow, prompt = tiny_flow(), tiny_prompt()
    louder = replace(prompt, xvector=5 * prompt.xvector)
    assert torch.allclose(flow.speaker(louder), flow.speaker(prompt), atol=1e-6)
    assert not torch.allclose(flow.speaker(tiny_prompt(1)), flow.speaker(prompt))


def test_the_condition_is_the_recording_and_silence_behind_it() -> None:
    prompt = tiny_prompt(odd=True)
    condition = tiny_flow().condition(prompt, 42)
    assert torch.equal(condition[:25], torch.from_numpy(prompt.mel))
    assert torch.equal(condition[25:], torch.zeros(17, 80))


def saved(decoder: Decoder, path: Path) -> Path:
    """A file as the released ones are: with a prefix, and with what nobody needs."""
    state = {f"flow.{name}": x for name, x in tiny_flow(decoder).state_dict().items()}
    for group in ("encoders.0", "up_encoders.1"):
        state[f"flow.encoder.{group}.self_attn.linear_k.bias"] = torch.ones(48)
    save_file(state | {"mel2wav.other": torch.zeros(1)}, path)
    return path


@pytest.mark.slow
def test_a_released_file_loads_without_its_dead_tensors(tmp_path: Path) -> None:
    path = saved("standard", tmp_path / "s3gen.safetensors")
    with torch.device("meta"):
        flow = Flow(tiny_config("standard"))
    load_into(flow, path, prefix="flow.", dead=DEAD_TENSORS)
    expected = tiny_flow().render(tiny_tokens(), tiny_prompt(), seed=0)
    assert torch.equal(flow.render(tiny_tokens(), tiny_prompt(), seed=0), expected)
    with pytest.raises(LayoutError, match=r"2 unknown \(encoder.*linear_k.bias"):
        load_into(flow, path, prefix="flow.")


@pytest.mark.parametrize(
    ("file", "model", "complaint"),
    [("standard", "meanflow", "1 missing"), ("meanflow", "standard", "1 unknown")],
)
def test_the_file_of_the_other_decoder_is_refused(
    file: Decoder, model: Decoder, complaint: str, tmp_path: Path
) -> None:
    path = saved(file, tmp_path / "s3gen.safetensors")
    with pytest.raises(LayoutError, match=rf"{complaint} \(decoder.estimator.time_embed_mixer"):
        load_into(Flow(tiny_config(model)), path, prefix="flow.", dead=DEAD_TENSORS)


def test_a_window_mask_hides_what_comes_later() -> None:
    """Frames before the cut come out the same, to rounding, whatever stands behind it."""
    flow, n_seen = tiny_flow(), 10
    block = flow.estimator.mid_blocks[0]
    x, shift = torch.randn(1, 30, 32), torch.randn(32)
    mask = torch.ones(30, 30, dtype=torch.bool)
    mask[:n_seen, n_seen:] = False
    alone = block(x[:, :n_seen], shift)
    assert torch.allclose(block(x, shift, mask)[:, :n_seen], alone, atol=1e-5)
    assert not torch.allclose(block(x, shift)[:, :n_seen], alone, atol=1e-3)


def test_the_encoder_hides_tokens_behind_its_mask() -> None:
    encoder, x, n_seen = tiny_flow().encoder, torch.randn(1, 15, 48), 6
    other = x.clone()
    other[:, n_seen + 3 :] = 9.0  # beyond the three tokens that a convolution sees anyway
    mask = torch.ones(15, 15, dtype=torch.bool)
    mask[:n_seen, n_seen:] = False
    one, two = (encoder(tokens, mask)[:, : 2 * n_seen] for tokens in (x, other))
    assert torch.allclose(one, two, atol=1e-5)
    assert not torch.allclose(encoder(x)[:, : 2 * n_seen], one, atol=1e-3)
