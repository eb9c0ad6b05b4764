"""Runs inside the upstream environment: random encoders, and the voices upstream makes with them.

argv: job.json answer.json. A job says which sizes to build, where the weights go, and which
recordings to clone for which family; tensors are written beside the recordings.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.voice.random_weights import randomize

# Imported by the modules that we run, and of no use for a voice.
ROOMS = ("flow", "flow_matching", "decoder", "hifigan", "f0_predictor", "transformer")
UNUSED = ["perth", "chatterbox.models.s3gen.transformer.upsample_encoder"]
UNUSED += [f"chatterbox.models.s3gen.{room}" for room in ROOMS]


def upstream(name: str) -> Any:
    """A module of upstream's, without its front door."""
    if "chatterbox" not in sys.modules:
        spec = find_spec("chatterbox")
        assert spec is not None
        bare = ModuleType("chatterbox")
        bare.__path__ = list(spec.submodule_search_locations or ())
        sys.modules["chatterbox"] = bare
        sys.modules |= {unused: MagicMock(name=unused) for unused in UNUSED}
    return import_module(f"chatterbox.{name}")


def build(sizes: dict[str, Any], seed: int) -> SimpleNamespace:
    """The three encoders as upstream has them; some sizes are written into its code."""
    defaults = import_module("s3tokenizer.model_v2").S3TokenizerV2.__init__.__defaults__[0]
    defaults.n_audio_state = sizes["tokenizer"]["d_model"]
    defaults.n_audio_head = sizes["tokenizer"]["d_model"] // 64
    defaults.n_audio_layer = sizes["tokenizer"]["n_layers"]
    tokenizer = upstream("models.s3tokenizer.s3tokenizer").S3Tokenizer()
    xvector = upstream("models.s3gen.xvector")
    n_planes, n_channels = sizes["xvector"]["n_planes"], sizes["xvector"]["n_channels"]
    speaker_encoder = xvector.CAMPPlus(
        growth_rate=sizes["xvector"]["growth"], init_channels=n_channels, memory_efficient=False
    )
    if n_planes != 32:
        speaker_encoder.head = xvector.FCM(m_channels=n_planes)
        first = xvector.TDNNLayer(n_planes * 10, n_channels, 5, stride=2, padding=-1)
        speaker_encoder.xvector.tdnn = first
    voice_encoder = upstream("models.voice_encoder").VoiceEncoder()
    parts = tokenizer, speaker_encoder, voice_encoder
    for number, part in enumerate(parts):
        randomize(part.eval().requires_grad_(False), seed + number)
    return SimpleNamespace(tokenizer=tokenizer, speaker_encoder=speaker_encoder, ve=voice_encoder)


def save_weights(parts: SimpleNamespace, folder: Path) -> None:
    tensors = {
        f"{prefix}.{name}": tensor.clone()
        for prefix in ("tokenizer", "speaker_encoder")
        for name, tensor in getattr(parts, prefix).state_dict().items()
    }
    save_file(tensors, folder / "s3gen.safetensors")
    save_file(parts.ve.state_dict(), folder / "ve.safetensors")


