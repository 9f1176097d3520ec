"""The Cyborg driver: it publishes the accelerators that a Cyborg manages."""
