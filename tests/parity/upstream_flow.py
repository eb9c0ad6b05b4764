"""Runs inside the upstream environment: random flow weights, and what upstream makes of them.

argv: job.json answer.json. A job is a list of models, each with its sizes, its checkpoint and its
cases: files with tokens, a voice and the noise to begin with; the stages are written beside them.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.backends.torch.flow.random_weights import randomize


def upstream(name: str) -> Any:
    """A module of s3gen, without the front doors that want everything else as well."""
    if "chatterbox.models.s3gen" not in sys.modules:
        spec = find_spec("chatterbox")
        assert spec is not None
        assert spec.submodule_search_locations
        home = Path(spec.submodule_search_locations[0])
        for package, folder in (("chatterbox", home), ("chatterbox.models.s3gen", "models/s3gen")):
            bare = ModuleType(package)
            bare.__path__ = [str(home / folder)]
            bare.__spec__ = spec if package == "chatterbox" else None  # so that it is found again
            sys.modules[package] = bare
    return import_module(f"chatterbox.models.s3gen.{name}")


def build(sizes: dict[str, Any]) -> Any:
    """Upstream's flow in the asked size."""
    encoder_sizes, estimator_sizes = sizes["encoder"], sizes["estimator"]
    width = encoder_sizes["d_model"]
    module = upstream("transformer.upsample_encoder")
    encoder = module.UpsampleConformerEncoder(
        input_size=width,
        output_size=width,
        attention_heads=encoder_sizes["n_heads"],
        linear_units=encoder_sizes["d_ffn"],
        num_blocks=encoder_sizes["n_layers"],
    )
    # These three have their sizes written into upstream's code.
    encoder.pre_lookahead_layer = module.PreLookaheadLayer(channels=width, pre_lookahead_len=3)
    encoder.up_layer = module.Upsample1D(channels=width, out_channels=width, stride=2)
    encoder.up_encoders = encoder.up_encoders[: encoder_sizes["n_up_layers"]]
    estimator = upstream("decoder").ConditionalDecoder(
        channels=[estimator_sizes["d_model"]],
        attention_head_dim=estimator_sizes["d_head"],
        n_blocks=estimator_sizes["n_transformers"],
        num_mid_blocks=estimator_sizes["n_mid_blocks"],
        num_heads=estimator_sizes["n_heads"],
        meanflow=estimator_sizes["meanflow"],
    )
    decoder = upstream("flow_matching").CausalConditionalCFM(estimator=estimator)
    flow = upstream("flow").CausalMaskedDiffWithXvec(
        input_size=width, encoder=encoder, decoder=decoder
    )
    return flow.eval()


def render(flow: Any, case: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All stages of one utterance; the one draw of noise is answered with the case's."""
    meanflow = flow.decoder.estimator.meanflow
    tokens, prompt, noise = case["tokens"][None], case["prompt_tokens"][None], case["noise"].T[None]
    inputs: list[torch.Tensor] = []
    said: dict[str, torch.Tensor] = {}
    estimate = flow.decoder.estimator.forward

    def listen(x: torch.Tensor, **others: Any) -> Any:
        inputs.append(x[0].T.clone())
        return estimate(x=x, **others)

    def hear(_module: Any, _args: Any, given: dict[str, Any], answer: Any) -> None:
        said.update(encoder=given["mu"][0].T, speaker=given["spks"][0])
        steps = [*inputs[1:], answer[0][0].T]
        said.update({f"step {number}": x for number, x in enumerate(steps, 1)})

    hook = flow.decoder.register_forward_hook(hear, with_kwargs=True)
    with (
        patch.object(flow.decoder.estimator, "forward", listen),
        patch("torch.randn_like", lambda _: noise.clone()),
    ):
        mel, _ = flow.inference(
            token=tokens,
            token_len=torch.tensor([tokens.shape[1]]),
            prompt_token=prompt,
            prompt_token_len=torch.tensor([prompt.shape[1]]),
            prompt_feat=case["prompt_mel"][None],
            prompt_feat_len=None,
            embedding=case["xvector"][None],
            finalize=True,
            n_timesteps=2 if meanflow else 10,
            noised_mels=noise[..., -2 * tokens.shape[1] :] if meanflow else None,
            meanflow=meanflow,
        )
    hook.remove()
    said["mel"] = mel[0]
    return {name: x.clone(memory_format=torch.contiguous_format) for name, x in said.items()}


def main(job: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(job["threads"])
    for model in job["models"]:
        flow = build(model["sizes"])
        randomize(flow, seed=7)
        save_file({f"flow.{name}": x for name, x in flow.state_dict().items()}, model["checkpoint"])
        for case in model["cases"]:
            save_file(render(flow, load_file(case)), f"{case}.upstream")
    return {}


if __name__ == "__main__":
    answer = main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
