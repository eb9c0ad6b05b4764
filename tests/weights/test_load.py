"""Strict loading: what fits goes in unchanged, what does not is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from nightingale.errors import CorruptFileError, LayoutError, NotPulledError
from nightingale.weights.load import load_into, load_tensors, read_config, read_tensors


class Part(nn.Module):
    """A weight, a count of whole numbers, and a window that the module computes."""

    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("count", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("window", torch.hann_window(4))


TENSORS = {
    "linear.weight": torch.arange(6.0).reshape(2, 3),
    "linear.bias": torch.tensor([7.0, 8.0]),
    "count": torch.tensor([1, 2]),
    "window": torch.ones(4),
}


def saved(folder: Path, tensors: dict[str, Tensor]) -> Path:
    save_file(tensors, folder / "part.safetensors")
    return folder / "part.safetensors"


def without(*names: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in TENSORS.items() if name not in names}


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_module_gets_the_tensors_of_the_file(device: str, tmp_path: Path) -> None:
    with torch.device(device):
        part = Part()
    load_into(part, saved(tmp_path, TENSORS))
    state = part.state_dict()
    assert state.keys() == TENSORS.keys()
    assert all(torch.equal(state[name], TENSORS[name]) for name in state)
    assert part.linear.weight.requires_grad


def test_loaded_tensors_do_not_write_into_the_file(tmp_path: Path) -> None:
    file = saved(tmp_path, TENSORS)
    part = Part()
    load_into(part, file)
    with torch.no_grad():
        part.linear.bias.zero_()
    assert torch.equal(read_tensors(file)["linear.bias"], TENSORS["linear.bias"])


def test_precision_is_the_files_unless_asked(tmp_path: Path) -> None:
    half = {name: t.half() if t.is_floating_point() else t for name, t in TENSORS.items()}
    part = Part()
    load_into(part, saved(tmp_path, half))
    assert part.linear.weight.dtype == torch.float16
    load_into(part, saved(tmp_path, half), dtype=torch.bfloat16)
    assert part.linear.weight.dtype == torch.bfloat16
    assert part.state_dict()["count"].dtype == torch.int64


def test_a_prefix_picks_one_part_of_a_file(tmp_path: Path) -> None:
    both = {f"mel2wav.{name}": tensor for name, tensor in TENSORS.items()}
    file = saved(tmp_path, {**both, "flow.weight": torch.ones(1)})
    part = Part()
    load_into(part, file, prefix="mel2wav.")
    assert torch.equal(part.linear.bias, TENSORS["linear.bias"])
    assert list(read_tensors(file, "flow.")) == ["weight"]


def test_dead_names_are_passed_over_and_optional_ones_may_be_absent(tmp_path: Path) -> None:
    file = saved(tmp_path, {**without("window"), "text_head.weight": torch.ones(1)})
    part = Part()
    load_into(part, file, dead=["text_head.*"], optional=["window"])
    assert torch.equal(part.window, torch.hann_window(4))


def test_an_absent_tensor_that_nobody_computed_is_missing_even_if_optional(tmp_path: Path) -> None:
    with torch.device("meta"):
        part = Part()
    with pytest.raises(LayoutError, match=r"1 missing \(window \[4\]\)"):
        load_into(part, saved(tmp_path, without("window")), optional=["window"])


@pytest.mark.parametrize(
    ("tensors", "complaint"),
    [
        (without("count"), r"1 missing \(count \[2\]\)"),
        ({**TENSORS, "extra": torch.ones(5)}, r"1 unknown \(extra \[5\]\)"),
        (
            {**TENSORS, "window": torch.ones(5)},
            r"1 of another shape \(window is \[5\], not \[4\]\)",
        ),
        (
            {**TENSORS, "count": torch.ones(2)},
            r"1 of another kind \(count is F32, not like .*int64",
        ),
        ({**TENSORS, "window": torch.ones(4).int()}, r"1 of another kind \(window is I32"),
        ({**TENSORS, **{f"x{i}": torch.ones(1) for i in range(9)}}, r"9 unknown .* and 6 more"),
        ({"x": torch.ones(1)}, r"4 missing .*; 1 unknown"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_names_and_shapes(
    tensors: dict[str, Tensor], complaint: str, tmp_path: Path
) -> None:
    part = Part()
    before = {name: tensor.clone() for name, tensor in part.state_dict().items()}
    with pytest.raises(LayoutError, match=rf"part\.safetensors.*{complaint}"):
        load_into(part, saved(tmp_path, tensors))
    assert all(torch.equal(before[name], now) for name, now in part.state_dict().items())


def test_tensors_in_another_form_are_loaded_as_strictly(tmp_path: Path) -> None:
    file = tmp_path / "part.safetensors"
    part = Part()
    load_tensors(part, TENSORS, file, dtype=torch.bfloat16)
    assert torch.equal(part.linear.bias, TENSORS["linear.bias"].bfloat16())
    assert part.state_dict()["count"].dtype == torch.int64
    for tensors, complaint in (
        (without("window"), r"1 missing \(window \[4\]\)"),
        ({**TENSORS, "extra": torch.ones(5)}, r"1 unknown \(extra \[5\]\)"),
        ({**TENSORS, "window": torch.ones(5)}, r"window is \[5\], not \[4\]"),
        ({**TENSORS, "count": torch.ones(2)}, r"count is .*float32, not like .*int64"),
    ):
        with pytest.raises(LayoutError, match=rf"part\.safetensors.*{complaint}"):
            load_tensors(Part(), tensors, file)


def test_a_file_may_leave_the_rest_to_another_one_beside_it(tmp_path: Path) -> None:
    own = {"linear.bias": torch.tensor([-1.0, -2.0])}
    header = {"rest": "part.safetensors", "config": {"a": 1}}
    saved(tmp_path, TENSORS)
    save_file(own, tmp_path / "own.safetensors", {"nightingale": json.dumps(header)})
    module = Part()
    load_into(module, tmp_path / "own.safetensors")
    assert torch.equal(module.linear.bias, own["linear.bias"])
    assert torch.equal(module.linear.weight, TENSORS["linear.weight"])
    assert read_tensors(tmp_path / "own.safetensors").keys() == TENSORS.keys()
    assert read_config(tmp_path / "own.safetensors") == {"a": 1}


def test_the_rest_lies_beside_the_file_and_nowhere_else(tmp_path: Path) -> None:
    saved(tmp_path, TENSORS)
    (tmp_path / "below").mkdir()
    header = {"rest": "../part.safetensors"}
    file = tmp_path / "below" / "own.safetensors"
    save_file({}, file, {"nightingale": json.dumps(header)})
    with pytest.raises(NotPulledError, match=r"below/part\.safetensors"):
        read_tensors(file)


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    file = saved(tmp_path, TENSORS)
    content = file.read_bytes()
    for damaged in (b"", content[:20], content[:-1], b"PK\3\4" + content):
        file.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match=r"part\.safetensors"):
            load_into(Part(), file)


def test_an_absent_file_names_itself_and_the_command(tmp_path: Path) -> None:
    with pytest.raises(NotPulledError, match=r"gone\.safetensors.*nightingale pull"):
        load_into(Part(), tmp_path / "gone.safetensors")
