"""What the flow makes of the speech that the vocoder learns from: `python -m training.flow_mel`.

A vocoder that has only seen the mel of speech takes the flow's errors for sound. So the tokens of
what the first voice said, as it was spoken, become mel again, frame for frame beside the analysis
of `training.world`. Minutes on one core.
"""

from __future__ import annotations

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor

from nightingale.core import SAMPLES_PER_FRAME, FlowPrompt
from nightingale.measure.stages import TorchStages, torch_stages
from nightingale.pipeline import Nightingale
from nightingale.weights.manifest import BUNDLE
from training import world
from training.token_corpus import load_tokenizer, tokens_of
from training.work import work

FILE = world.FOLDER / "flow_mel.npy"
SILENT = -8.0  # mean of a frame's logarithms; below it, levels are not compared


def match_level(made: Tensor, spoken: Tensor) -> Tensor:
    """(80, M) at the level of the other: the analysis is of speech made louder or softer."""
    heard = spoken.mean(0) > SILENT
    return made + (spoken - made)[:, heard].mean() if heard.any() else made


@torch.inference_mode()
def resynthesized(
    stages: TorchStages, prompt: FlowPrompt, samples: NDArray[np.int16], mel: Tensor, seed: int
) -> Tensor:
    """One utterance through tokens and flow, (80, M); as it is where the tokens end."""
    tokens = torch.tensor(tokens_of(load_tokenizer(), samples))
    made = stages.flow.render(tokens, prompt, seed)
    n = min(made.shape[1], mel.shape[1])
    found = mel.clone()
    found[:, :n] = match_level(made[:, :n], mel[:, :n])
    return found


def main() -> None:
    """Write the mel of all utterances of the first voice, one behind the other."""
    torch.set_num_threads(1)
    speech = dict(np.load(world.FOLDER / f"{world.MAIN_VOICE}.npz"))
    tts = Nightingale.load(BUNDLE, home=work() / "home", device="cpu", watermark=False)
    stages, prompt = torch_stages(tts.components), tts.components.voice.flow
    mel, first = speech["mel"].copy(), 0
    lengths = list(zip(speech["n_frames"], speech["as_spoken"], strict=True))
    with typer.progressbar(lengths) as shown:
        for seed, (n_frames, as_spoken) in enumerate(shown):
            rows = slice(first, first + int(n_frames))
            first = rows.stop
            if as_spoken:
                samples = speech["samples"][
                    rows.start * SAMPLES_PER_FRAME : rows.stop * SAMPLES_PER_FRAME
                ]
                spoken = torch.from_numpy(mel[rows]).float().T
                mel[rows] = resynthesized(stages, prompt, samples, spoken, seed).T.half().numpy()
    np.save(FILE, mel)


if __name__ == "__main__":
    typer.run(main)
