"""Sound as it is made: the same samples however it is listened to, whoever else speaks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from nightingale.audio.audible import first_audible
from nightingale.audio.pauses import PartJoiner
from nightingale.backends.base import LOOKAHEAD_TOKENS, TokenWindow
from nightingale.backends.torch import engine
from nightingale.backends.torch.t3.guard import Guard
from nightingale.core import PLANS, SAMPLES_PER_TOKEN, Plan
from nightingale.errors import OptionError
from nightingale.noise import derive_seed
from nightingale.pipeline import Nightingale
from nightingale.speech import Checkpoint, SpeechStream
from nightingale.windowing import token_windows
from tests.tiny_release import Releases

GRID = (4, 6, 10)
LIVE = Plan("live", prompt_cache=True, window_sizes=GRID, vocoder_lookahead=6)
TEXT = "The billing issue is resolved."
N_TOKENS = 36


def load(
    releases: Releases, name: str, plan: Plan = LIVE, *, watermark: bool = True
) -> Nightingale:
    folder = releases(name)
    home = folder.parent / "home"
    return Nightingale.load(folder, home=home, device="cpu", plan=plan, watermark=watermark)


@pytest.fixture(scope="module")
def tts(releases: Releases) -> Nightingale:
    return load(releases, "multilingual-hi")


def heard(speech: SpeechStream) -> NDArray[np.float32]:
    return np.concatenate([chunk.samples for chunk in speech])


# ---- where it is cut ----


@pytest.mark.parametrize("n_tokens", range(40))
def test_every_token_is_in_one_window_and_three_are_looked_at(n_tokens: int) -> None:
    steps = list(token_windows(range(n_tokens), GRID))
    windows = [step for step in steps if step]
    assert len(steps) == n_tokens + 1
    rendered = [w.tokens[: len(w.tokens) - w.n_ahead] for w in windows]
    assert [token for window in rendered for token in window] == list(range(n_tokens))
    assert [w.is_last for w in windows] == [False] * (len(windows) - 1) + [True]
    sizes = [len(window) for window in rendered[:-1]]
    assert sizes == [*GRID, *[GRID[-1]] * 9][: len(sizes)]
    if len(windows) > 1:
        assert LOOKAHEAD_TOKENS <= len(rendered[-1]) < LOOKAHEAD_TOKENS + GRID[-1]


def test_a_window_is_there_as_soon_as_its_tokens_are() -> None:
    asked: list[int] = []

    def tokens() -> Iterator[int]:
        for token in range(99):
            asked.append(token)
            yield token

    windows = filter(None, token_windows(tokens(), GRID))
    next(windows)
    assert len(asked) == GRID[0] + LOOKAHEAD_TOKENS
    next(windows)
    assert len(asked) == GRID[0] + GRID[1] + LOOKAHEAD_TOKENS


def test_without_a_grid_there_is_one_window() -> None:
    assert list(token_windows(range(5), ())) == [None] * 5 + [
        TokenWindow([0, 1, 2, 3, 4], is_last=True)
    ]


# ---- what is heard ----


@pytest.mark.parametrize(
    ("name", "n_extra"), [pytest.param("multilingual-hi", -1, marks=pytest.mark.slow), ("nano", 3)]
)
def test_saying_is_all_that_is_streamed(releases: Releases, name: str, n_extra: int) -> None:
    tts = load(releases, name)
    audio = tts.say(TEXT, max_tokens=N_TOKENS, seed=3)
    speech = tts.stream(TEXT, max_tokens=N_TOKENS, seed=3)
    chunks = [chunk.samples for chunk in speech]
    assert len(chunks) > 3
    assert np.array_equal(np.concatenate(chunks), audio.samples)
    assert tuple(speech.tokens) == audio.tokens
    n_codes = len(audio.tokens)
    kept = n_codes - 1 if n_extra < 0 else n_codes
    assert len(audio.samples) == kept * SAMPLES_PER_TOKEN
    assert not speech.is_complete
    assert all(ms > 0 for ms in asdict(speech.timings).values())


@pytest.mark.slow
def test_the_first_sound_needs_few_tokens_and_opens_once(releases: Releases) -> None:
    tts = load(releases, "multilingual-hi", watermark=False)
    made: list[int] = []
    speech = tts.stream(TEXT, max_tokens=N_TOKENS, progress=made.append)
    first = next(speech)
    assert len(first.samples) > 0
    assert made[-1] == GRID[0] + LOOKAHEAD_TOKENS
    assert not first.samples[:480].any()  # the opening silence, once
    assert next(speech).samples[:480].any()


@pytest.mark.slow
def test_windows_sound_like_the_whole(releases: Releases) -> None:
    """The first window hears less of what follows, so this is near and not exact."""
    live = load(releases, "nano", watermark=False).say(TEXT, max_tokens=N_TOKENS)
    whole = load(releases, "nano", PLANS["reference"], watermark=False)
    reference = whole.say(TEXT, max_tokens=N_TOKENS)
    assert live.tokens == reference.tokens
    assert len(live.samples) == len(reference.samples)
    loud = np.abs(reference.samples).mean()
    assert np.abs(live.samples).mean() == pytest.approx(loud, rel=0.5)


@pytest.mark.slow
def test_streams_by_turns_are_as_alone(tts: Nightingale) -> None:
    alone = [heard(tts.stream(TEXT, max_tokens=N_TOKENS, seed=seed)) for seed in (1, 2)]
    streams = [tts.stream(TEXT, max_tokens=N_TOKENS, seed=seed) for seed in (1, 2)]
    parts: list[list[NDArray[np.float32]]] = [[], []]
    for _ in range(20):
        for stream, part in zip(streams, parts, strict=True):
            if chunk := next(stream, None):
                part.append(chunk.samples)
    for part, one in zip(parts, alone, strict=True):
        assert np.array_equal(np.concatenate(part), one)


@pytest.mark.slow
def test_a_step_is_a_token_or_a_window(releases: Releases) -> None:
    tts = load(releases, "multilingual-hi", watermark=False)
    made: list[int] = []
    speech = tts.stream(TEXT, max_tokens=20, progress=made.append)
    assert speech.step() is None, "the text is prepared, a step for each part"
    assert not made
    assert speech.token_number is None, "the first one needs the prompt"
    for n_tokens in range(1, GRID[0] + LOOKAHEAD_TOKENS + 1):
        assert speech.step() is None
        assert len(made) == n_tokens
        assert (speech.token_number is None) == (n_tokens == GRID[0] + LOOKAHEAD_TOKENS)
    assert speech.step() is not None
    assert len(made) == GRID[0] + LOOKAHEAD_TOKENS
    assert speech.token_number is not None
    speech.cancel()
    assert speech.token_number is None


@pytest.mark.slow
def test_streams_of_several_threads_are_as_alone(tts: Nightingale) -> None:
    alone = {seed: heard(tts.stream(TEXT, max_tokens=15, seed=seed)) for seed in range(4)}
    together: dict[int, NDArray[np.float32]] = {}

    def listen(seed: int) -> None:
        together[seed] = heard(tts.stream(TEXT, max_tokens=15, seed=seed))

    threads = [threading.Thread(target=listen, args=(seed,)) for seed in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together.keys() == alone.keys()
    for seed, samples in together.items():
        assert np.array_equal(samples, alone[seed])


# ---- stopping, and long texts ----


@pytest.mark.slow
def test_nothing_comes_after_a_cancel(tts: Nightingale) -> None:
    made: list[int] = []
    speech = tts.stream(TEXT, max_tokens=N_TOKENS, progress=made.append)
    next(speech)
    n_made = len(made)
    speech.cancel()
    assert list(speech) == []
    assert len(made) == n_made
    assert not speech.is_complete


@pytest.mark.slow
def test_a_cancel_from_within_stops_after_that_step(tts: Nightingale) -> None:
    made: list[int] = []

    def progress(n_tokens: int) -> None:
        made.append(n_tokens)
        if n_tokens == 17:
            speech.cancel()

    speech = tts.stream(TEXT, max_tokens=N_TOKENS, progress=progress)
    list(speech)
    assert made[-1] == 17


@pytest.mark.slow
def test_text_may_come_in_pieces(tts: Nightingale) -> None:
    text = "It is late, so let us go home now. Good night."
    once = heard(tts.stream(iter(text.partition("us")), max_tokens=20))
    again = heard(tts.stream(iter(text), max_tokens=20))
    assert np.array_equal(once, again)
    parts = ["It is late, so let us go home now.", "Good night."]
    alone = [
        tts.say(part, max_tokens=20, seed=derive_seed(0, n)).samples for n, part in enumerate(parts)
    ]
    joiner = PartJoiner(150 * 24)
    joined = [joiner.start_part(0), joiner.feed(alone[0])]
    joined += [joiner.start_part(350 * 24), joiner.feed(alone[1]), joiner.finish()]
    assert np.array_equal(once, np.concatenate(joined))


@pytest.mark.slow
def test_a_long_text_is_spoken_part_by_part(tts: Nightingale) -> None:
    sentence = "This is one of several sentences that are a little longer than they have to be. "
    speech = tts.stream(5 * sentence, max_tokens=12, guard=False)
    samples = heard(speech)
    assert len(speech.tokens) == 24
    assert len(samples) > 2 * 10 * SAMPLES_PER_TOKEN
    assert not np.array_equal(samples[: len(samples) // 2], samples[-(len(samples) // 2) :])


TWO = "It is late, so let us go home now.\n\nGood night to all of you."


@pytest.mark.slow
def test_an_utterance_goes_on_from_a_checkpoint_to_the_bit(tts: Nightingale) -> None:
    whole, first = tts.stream(TWO, max_tokens=20), tts.stream(TWO, max_tokens=20)
    samples, begun = heard(whole), []
    while first.checkpoint is None:
        begun += [chunk.samples for chunk in (first.step(),) if chunk]
    at = Checkpoint.from_json(json.loads(json.dumps(first.checkpoint.to_json())))
    assert at.n_parts == 1
    assert at.joined.n_samples == sum(map(len, begun)) - len(begun[-1])
    rest = tts.stream(TWO, max_tokens=20, resume=at)
    assert np.array_equal(np.concatenate([*begun[:-1], heard(rest)]), samples)
    assert rest.n_samples == whole.n_samples == len(samples)
    made: list[int] = []
    heard(tts.stream(TWO, max_tokens=20, resume=at, progress=made.append))
    assert len(made) == 20  # of the second part alone


@pytest.mark.slow
def test_pauses_are_options_of_the_request(tts: Nightingale) -> None:
    usual, longer = (
        tts.say(TWO, max_tokens=20, paragraph_pause_ms=ms).samples for ms in (800, 1100)
    )
    assert len(longer) - len(usual) == 300 * 24
    with pytest.raises(OptionError, match="paragraph_pause_ms"):
        tts.stream(TWO, paragraph_pause_ms=-1)


@pytest.mark.slow
def test_pauses_are_marked(tts: Nightingale) -> None:
    chunks = list(tts.stream("It is late. Go home.\n\nNobody asked why.", max_tokens=12))
    pauses = [chunk.samples for chunk in chunks if chunk.is_pause]
    assert pauses
    assert not np.concatenate(pauses).any()
    assert sum(map(len, pauses)) < sum(len(chunk.samples) for chunk in chunks)


@pytest.mark.slow
def test_the_start_of_a_live_plan_is_trimmed_and_words_follow_it(releases: Releases) -> None:
    """By as much as the sound is shorter, words are earlier."""
    trimming = replace(LIVE, trims_silence=True)
    whole, short = (
        load(releases, "multilingual-hi", plan).stream(TEXT, max_tokens=N_TOKENS)
        for plan in (LIVE, trimming)
    )
    n_cut = len(heard(whole)) - len(heard(short))
    assert n_cut > 0
    assert first_audible(
        heard(load(releases, "multilingual-hi", trimming).stream(TEXT, max_tokens=9))
    )
    for before, after in zip(whole.words, short.words, strict=True):
        assert after.end_s == pytest.approx(max(0.0, before.end_s - n_cut / 24_000), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["reference", "live"])
def test_an_utterance_opens_and_closes_in_silence(releases: Releases, plan: str) -> None:
    chosen = PLANS["reference"] if plan == "reference" else LIVE
    for name in ("multilingual-hi", "nano"):
        samples = load(releases, name, chosen, watermark=False).say(TEXT, max_tokens=9).samples
        assert abs(samples[0]) < 1e-3
        assert abs(samples[-1]) < 1e-3
        assert np.abs(samples[-960:-480]).max() > 1e-3  # or there was nothing to fade


@pytest.mark.slow
def test_what_was_not_said_is_tried_again_and_then_reported(
    tts: Nightingale, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guard that ends speech after eleven tokens, and finds that the last word is missing."""
    asked: list[str] = []
    encode = tts.components.tokenizer.encode

    class Strict(Guard):
        is_said = False

        @property
        def _is_over(self) -> bool:
            self.places[-1] = 10**6
            return len(self.places) == 12

    def noted(text: str, language: str | None = None) -> list[int]:
        asked.append(text)
        return encode(text, language)

    monkeypatch.setattr(engine, "Guard", Strict)
    monkeypatch.setattr(tts.components.tokenizer, "encode", noted)
    speech = tts.stream("It is late.", max_tokens=40)
    assert len(heard(speech)) > 0
    assert len(speech.tokens) == 3 * 11
    assert asked == ["It is late.", "late.", "late."]
    assert speech.unsaid == ("late.",)
    assert not speech.is_complete


def test_seeds_of_parts_differ_and_the_first_is_the_requests() -> None:
    seeds = [derive_seed(7, part) for part in range(100)]
    assert seeds[0] == 7
    assert len(set(seeds)) == 100
    assert all(0 <= seed < 2**63 for seed in seeds)