def make_voice(parts: SimpleNamespace, path: str, family: str) -> dict[str, torch.Tensor]:
    """Upstream's own preparation of a voice, on a model that has nothing else."""
    is_turbo = family in ("turbo", "nano")
    module = upstream("tts_turbo" if is_turbo else "tts")
    model_class = module.ChatterboxTurboTTS if is_turbo else module.ChatterboxTTS
    s3gen = SimpleNamespace(
        tokenizer=parts.tokenizer,
        speaker_encoder=parts.speaker_encoder,
        mel_extractor=upstream("models.s3gen.utils.mel").mel_spectrogram,
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    embed_ref = upstream("models.s3gen.s3gen").S3Token2Mel.embed_ref
    s3gen.embed_ref = lambda *args, **kwargs: embed_ref(s3gen, *args, **kwargs)
    waves: list[Any] = []
    load = module.librosa.load

    def watched_load(*args: Any, **kwargs: Any) -> Any:
        waves.append(load(*args, **kwargs))
        return waves[-1]

    model = SimpleNamespace(
        s3gen=s3gen,
        ve=parts.ve,
        device="cpu",
        t3=SimpleNamespace(hp=SimpleNamespace(speech_cond_prompt_len=375 if is_turbo else 150)),
        ENC_COND_LEN=model_class.ENC_COND_LEN,
        DEC_COND_LEN=model_class.DEC_COND_LEN,
    )
    if is_turbo:  # its gain makes float64 of the wave, and the encoders then stop
        model.norm_loudness = lambda wave, rate: model_class.norm_loudness(
            model, wave, rate
        ).astype(np.float32)
    module.librosa.load = watched_load
    try:
        model_class.prepare_conditionals(model, path)
    finally:
        module.librosa.load = load
    t3, flow = model.conds.t3, model.conds.gen
    return {
        "wave": torch.from_numpy(waves[0][0]),
        "t3_tokens": t3.cond_prompt_speech_tokens[0],
        "speaker": t3.speaker_emb[0],
        "flow_tokens": flow["prompt_token"][0],
        "mel": flow["prompt_feat"][0],
        "xvector": flow["embedding"][0],
    }


def recipes(wave24: torch.Tensor, wave16: torch.Tensor, parts: Any) -> dict[str, torch.Tensor]:
    """What the libraries under upstream make of a wave, one by one."""
    librosa, pyloudnorm = import_module("librosa"), import_module("pyloudnorm")
    torchaudio = import_module("torchaudio")
    melspec, config = (upstream(f"models.voice_encoder.{n}") for n in ("melspec", "config"))
    found = {
        "flow_mel": upstream("models.s3gen.utils.mel").mel_spectrogram(wave24[None])[0].T,
        "token_log_mel": parts.tokenizer.log_mel_spectrogram(wave16[None])[0],
        "speaker_mel": melspec.melspectrogram(wave16.numpy(), config.VoiceEncConfig()).T,
        "kaldi_fbank": torchaudio.compliance.kaldi.fbank(wave16[None], num_mel_bins=80),
        "trimmed": librosa.effects.trim(wave16.numpy(), top_db=20)[0],
        "loudness": [pyloudnorm.Meter(24_000).integrated_loudness(wave24.numpy())],
        "soxr": librosa.resample(wave24.numpy(), orig_sr=24_000, target_sr=16_000),
    }
    for to_hz in (16_000, 22_050, 48_000):
        found[f"sinc{to_hz}"] = torchaudio.transforms.Resample(24_000, to_hz)(wave24)
    for rate_hz, n_fft, n_bands in ((24_000, 1920, 80), (16_000, 400, 128), (16_000, 400, 40)):
        found[f"filters{n_bands}"] = librosa.filters.mel(
            sr=rate_hz, n_fft=n_fft, n_mels=n_bands, fmin=0, fmax=8000
        )
    return {name: torch.as_tensor(value).float().contiguous() for name, value in found.items()}


def main(job: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(1)
    parts = build(job["sizes"], job["seed"])
    save_weights(parts, Path(job["weights"]))
    n_tokens, levels = 0, list[torch.Tensor]()
    parts.tokenizer.quantizer._codebook.project_down.register_forward_hook(
        lambda _m, _i, out: levels.append(out.tanh() * 0.9990000128746033)
    )
    for clip in job["clips"]:
        levels.clear()
        voice = make_voice(parts, clip["path"], clip["family"])
        voice |= {"flow_levels": levels[0], "t3_levels": levels[1]}
        save_file(
            {name: value.contiguous().clone() for name, value in voice.items()}, clip["voice"]
        )
        n_tokens += len(voice["t3_tokens"]) + len(voice["flow_tokens"])
    for number, pair in enumerate(job.get("recipes", ())):
        waves = [torch.from_numpy(np.load(path)) for path in pair]
        save_file(recipes(waves[0], waves[1], parts), f"{job['weights']}/recipes{number}")
    return {"n_tokens": n_tokens}


if __name__ == "__main__":
    answer = main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
