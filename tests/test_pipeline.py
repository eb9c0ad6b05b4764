"""From text to sound, whole, on small models that lie on disk as a release does."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from nightingale.audio.files import read
from nightingale.audio.mel import flow_mel
from nightingale.core import SAMPLES_PER_TOKEN
from nightingale.errors import (
    LanguageError,
    LayoutError,
    NotPulledError,
    OptionError,
    SpeechError,
    TextError,
)
from nightingale.loader import _other_decoder
from nightingale.measure.stages import torch_stages
from nightingale.pipeline import Nightingale
from nightingale.speech import SpeechState
from nightingale.voice.library import to_bytes
from nightingale.voice.metadata import VoiceMetadata
from nightingale.weights import catalog, manifest
from tests.tiny_release import Releases, release_flow

NAMES = ["english", "multilingual-zh-cmn", "multilingual-hi", "turbo", "nano"]
TEXT = "The billing issue is resolved."


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def load(releases: Releases, name: str, home: Path, **choices: object) -> Nightingale:
    return Nightingale.load(releases(name), home=home, device="cpu", **choices)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def english(releases: Releases, home: Path) -> Nightingale:
    return load(releases, "english", home, watermark=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_family_speaks_and_says_how_long_it_took(
    releases: Releases, home: Path, name: str
) -> None:
    tts = load(releases, name, home)
    seen: list[int] = []
    audio = tts.say(TEXT, progress=seen.append, max_tokens=20)
    assert audio.samples.dtype == np.float32
    assert np.abs(audio.samples).max() > 0.01
    assert seen == list(range(1, 21))
    assert not audio.is_complete
    timings = audio.timings
    assert timings.total_ms == pytest.approx(
        timings.text_ms
        + timings.tokens_ms
        + timings.mel_ms
        + timings.samples_ms
        + timings.watermark_ms
    )
    assert all(getattr(timings, part) > 0 for part in timings.__dataclass_fields__)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_extra"), [("english", 0), ("multilingual-hi", -1), ("turbo", 3), ("nano", 3)]
)
def test_sample_counts_follow_upstreams_rules(
    releases: Releases, home: Path, name: str, n_extra: int
) -> None:
    """Multilingual drops the last token's sound, Turbo and Nano add three of silence."""
    tts = load(releases, name, home)
    for n_tokens in (1, 2, 7):
        audio = tts.say(TEXT, max_tokens=n_tokens, temperature=0.0)
        n_codes = len(audio.tokens) - max(n_extra, 0)
        assert n_codes == n_tokens
        assert len(audio.samples) == max(1, n_codes + n_extra) * SAMPLES_PER_TOKEN


@pytest.mark.slow
@pytest.mark.parametrize("name", ["english", "turbo"])
def test_unknown_characters_are_reported_and_not_spoken(
    releases: Releases, home: Path, name: str
) -> None:
    tts = load(releases, name, home)
    mixed = tts.say("Hello 🎉 wor世ld.", max_tokens=5, language="en-US")
    assert mixed.unspoken == ("🎉", "世")
    plain = tts.say("Hello world.", max_tokens=5)
    assert plain.unspoken == ()
    assert mixed.samples.tobytes() == plain.samples.tobytes()
    speech = tts.stream(["Hi. ", "Миша! ", "🎉"], max_tokens=5)
    assert all(len(chunk.samples) for chunk in speech)
    assert speech.unspoken == (*"Миша🎉",)
    for text in ("你好，世界。", ["你", "好"], "🎉🎉", "..."):
        with pytest.raises(TextError, match="nothing to say"):
            list(tts.stream(text))


@pytest.mark.slow
def test_an_utterance_opens_in_silence(english: Nightingale) -> None:
    audio = english.say(TEXT, max_tokens=5)
    assert not audio.samples[:480].any()
    assert audio.samples[480:960].any()


@pytest.mark.slow
def test_the_same_request_gives_the_same_bytes_whatever_came_before(
    releases: Releases, home: Path
) -> None:
    tts = load(releases, "multilingual-hi", home)
    first = tts.say(TEXT, seed=3, max_tokens=15)
    tts.say("Something else, and rather longer than that.", seed=4, max_tokens=9)
    torch.manual_seed(99)
    again = tts.say(TEXT, seed=3, max_tokens=15)
    other = load(releases, "multilingual-hi", home).say(TEXT, seed=3, max_tokens=15)
    assert first.samples.tobytes() == again.samples.tobytes() == other.samples.tobytes()
    assert tts.say(TEXT, seed=5, max_tokens=15).samples.tobytes() != first.samples.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multilingual-hi", "turbo"])
