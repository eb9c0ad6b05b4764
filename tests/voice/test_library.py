"""Voices on disk: what goes in comes out, and nothing else gets in."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from nightingale.core import Family, FlowPrompt, Voice
from nightingale.errors import CorruptFileError, VoiceError
from nightingale.voice.folder import BUILT_IN
from nightingale.voice.library import VoiceLibrary, from_release, read, to_bytes
from nightingale.voice.metadata import VoiceMetadata
from tests.tiny import tiny_voice

CARD = VoiceMetadata("multilingual", "de", "ab" * 32, "my own voice")


def some_voice(seed: int = 0) -> Voice:
    generator = torch.Generator().manual_seed(seed)
    mel = torch.randn(40, 80, generator=generator)
    return Voice(
        tiny_voice(seed),
        FlowPrompt(np.arange(20), mel.numpy(), torch.randn(192, generator=generator).numpy()),
    )


@pytest.fixture
def library(tmp_path: Path) -> VoiceLibrary:
    return VoiceLibrary(tmp_path / "voices")


def same(one: Voice, two: Voice) -> bool:
    return to_bytes(one, CARD) == to_bytes(two, CARD)


def test_a_saved_voice_comes_back_with_its_card(library: VoiceLibrary) -> None:
    library.save("anna", some_voice(), CARD)
    voice, metadata = library.load("anna")
    assert same(voice, some_voice())
    assert not same(voice, some_voice(1))
    assert metadata == CARD


def test_the_gains_of_a_voice_come_back(library: VoiceLibrary) -> None:
    voice = dataclasses.replace(some_voice(), gain_db=-2.5, speed=0.85)
    library.save("anna", voice, dataclasses.replace(CARD, gain_db=4.2))
    loaded, metadata = library.load("anna")
    assert loaded.gain_db == metadata.output_gain_db == -2.5
    assert loaded.speed == metadata.speed == 0.85
    assert metadata.gain_db == 4.2
    library.save("old", some_voice(), CARD)
    assert library.load("old")[0].gain_db == 0.0
    assert library.load("old")[0].speed == 1.0


def test_names_are_listed_in_order(library: VoiceLibrary) -> None:
    assert library.names() == []
    for name in ("zoe", "anna"):
        library.save(name, some_voice(), CARD)
    assert library.names() == ["anna", "zoe"]


def test_nothing_of_a_removed_voice_stays_on_disk(library: VoiceLibrary, tmp_path: Path) -> None:
    library.save("anna", some_voice(), CARD)
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["anna.safetensors"]
    library.remove("anna")
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []
    with pytest.raises(VoiceError, match="no voice 'anna'"):
        library.load("anna")


def test_a_taken_name_is_not_written_over(library: VoiceLibrary) -> None:
    library.save("anna", some_voice(), CARD)
    with pytest.raises(VoiceError, match="already"):
        library.save("anna", some_voice(1), CARD)
    assert same(library.load("anna")[0], some_voice())


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../anna", "a/b", "a\\b", "Anna", "a.b", "-a", "a" * 65, "ä", "a\n", "a\0"],
)
def test_a_name_never_leaves_its_folder(library: VoiceLibrary, name: str) -> None:
    for use in (library.load, library.remove, lambda n: library.save(n, some_voice(), CARD)):
        with pytest.raises(VoiceError, match="cannot name a voice"):
            use(name)


def test_the_same_voice_gives_the_same_bytes() -> None:
    assert to_bytes(some_voice(), CARD) == to_bytes(some_voice(), CARD)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("t3.speaker", torch.zeros(255)),
        ("t3.speaker", torch.full((256,), torch.nan)),
        ("t3.tokens", torch.tensor([6561])),
        ("flow.tokens", torch.tensor([-1])),
        ("flow.tokens", torch.zeros(3)),
        ("flow.mel", torch.zeros(4, 81)),
        ("flow.xvector", torch.full((192,), torch.inf)),
        ("extra", torch.zeros(1)),
    ],
)
def test_a_file_that_is_not_a_voice_is_refused(
    tmp_path: Path, name: str, value: torch.Tensor
) -> None:
    voice = some_voice()
    arrays = {
        "t3.speaker": voice.t3.speaker,
        "t3.tokens": voice.t3.tokens,
        "flow.tokens": voice.flow.tokens,
        "flow.mel": voice.flow.mel,
        "flow.xvector": voice.flow.xvector,
    }
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    header = {"voice": json.dumps({"family": "turbo", "language": None, "source_sha256": None, "consent": None})}  # fmt: skip  # noqa: E501
    file = tmp_path / "voice.safetensors"
    save_file(tensors, file, header)
    assert read(file)[1].family == "turbo"
    save_file(tensors | {name: value}, file, header)
    with pytest.raises(CorruptFileError, match=r"voice\.safetensors"):
        read(file)


@pytest.mark.parametrize("content", [b"", b"RIFF", b"\xff" * 100, b"{}"])
def test_other_files_are_refused_by_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "song.safetensors"
    file.write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"song\.safetensors is not a voice file"):
        read(file)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "huge.safetensors"
    with file.open("wb") as stream:
        stream.truncate(10**10)
    with pytest.raises(CorruptFileError, match="larger than any voice"):
        read(file)


def test_the_released_voice_is_understood() -> None:
    released = {
        "t3.speaker_emb": torch.ones(1, 256),
        "t3.cond_prompt_speech_tokens": torch.ones(1, 150, dtype=torch.int32),
        "t3.emotion_adv": torch.ones(1, 1, 1),
        "gen.prompt_token": torch.arange(160)[None],
        "gen.prompt_token_len": torch.tensor([157]),
        "gen.prompt_feat": torch.ones(1, 314, 80),
        "gen.embedding": torch.ones(1, 192),
    }
    voice = from_release({name: tensor.numpy() for name, tensor in released.items()})
    assert voice.t3.tokens.dtype == np.int64
    assert voice.flow.tokens.tolist() == list(range(157))
    assert voice.flow.mel.shape == (314, 80)
    assert voice.flow.xvector.shape == (192,)


@pytest.mark.parametrize(
    ("made_for", "asked", "fits"),
    [
        ("english", "multilingual", True),
        ("multilingual", "english", True),
        ("fledgling", "fledgling", True),
        ("fledgling", "english", False),
        ("turbo", "fledgling", False),
    ],
)
def test_a_voice_is_refused_where_its_tokens_mean_something_else(
    made_for: Family, asked: Family, fits: bool, library: VoiceLibrary
) -> None:
    library.save("anna", some_voice(), VoiceMetadata(made_for))
    if fits:
        assert library.load("anna", asked)[1].family == made_for
        return
    with pytest.raises(VoiceError, match=f"made for {made_for}.*voice add"):
        library.load("anna", asked)


@pytest.fixture
def with_built_in(tmp_path: Path) -> VoiceLibrary:
    """One voice that comes along, and none of the user's own."""
    VoiceLibrary(tmp_path / "package").save("emma", some_voice(1), CARD)
    return VoiceLibrary(tmp_path / "voices", tmp_path / "package")


def test_a_built_in_voice_is_found_and_never_deleted(with_built_in: VoiceLibrary) -> None:
    library = with_built_in
    assert library.names() == ["emma"]
    assert library.is_built_in("emma")
    assert same(library.load("emma")[0], some_voice(1))
    with pytest.raises(VoiceError, match="built in"):
        library.remove("emma")
    assert library.has("emma")
    with pytest.raises(VoiceError, match="there is no voice 'emm'; there are: emma"):
        library.load("emm")


def test_a_voice_of_ones_own_goes_before_a_built_in_one(with_built_in: VoiceLibrary) -> None:
    library = with_built_in
    library.save("emma", some_voice(2), CARD)
    assert library.names() == ["emma"]
    assert same(library.load("emma")[0], some_voice(2))
    library.remove("emma")
    assert same(library.load("emma")[0], some_voice(1))


def test_the_voices_of_the_bundled_model_can_be_used_by_it_alone() -> None:
    library = VoiceLibrary(BUILT_IN)
    assert len(library.names()) >= 3  # besides the default one
    for name in library.names():
        assert library.load(name, "fledgling")[1].consent
        with pytest.raises(VoiceError, match="fledgling"):
            library.load(name, "multilingual")
