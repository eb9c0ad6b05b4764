"""The backend `vllm`: T3 of the Llama families in vLLM's own engine, in this process.

vLLM brings what a GPU with many listeners needs: continuous batching, pages of keys and values,
prefixes that are shared, preemption. T3's quirks are a model class (`model`), our sampler is a
logits processor (`sampler`); `batch` is what these two and the engine share. Windows of speech
tokens are decoded by the torch backend, in the same process.
"""
