"""The speech tokenizer: lengths, digits, and what a token may hang on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from nightingale.errors import AudioError, LayoutError
from nightingale.voice.speech_tokenizer import (
    DEAD_TENSORS,
    PREFIX,
    SpeechTokenizer,
    SpeechTokenizerConfig,
    rotary_tables,
    rotate,
    tokens_of,
)
from nightingale.weights.load import load_into
from tests.audio.corpus import buzz
from tests.voice.tiny import SMALL_TOKENIZER, tiny_encoders


def speech(seconds: float) -> torch.Tensor:
    return torch.from_numpy(buzz(seconds, 16_000))


@pytest.mark.parametrize(
    ("n_samples", "n_tokens"),
    [(16_000, 25), (640, 1), (16_160, 26), (16_639, 26), (16_640, 26), (16_800, 27), (201, 1)],
)
def test_a_started_token_counts(n_samples: int, n_tokens: int) -> None:
    tokens = tiny_encoders().tokenizer.encode(speech(2.0)[:n_samples])
    assert tokens.shape == (n_tokens,)
    assert tokens.dtype == torch.int64
    assert 0 <= int(tokens.min()) <= int(tokens.max()) < 3**8


def test_max_tokens_cuts_frames_but_the_loudest_frame_of_the_whole_still_counts() -> None:
    tokenizer = tiny_encoders().tokenizer
    wave = 0.001 * speech(6.0)
    short = tokenizer.encode(wave, max_tokens=50)
    assert short.shape == (50,)
    shout = torch.cat((wave, 500 * wave))
    assert not torch.equal(tokenizer.encode(shout, max_tokens=50), short)
    assert tokenizer.encode(speech(0.5), max_tokens=50).shape == (13,)


@pytest.mark.parametrize(
    ("levels", "token"),
    [
        ([-0.9] * 8, 0),
        ([0.0] * 8, (3**8 - 1) // 2),
        ([0.9] * 8, 3**8 - 1),
        ([0.9, *[-0.9] * 7], 2),
        ([*[-0.9] * 7, 0.0], 3**7),
        ([0.5, -0.5, *[-0.9] * 6], 1 + 3),  # halves go to the even digit, the middle one
    ],
)
def test_levels_are_digits_of_base_three_the_lowest_first(levels: list[float], token: int) -> None:
    assert tokens_of(torch.tensor([levels])).tolist() == [token]


def test_a_token_hears_its_neighbours_and_positions_turn_what_attention_sees() -> None:
    tokenizer = tiny_encoders().tokenizer
    wave = speech(4.0)
    tokens = tokenizer.encode(wave)
    assert len(set(tokens.tolist())) > 10
    later = torch.cat((wave[:32_000], wave[:32_000]))
    assert not torch.equal(tokenizer.encode(later)[:50], tokens[:50])
    cos, sin = rotary_tables(3)
    x = torch.randn(1, 3, 1, 64, generator=torch.Generator().manual_seed(0))
    turned = rotate(x, cos, sin)
    assert torch.equal(turned[:, 0], x[:, 0])
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1))
    assert not torch.allclose(turned[:, 1], x[:, 1])


@pytest.mark.slow
def test_more_than_half_a_minute_is_refused() -> None:
    with pytest.raises(AudioError, match=r"30\.01 s, but the speech tokenizer reads up to 30 s"):
        tiny_encoders().tokenizer.encode(speech(30.01))


def test_released_names_load_with_or_without_the_computed_buffers(tmp_path: Path) -> None:
    tokenizer = tiny_encoders().tokenizer
    state = {PREFIX + name: tensor for name, tensor in tokenizer.state_dict().items()}
    state["flow.other"] = torch.zeros(1)
    buffers = {PREFIX + "_mel_filters": torch.zeros(128, 201), PREFIX + "window": torch.zeros(400)}
    for number, tensors in enumerate((state, state | buffers)):
        save_file(tensors, tmp_path / f"{number}")
        with torch.device("meta"):
            loaded = SpeechTokenizer(SMALL_TOKENIZER)
        load_into(loaded, tmp_path / f"{number}", prefix=PREFIX, dead=DEAD_TENSORS)
        assert torch.equal(loaded.encode(speech(1.0)), tokenizer.encode(speech(1.0)))
    del state[PREFIX + "encoder.blocks.1.attn.fsmn_block.weight"]
    save_file(state, tmp_path / "less")
    with pytest.raises(LayoutError, match="fsmn_block"):
        load_into(loaded, tmp_path / "less", prefix=PREFIX, dead=DEAD_TENSORS)


def test_the_released_size_has_its_parameters() -> None:
    with torch.device("meta"):
        tokenizer = SpeechTokenizer(SpeechTokenizerConfig())
    assert sum(parameter.numel() for parameter in tokenizer.parameters()) == 123_714_568