def test_one_and_two_threads_of_torch_say_the_same(
    releases: Releases, home: Path, name: str
) -> None:
    tts = load(releases, name, home)
    said = []
    for n_threads in (1, 2):
        torch.set_num_threads(n_threads)
        said.append(tts.say(TEXT, max_tokens=12))
    torch.set_num_threads(1)
    assert said[0].tokens == said[1].tokens
    assert said[0].samples.tobytes() == said[1].samples.tobytes()


@pytest.mark.slow
def test_threads_that_share_a_model_get_their_own_voices(releases: Releases, home: Path) -> None:
    tts = load(releases, "english", home)
    requests = [(f"Number {n} speaking.", n) for n in range(6)]
    alone = [tts.say(text, seed=seed, max_tokens=8).samples.tobytes() for text, seed in requests]
    together: dict[int, bytes] = {}

    def speak(text: str, seed: int) -> None:
        together[seed] = tts.say(text, seed=seed, max_tokens=8).samples.tobytes()

    threads = [threading.Thread(target=speak, args=request) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[n] for n in range(6)] == alone


@pytest.mark.slow
def test_a_watermark_changes_the_samples_and_not_their_number(
    releases: Releases, home: Path, english: Nightingale
) -> None:
    watermarked = load(releases, "english", home).say(TEXT, max_tokens=6)
    plain = english.say(TEXT, max_tokens=6)
    assert watermarked.samples.shape == plain.samples.shape
    assert watermarked.samples.tobytes() != plain.samples.tobytes()
    assert plain.timings.watermark_ms < 1


@pytest.mark.slow
def test_either_decoder_goes_with_any_t3(releases: Releases, home: Path, tmp_path: Path) -> None:
    both = shutil.copytree(releases("english"), tmp_path / "both")
    shutil.copy(releases("turbo") / "s3gen_meanflow.safetensors", both)
    fast = Nightingale.load(both, home=home, decoder="meanflow")
    slow = Nightingale.load(both, home=home)
    assert (fast.components.decoder, slow.components.decoder) == ("meanflow", "standard")
    sounds = [tts.say(TEXT, max_tokens=8) for tts in (fast, slow)]
    assert sounds[0].tokens == sounds[1].tokens
    assert sounds[0].samples.tobytes() != sounds[1].samples.tobytes()


def test_a_decoder_that_is_not_what_its_name_says_is_refused_at_load(
    releases: Releases, home: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(releases("english"), tmp_path / "both")
    (folder / "s3gen_meanflow.safetensors").write_bytes((folder / "s3gen.safetensors").read_bytes())
    with pytest.raises(LayoutError, match="does not hold the meanflow decoder"):
        Nightingale.load(folder, home=home, decoder="meanflow")


@pytest.mark.slow
def test_what_cloning_needs_is_not_loaded_for_speaking(
    releases: Releases, home: Path, tmp_path: Path
) -> None:
    """A release whose encoders are gone from its files still speaks with a baked voice."""
    folder = shutil.copytree(releases("english"), tmp_path / "maimed")
    file = folder / "s3gen.safetensors"
    with safe_open(file, "pt") as opened:
        header = opened.metadata()
    kept = {n: t for n, t in load_file(file).items() if n.startswith(("flow.", "mel2wav."))}
    save_file(kept, file, header)
    (folder / "ve.safetensors").write_bytes(b"")
    maimed = Nightingale.load(folder, home=home)
    whole = load(releases, "english", home)
    assert np.array_equal(
        maimed.say(TEXT, max_tokens=6).samples, whole.say(TEXT, max_tokens=6).samples
    )
    with pytest.raises(LayoutError):
        maimed.cloner.load_encoders()


@pytest.mark.slow
def test_a_cloned_voice_speaks_and_is_its_own(
    releases: Releases, home: Path, recording: Path
) -> None:
    tts = load(releases, "english", home)
    voice = tts.clone(recording)
    assert voice.report.seconds == pytest.approx(4, abs=0.01)
    again = tts.clone(recording.read_bytes())
    metadata = VoiceMetadata("english")
    assert to_bytes(voice, metadata) == to_bytes(again, metadata)
    cloned, own = (tts.say(TEXT, who, max_tokens=10) for who in (voice, None))
    assert cloned.samples.tobytes() != own.samples.tobytes()


def test_what_cannot_be_spoken_is_refused_by_name(english: Nightingale) -> None:
    tts = english
    with pytest.raises(TextError):
        tts.say("  ")
    with pytest.raises(LanguageError, match="does not speak 'de'"):
        tts.say(TEXT, language="de")
    with pytest.raises(OptionError, match="temperature"):
        tts.say(TEXT, temperature=-1)
    with pytest.raises(OptionError, match="no option 'temprature'; did you mean temperature"):
        tts.say(TEXT, temprature=0.5)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="seed is '7', but must be a whole number"):
        tts.say(TEXT, seed="7")  # type: ignore[arg-type]


