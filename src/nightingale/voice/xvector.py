"""Who speaks, for the flow: the CAM++ x-vector, a dense time-delay network over a filter bank.

Parameter names are those of the released files, behind `speaker_encoder.` there. Every layer but
the last two keeps all that came before it and adds a little; gates see the whole recording.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.audio.mel import kaldi_fbank

PREFIX = "speaker_encoder."
DEAD_TENSORS = ("*.num_batches_tracked",)  # of use in training alone

N_BANDS = 80
SEGMENT = 100  # frames whose mean a gate sees, beside that of the whole
NORM_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class XVectorConfig:
    """The released size; tests use smaller ones."""

    n_planes: int = 32  # of the image-like front
    n_channels: int = 128
    growth: int = 32  # channels that a layer adds
    d_embedding: int = 192
    n_layers: tuple[int, int, int] = (12, 24, 16)
    dilations: tuple[int, int, int] = (1, 2, 2)


class XVector(nn.Module):
    """A recording -> a vector. Means and spreads are those of training, always."""

    def __init__(self, config: XVectorConfig | None = None) -> None:
        super().__init__()
        config = config or XVectorConfig()
        self.head = _Front(config.n_planes)
        self.xvector = _Body(config)

    @torch.inference_mode()
    def embed(self, wave: Tensor) -> Tensor:
        """(N,) at 16 kHz -> (192,)"""
        fbank = kaldi_fbank(wave)  # (F, 80)
        fbank = fbank - fbank.mean(dim=0, keepdim=True)
        return self.xvector(self.head(fbank.T[None, None]))[0]


class _Norm(nn.Module):
    """Batch norm as it is after training, over channels of (B, C, ...)."""

    def __init__(self, n_channels: int, *, has_affine: bool = True) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(n_channels))
        self.register_buffer("running_var", torch.ones(n_channels))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.weight = nn.Parameter(torch.ones(n_channels)) if has_affine else None
        self.bias = nn.Parameter(torch.zeros(n_channels)) if has_affine else None

    def forward(self, x: Tensor) -> Tensor:
        statistics = self.running_mean, self.running_var
        return F.batch_norm(x, *statistics, self.weight, self.bias, eps=NORM_EPS)


class _NormRelu(nn.Module):
    def __init__(self, n_channels: int) -> None:
        super().__init__()
        self.batchnorm = _Norm(n_channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.batchnorm(x))


class _Front(nn.Module):
    """Reads the filter bank as a picture and makes it eight times lower."""

    def __init__(self, n_planes: int) -> None:
        super().__init__()
        self.conv1 = _picture_conv(1, n_planes)
        self.bn1 = _Norm(n_planes)
        self.layer1 = nn.Sequential(_Residual(n_planes, 2), _Residual(n_planes, 1))
        self.layer2 = nn.Sequential(_Residual(n_planes, 2), _Residual(n_planes, 1))
        self.conv2 = _picture_conv(n_planes, n_planes, stride=2)
        self.bn2 = _Norm(n_planes)

    def forward(self, x: Tensor) -> Tensor:
        """(1, 1, 80, F) -> (1, planes * 10, F)"""
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer2(self.layer1(x))
        return F.relu(self.bn2(self.conv2(x))).flatten(1, 2)


class _Residual(nn.Module):
    def __init__(self, n_planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _picture_conv(n_planes, n_planes, stride=stride)
        self.bn1 = _Norm(n_planes)
        self.conv2 = _picture_conv(n_planes, n_planes)
        self.bn2 = _Norm(n_planes)
        self.shortcut = nn.Sequential()
        if stride != 1:
            narrow = nn.Conv2d(n_planes, n_planes, 1, stride=(stride, 1), bias=False)
            self.shortcut = nn.Sequential(narrow, _Norm(n_planes))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def _picture_conv(n_in: int, n_out: int, stride: int = 1) -> nn.Conv2d:
    """3 x 3; steps are over frequency, never over time."""
    return nn.Conv2d(n_in, n_out, 3, stride=(stride, 1), padding=1, bias=False)


class _Body(nn.Module):
    def __init__(self, config: XVectorConfig) -> None:
        super().__init__()
        self.tdnn = _First(config.n_planes * N_BANDS // 8, config.n_channels)
        n_channels = config.n_channels
        self.stages: list[str] = []
        for number, n_layers in enumerate(config.n_layers, start=1):
            block = _Block(n_channels, config.growth, n_layers, config.dilations[number - 1])
            n_channels += n_layers * config.growth
            self.add_module(f"block{number}", block)
            self.add_module(f"transit{number}", _Transit(n_channels, n_channels // 2))
            self.stages += [f"block{number}", f"transit{number}"]
            n_channels //= 2
        self.out_nonlinear = _NormRelu(n_channels)
        self.dense = _Last(2 * n_channels, config.d_embedding)

    def forward(self, x: Tensor) -> Tensor:
        """(1, C, F) -> (1, 192)"""
        x = self.tdnn(x)
        for name in self.stages:
            x = self.get_submodule(name)(x)
        x = self.out_nonlinear(x)
        return self.dense(torch.cat((x.mean(dim=-1), x.std(dim=-1)), dim=-1))


class _First(nn.Module):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.linear = nn.Conv1d(n_in, n_out, 5, stride=2, padding=2, bias=False)
        self.nonlinear = _NormRelu(n_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.nonlinear(self.linear(x))


class _Block(nn.Module):
    """Layers that each read all channels so far and append their own."""

    def __init__(self, n_in: int, growth: int, n_layers: int, dilation: int) -> None:
        super().__init__()
        for number in range(n_layers):
            layer = _Layer(n_in + number * growth, growth, dilation)
            self.add_module(f"tdnnd{number + 1}", layer)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.children():
            x = torch.cat((x, layer(x)), dim=1)
        return x


class _Layer(nn.Module):
    def __init__(self, n_in: int, growth: int, dilation: int) -> None:
        super().__init__()
        self.nonlinear1 = _NormRelu(n_in)
        self.linear1 = nn.Conv1d(n_in, 4 * growth, 1, bias=False)
        self.nonlinear2 = _NormRelu(4 * growth)
        self.cam_layer = _Gated(4 * growth, growth, dilation)

    def forward(self, x: Tensor) -> Tensor:
        return self.cam_layer(self.nonlinear2(self.linear1(self.nonlinear1(x))))


class _Gated(nn.Module):
    """A convolution whose channels are opened or closed by what the recording is like."""

    def __init__(self, n_in: int, n_out: int, dilation: int) -> None:
        super().__init__()
        self.linear_local = nn.Conv1d(
            n_in, n_out, 3, padding=dilation, dilation=dilation, bias=False
        )
        self.linear1 = nn.Conv1d(n_in, n_in // 2, 1)
        self.linear2 = nn.Conv1d(n_in // 2, n_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        nearby = F.avg_pool1d(x, SEGMENT, SEGMENT, ceil_mode=True)
        nearby = nearby.repeat_interleave(SEGMENT, dim=-1)[..., : x.shape[-1]]
        context = F.relu(self.linear1(x.mean(-1, keepdim=True) + nearby))
        return self.linear_local(x) * torch.sigmoid(self.linear2(context))


class _Transit(nn.Module):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.nonlinear = _NormRelu(n_in)
        self.linear = nn.Conv1d(n_in, n_out, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.nonlinear(x))


class _Last(nn.Module):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.linear = nn.Conv1d(n_in, n_out, 1, bias=False)
        self.nonlinear = nn.Sequential()
        self.nonlinear.add_module("batchnorm", _Norm(n_out, has_affine=False))

    def forward(self, x: Tensor) -> Tensor:
        """(1, C) -> (1, 192)"""
        return self.nonlinear(self.linear(x[..., None])[..., 0])
