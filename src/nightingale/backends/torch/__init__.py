"""The backend `torch`: every model family, on every device that torch knows.

t3 -> flow -> vocoder: text tokens, speech tokens, mel frames, samples. Each folder's `model.py`
holds one class named after the stage.
"""