def test_a_model_that_says_nothing_is_an_error(english: Nightingale) -> None:
    with pytest.raises(SpeechError, match="another seed"):
        list(english._synthesizer._codes(iter([6562]), lambda _: None, SpeechState()))


def test_a_model_that_is_not_here_is_explained(
    releases: Releases, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "BUNDLE", tmp_path / "empty")
    with pytest.raises(NotPulledError, match="nightingale pull multilingual"):
        Nightingale.load(home=tmp_path / "empty")
    with pytest.raises(NotPulledError, match="nightingale pull nano"):
        Nightingale.load("nano", home=tmp_path / "empty")
    with pytest.raises(OptionError, match="no model 'chatterbocks'"):
        Nightingale.load("chatterbocks", home=home)
    with pytest.raises(NotPulledError, match="lacks"):
        Nightingale.load(tmp_path, home=home)
    with pytest.raises(OptionError, match="standard and meanflow"):
        Nightingale.load(releases("nano"), home=home, decoder="quick")


@pytest.fixture
def bundle(releases: Releases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a small model in it, both of whose decoders share all but an estimator."""
    folder = shutil.copytree(releases("fledgling"), tmp_path / "bundle")
    flow = release_flow("meanflow")
    own = {f"flow.{name}": t for name, t in flow.state_dict().items() if name.startswith("decoder")}
    header = {"config": {"flow": asdict(flow.config)}, "rest": "s3gen.safetensors"}
    facts = {"nightingale": json.dumps(header)}
    save_file(own, folder / "s3gen_meanflow.safetensors", facts)
    files = sorted(file for file in folder.iterdir() if file.is_file())
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / manifest.SUMS).write_text("".join(sums))
    monkeypatch.setattr(manifest, "BUNDLE", folder)
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("bundle")
def test_where_nothing_was_pulled_the_model_of_the_package_speaks(tmp_path: Path) -> None:
    tts = Nightingale.load(home=tmp_path / "empty", watermark=False)
    assert tts.components.model.name == "fledgling"
    quick = Nightingale.load("fledgling", home=tmp_path, decoder="meanflow", watermark=False)
    assert torch_stages(quick.components).flow.config.meanflow
    said = [e.say("Hello.", max_tokens=8) for e in (tts, quick)]
    assert said[0].tokens == said[1].tokens
    assert np.abs(said[0].samples - said[1].samples).max() > 1e-3


@pytest.mark.usefixtures("bundle")
def test_no_released_model_borrows_a_decoder_of_the_package(tmp_path: Path, home: Path) -> None:
    """Its speech tokens are others."""
    with pytest.raises(NotPulledError, match="nightingale pull turbo"):
        _other_decoder("meanflow", catalog.find("english"), tmp_path / "x", "english", home)
    with pytest.raises(NotPulledError, match="nightingale pull multilingual"):
        _other_decoder("standard", catalog.find("nano"), tmp_path / "x", "nano", home)


def test_a_package_without_its_model_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "BUNDLE", tmp_path)
    with pytest.raises(NotPulledError, match="reinstall"):
        Nightingale.load("fledgling", home=tmp_path)


@pytest.mark.slow
def test_a_voices_gain_scales_its_samples_in_every_plan(releases: Releases, home: Path) -> None:
    for plan in ("reference", "live"):
        tts = load(releases, "english", home, plan=plan, watermark=False)
        own = tts.components.voice
        plain, louder = (
            tts.say(TEXT, replace(own, gain_db=gain_db), max_tokens=10).samples
            for gain_db in (0.0, 6.0)
        )
        # What is trimmed of a live start depends on what can be heard: so from the end on.
        n = min(len(plain), len(louder)) - 960
        assert np.allclose(louder[-n:], plain[-n:] * 10 ** (6 / 20), rtol=1e-5, atol=1e-7)
        assert np.array_equal(plain, tts.say(TEXT, max_tokens=10).samples)


@pytest.mark.slow
def test_a_recordings_loudness_is_kept_if_asked(
    releases: Releases, home: Path, recording: Path
) -> None:
    tts = load(releases, "english", home)
    voice = tts.clone(recording, keep_loudness=True)
    assert (voice.report.level, voice.gain_db) == (None, 0.0)
    mel = flow_mel(torch.from_numpy(read(recording, 24_000)))
    assert np.array_equal(voice.flow.mel, mel.numpy())
    levelled = tts.clone(recording)
    assert levelled.report.level is not None
    shift = levelled.report.level.gain_db * np.log(10) / 20
    loud = mel > mel.max() - 5  # where no floor is
    assert torch.allclose(torch.from_numpy(levelled.flow.mel)[loud], mel[loud] + shift, atol=0.01)
