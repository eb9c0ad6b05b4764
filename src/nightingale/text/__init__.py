"""str -> text tokens, as upstream reads text. Knows nothing of torch."""
