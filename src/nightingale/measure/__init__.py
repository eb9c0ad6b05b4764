"""How good it is: words heard, voice recognized, sound rated. Nothing here is needed to speak."""
