"""From a recording to a voice: three encoders, and the order in which they read it."""
