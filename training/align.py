"""Word ends by CTC forced alignment with the phoneme head of the speech tokenizer.

They supervise T3's alignment heads; a rough diagonal was not enough for T3 to keep its place.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from training import corpus
from training.codes import BASE, N_DIGITS
from training.corpus import Utterance
from training.loop import load_ema
from training.speech_tokenizer import FOLDER, TOKENS, UNSPOKEN, TokenizerWithHeads, phonemes_of
from training.work import work

ALIGNED = work() / "aligned"


def phoneme_log_probs(net: TokenizerWithHeads, tokens: list[int]) -> NDArray[np.float32]:
    """(T, 1 + phonemes): log-probabilities of blank and phonemes at each token."""
    codes = torch.tensor(tokens)
    levels = torch.stack([codes // BASE**place % BASE - 1 for place in range(N_DIGITS)], dim=1)
    with torch.inference_mode():
        spelled = net.ctc_head(levels.float().T[None])[0].T.log_softmax(-1)
    return spelled.numpy()


def ctc_phoneme_ends(spelled: NDArray[np.float32], said: list[int]) -> list[int]:
    """After which token each phoneme ends: the Viterbi path through blanks and phonemes."""
    states = np.zeros(2 * len(said) + 1, np.int64)
    states[1::2] = said
    may_skip = np.zeros(len(states), bool)
    may_skip[3::2] = states[3::2] != states[1:-2:2]
    score = np.full(len(states), -np.inf, np.float32)
    score[:2] = spelled[0, states[:2]]
    came = np.zeros((len(spelled), len(states)), np.int8)
    for t in range(1, len(spelled)):
        step = np.concatenate(([-np.inf], score[:-1]))
        skip = np.where(may_skip, np.concatenate(([-np.inf, -np.inf], score[:-2])), -np.inf)
        ways = np.stack((score, step, skip))
        came[t] = ways.argmax(0)
        score = ways.max(0) + spelled[t, states]
    state = len(states) - 1 - int(score[-1] < score[-2])
    ends = [0] * len(said)
    for t in range(len(spelled) - 1, -1, -1):
        if state % 2 and not ends[state // 2]:
            ends[state // 2] = t + 1
        state -= int(came[t, state])
    return ends


def word_ends(
    net: TokenizerWithHeads, number: dict[str, int], utterance: Utterance, tokens: list[int]
) -> list[int]:
    """After which token each word of the text ends."""
    words = [[number[s] for s in word if s in number] for word in utterance.phonemes.split()]
    said = [sound for word in words for sound in word]
    ends = ctc_phoneme_ends(phoneme_log_probs(net, tokens), said)
    counts = np.cumsum([0] + [len(word) for word in words])
    return [ends[last - 1] if last else 0 for _, last in pairwise(counts)]


def word_ends_by_voice() -> dict[str, dict[str, list[int]]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(ALIGNED.glob("*.json"))}


def main(only: str | None = None) -> None:
    """All voices that T3 learns from."""
    torch.set_num_threads(1)
    sizes = json.loads((FOLDER / "sizes.json").read_text())
    net = TokenizerWithHeads(**sizes)
    load_ema(net, FOLDER)
    phonemes = phonemes_of(corpus.training_set())
    assert len(phonemes) == sizes["n_phonemes"], "the tokenizer was trained on other speech"
    number = {sound: 1 + i for i, sound in enumerate(phonemes)}
    for voice in [only] if only else corpus.voices(more=True):
        if not corpus.is_perturbed(voice) and (TOKENS / f"{voice}.json").is_file():
            typer.echo(align(net, number, voice))


def align(net: TokenizerWithHeads, number: dict[str, int], voice: str) -> Path:
    """{id: word ends} of a voice, kept."""
    tokens = json.loads((TOKENS / f"{voice}.json").read_text())
    found = {
        u.id: word_ends(net, number, u, tokens[u.id])
        for u in corpus.read(voice)
        if u.id in tokens and any(sound not in UNSPOKEN for sound in u.phonemes)
    }
    ALIGNED.mkdir(parents=True, exist_ok=True)
    file = ALIGNED / f"{voice}.json"
    file.write_text(json.dumps(found))
    return file


if __name__ == "__main__":
    typer.run(main)
