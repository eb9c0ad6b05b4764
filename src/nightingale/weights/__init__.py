"""Model files: what there is, how it gets here, whether it is whole, and what is in it.

    catalog   what was released, and where it lies
    fetch     brings it here (the only adapter of huggingface_hub)
    manifest  remembers what came, finds it again, and notices when it was changed
    convert   turns pickles into safetensors, once
    load      puts tensors into modules, strictly

Knows nothing of any stage: who loads hands in the module.
"""
