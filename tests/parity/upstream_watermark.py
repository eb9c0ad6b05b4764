"""Runs inside the upstream environment: what Perth makes of clips, and what it finds in them.

argv: job.json answer.json. A job has one or two steps: `to_mark` is a file of 24 kHz clips, whose
watermarked twins go to `watermarked` and the network's weights, in full precision, to `weights`;
`to_hear` is a file of clips, and the answer holds the detector's word on each: about 1 is yes, 0
is no.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

RATE_HZ = 24_000


def main(job: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(1)
    marker = import_module("perth").PerthImplicitWatermarker()
    with torch.inference_mode():
        if "to_mark" in job:
            watermarked = {
                name: torch.from_numpy(marker.apply_watermark(clip.numpy(), RATE_HZ))
                for name, clip in load_file(job["to_mark"]).items()
            }
            save_file(watermarked, job["watermarked"])
            save_file(marker.perth_net.encoder.state_dict(), job["weights"])
        to_hear = load_file(job["to_hear"]) if "to_hear" in job else {}
        return {
            name: float(marker.get_watermark(clip.numpy(), RATE_HZ, round=False))
            for name, clip in to_hear.items()
        }


if __name__ == "__main__":
    answer = main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
