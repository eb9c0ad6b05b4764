"""Products in 8 bits by the libraries that exist, against ours and against fp32.

    pip install onnx onnxruntime openvino torchao ggml-python
    python benchmarks/int8_libraries.py [--threads 1] [--rounds 15]

Weights in 8 bits, activations quantized in each call, fp32 in and out (ours: bfloat16 in), for
products of the flow (linear layers) and of the vocoder (convolutions, of which torch and ONNX
Runtime have none with dynamic scales: there the linear layer over unfolded frames stands for them,
without the time of unfolding). Contestants take turns; the best of the rounds counts, in processor
time, since others use the machine. `bytes_kept`: whether every row has the same bits on 1 and 2
threads and beside half as many others. Libraries that are not installed are left out. Prints a
line of JSON for each shape.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nightingale.nn import native
from nightingale.nn.convolution import Convolution
from nightingale.nn.deterministic import linear

SHAPES = [  # inputs, outputs, taps, frames
    (256, 1536, 1, 16), (256, 1024, 1, 50), (1024, 256, 1, 50), (512, 2048, 1, 200),
    (256, 1024, 1, 500), (256, 256, 11, 320), (128, 128, 7, 1600), (64, 64, 11, 4800),
]  # fmt: skip
Product = Callable[[Tensor], Tensor]  # (T, D) -> (T, D')


def ours(weight: Tensor, bias: Tensor) -> Product:
    conv = Convolution(weight, bias, library=native.int8())
    n_taps, width = weight.shape[2], weight.shape[1]

    def run(x: Tensor) -> Tensor:
        # a row of unfolded frames is (D, taps): the last tap of each is the frame itself
        frames = x if n_taps == 1 else x[:, n_taps - 1 :: n_taps].contiguous()
        assert frames.shape[1] == width
        return conv(F.pad(frames, (0, 0, n_taps - 1, 0)).bfloat16())

    return run


def torch_dynamic(engine: str) -> Callable[[Tensor, Tensor], Product]:
    def make(weight: Tensor, bias: Tensor) -> Product:
        torch.backends.quantized.engine = engine
        scales = weight.flatten(1).abs().amax(1) / 127
        zeros = torch.zeros(len(weight), dtype=torch.int64)
        codes = torch.quantize_per_channel(weight.flatten(1), scales, zeros, 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(codes, bias)

        def run(x: Tensor) -> Tensor:
            made: Tensor = torch.ops.quantized.linear_dynamic(x, packed, reduce_range=True)
            return made

        return run

    return make


def torch_int_mm(weight: Tensor, bias: Tensor) -> Product:
    flat = weight.flatten(1)
    scales = flat.abs().amax(1) / 127
    codes = (flat / scales[:, None]).round().to(torch.int8).T.contiguous()

    def run(x: Tensor) -> Tensor:
        own = x.abs().amax(1, keepdim=True) / 127
        sums = torch._int_mm((x / own).round_().to(torch.int8), codes)
        return sums.float() * own * scales + bias

    return run


def torchao(weight: Tensor, bias: Tensor) -> Product:
    """Scales of activations row by row, as ours."""
    quantization: Any = importlib.import_module("torchao.quantization")
    layer = torch.nn.Linear(weight[0].numel(), len(weight))
    layer.weight.data, layer.bias.data = weight.flatten(1), bias
    quantization.quantize_(layer, quantization.Int8DynamicActivationInt8WeightConfig())
    return layer


def onnx_model(weight: Tensor, bias: Tensor) -> bytes:
    """Scales of activations are those of the whole tensor: there are no others."""
    onnx: Any = importlib.import_module("onnx")
    helper, numpy_helper, float32 = onnx.helper, onnx.numpy_helper, onnx.TensorProto.FLOAT

    flat = weight.flatten(1)
    scales = flat.abs().amax(1) / 127
    codes = (flat / scales[:, None]).round().to(torch.int8).T.contiguous().numpy()
    constants = {"w": codes, "z": np.zeros((), np.int8), "s": scales.numpy(), "b": bias.numpy()}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
        helper.make_node("MatMulInteger", ["q", "w", "qz", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=float32),
        helper.make_node("Mul", ["qs", "s"], ["ss"]),
        helper.make_node("Mul", ["f", "ss"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", float32, [None, flat.shape[1]])
    y = helper.make_tensor_value_info("y", float32, [None, len(flat)])
    kept = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "product", [x], [y], kept)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


def onnx_runtime(weight: Tensor, bias: Tensor) -> Product:
    onnxruntime: Any = importlib.import_module("onnxruntime")

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        onnx_model(weight, bias), options, providers=["CPUExecutionProvider"]
    )
    return lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


def openvino(weight: Tensor, bias: Tensor) -> Product:
    ov: Any = importlib.import_module("openvino")

    core = ov.Core()
    model = core.read_model(onnx_model(weight, bias))
    config = {"INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = core.compile_model(model, "CPU", config)
    return lambda x: torch.from_numpy(compiled(x.numpy())[0])


def ggml_q8_0(weight: Tensor, bias: Tensor) -> Product:
    """Blocks of 32 along a row have scales of their own, of weights and of activations."""
    ggml: Any = importlib.import_module("ggml")
    ggml.ggml_cpu_init()
    flat, n_bytes = weight.flatten(1).contiguous(), 1 << 27
    scratch = ctypes.create_string_buffer(n_bytes)
    kept = ggml.ggml_init(ggml.ggml_init_params(mem_size=1 << 24))
    codes = ggml.ggml_new_tensor_2d(kept, ggml.GGML_TYPE_Q8_0, flat.shape[1], len(flat))
    source = ctypes.cast(flat.data_ptr(), ctypes.POINTER(ctypes.c_float))
    to = ggml.ggml_get_data(codes)
    ggml.ggml_quantize_chunk(ggml.GGML_TYPE_Q8_0, source, to, 0, *flat.shape, None)

    def run(x: Tensor) -> Tensor:
        memory = ctypes.cast(scratch, ctypes.c_void_p)
        context = ggml.ggml_init(ggml.ggml_init_params(mem_size=n_bytes, mem_buffer=memory))
        given = ggml.ggml_new_tensor_2d(context, ggml.GGML_TYPE_F32, x.shape[1], len(x))
        ctypes.memmove(ggml.ggml_get_data(given), x.data_ptr(), 4 * x.numel())
        made = ggml.ggml_mul_mat(context, codes, given)
        graph = ggml.ggml_new_graph(context)
        ggml.ggml_build_forward_expand(graph, made)
        ggml.ggml_graph_compute_with_ctx(context, graph, torch.get_num_threads())
        out = torch.empty(len(x), len(flat))
        ctypes.memmove(out.data_ptr(), ggml.ggml_get_data(made), 4 * out.numel())
        ggml.ggml_free(context)
        return out.add_(bias)

    return run


def fp32(weight: Tensor, bias: Tensor) -> Product:
    flat = weight.flatten(1)
    return lambda x: linear(x, flat, bias)


CONTESTANTS: dict[str, Callable[[Tensor, Tensor], Product]] = {
    "fp32": fp32,
    "ours": ours,
    "torch_fbgemm": torch_dynamic("fbgemm"),
    "torch_onednn": torch_dynamic("onednn"),
    "torch_int_mm": torch_int_mm,
    "torchao": torchao,
    "onnx_runtime": onnx_runtime,
    "openvino": openvino,
    "ggml_q8_0": ggml_q8_0,
}


def keeps_bytes(make: Callable[[Tensor, Tensor], Product], given: tuple[Tensor, ...]) -> bool:
    weight, bias, x = given
    n_threads, made, x = torch.get_num_threads(), [], x.clone()
    x[-1] *= 2  # a frame of the other half is the loudest
    for n in (1, 2):
        torch.set_num_threads(n)
        product = make(weight, bias)
        made.append(product(x))
    torch.set_num_threads(n_threads)
    half = len(x) // 2
    return torch.equal(*made) and torch.equal(product(x[:half]), made[0][:half])


def measure(shape: tuple[int, int, int, int], n_rounds: int) -> dict[str, Any]:
    n_in, n_out, n_taps, n_frames = shape
    drawn = torch.Generator().manual_seed(0)
    weight = torch.randn(n_out, n_in, n_taps, generator=drawn) / (n_in * n_taps) ** 0.5
    bias = torch.randn(n_out, generator=drawn)
    frames = torch.randn(n_frames + n_taps - 1, n_in, generator=drawn)
    x = frames.unfold(0, n_taps, 1).flatten(1).contiguous()  # (T, D * taps)
    exact, products = linear(x, weight.flatten(1), bias), dict[str, Product]()
    facts = dict[str, Any]()
    for name, make in CONTESTANTS.items():
        try:
            products[name] = make(weight, bias)
            products[name](x)
        except (ImportError, RuntimeError) as error:
            facts[name] = f"not here: {str(error).splitlines()[0]}"
            products.pop(name, None)
    best = dict.fromkeys(products, float("inf"))
    for _ in range(n_rounds):
        for name, product in products.items():
            begun = time.process_time()
            product(x)
            best[name] = min(best[name], time.process_time() - begun)
    for name, product in products.items():
        off = float((product(x) - exact)[n_taps - 1 :].square().mean().sqrt())
        facts[name] = {
            "ms": round(1e3 * best[name], 3),
            "products_per_ns": round(1e-9 * x.numel() * n_out / best[name], 1),
            "times_ours": round(best[name] / best["ours"], 2),
            "error": round(off / float(exact.square().mean().sqrt()), 5),
            "bytes_kept": keeps_bytes(CONTESTANTS[name], (weight, bias, x)),
        }
    return {"inputs": n_in, "outputs": n_out, "taps": n_taps, "frames": n_frames, **facts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(given.threads)
    for shape in SHAPES:
        with torch.inference_mode():
            facts = measure(shape, given.rounds)
        print(
            json.dumps({"proof": "int8_libraries", "threads": given.threads, **facts}), flush=True
        )


if __name__ == "__main__":
    main()
