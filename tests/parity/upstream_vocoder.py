"""Runs inside the upstream environment: random vocoder weights, and what upstream makes of them.

argv: job.json answer.json. A job says what to build, in which precision, which mel frames to
vocode with which seed, and where to put the tensors of every stage.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.backends.torch.vocoder.small import randomize


def import_upstream(name: str) -> ModuleType:
    """One file of the package: its front door also wants everything else."""
    package = importlib.util.find_spec("chatterbox")
    assert package is not None
    assert package.submodule_search_locations
    path = Path(package.submodule_search_locations[0]) / f"models/s3gen/{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(sizes: dict[str, Any], dtype: torch.dtype) -> Any:
    """Upstream's vocoder in the asked size, put together as the package does it."""
    predictor = import_upstream("f0_predictor").ConvRNNF0Predictor(
        in_channels=sizes["n_mels"], cond_channels=sizes["n_f0_channels"]
    )
    dilations = list(sizes["dilations"])
    model = import_upstream("hifigan").HiFTGenerator(
        in_channels=sizes["n_mels"],
        base_channels=sizes["n_channels"],
        nb_harmonics=sizes["n_harmonics"] - 1,
        sampling_rate=24_000,
        upsample_rates=[factor for factor, _ in sizes["stages"]],
        upsample_kernel_sizes=[kernel for _, kernel in sizes["stages"]],
        resblock_kernel_sizes=list(sizes["kernels"]),
        resblock_dilation_sizes=[dilations] * len(sizes["kernels"]),
        source_resblock_kernel_sizes=list(sizes["source_kernels"]),
        source_resblock_dilation_sizes=[dilations] * len(sizes["source_kernels"]),
        f0_predictor=predictor,
    )
    model.stft_window = torch.hann_window(16, dtype=dtype)  # theirs is rounded to float32
    return model.to(dtype).eval()


def noise(seed: int, n_harmonics: int, n_samples: int) -> dict[str, Tensor]:
    """The draws that upstream makes after torch.manual_seed, in its order."""
    torch.manual_seed(seed)
    uniform = torch.distributions.Uniform(-torch.pi, torch.pi)
    phases = uniform.sample(torch.Size((n_harmonics,)))
    phases[0] = 0
    return {"phases": phases, "noise": torch.randn(n_harmonics, n_samples)}


def vocode(model: Any, stages: list[str], mel: Tensor, seed: int) -> dict[str, Tensor]:
    """What comes out of every named stage, and the sound."""
    seen: dict[str, Tensor] = {}

    def keep(name: str, out: Any) -> None:
        seen[name] = (out[0] if isinstance(out, tuple) else out).detach().clone().contiguous()

    hooks = [
        model.get_submodule(name).register_forward_hook(
            lambda _module, _args, out, name=name: keep(name, out)
        )
        for name in stages
    ]
    torch.manual_seed(seed)
    keep("waveform", model.inference(mel[None]))
    for hook in hooks:
        hook.remove()
    return seen


def main(job: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(job.get("threads", 1))
    dtype = getattr(torch, job["dtype"])
    torch.set_default_dtype(dtype)  # upstream makes some of its tensors in whatever this is
    model = build(job["sizes"], dtype)
    randomize(model, job["seed"])
    tensors = {f"mel2wav.{name}": tensor for name, tensor in model.state_dict().items()}
    save_file(tensors, job["checkpoint"])
    for case in job["cases"]:
        mel = load_file(case["mel"])["mel"].to(dtype)
        seen = vocode(model, job["stages"], mel, case["seed"])
        n_samples = seen["waveform"].shape[-1]
        save_file(
            {**noise(case["seed"], job["sizes"]["n_harmonics"], n_samples), **seen}, case["to"]
        )
    return {"n_tensors": len(tensors)}


if __name__ == "__main__":
    answer = main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
