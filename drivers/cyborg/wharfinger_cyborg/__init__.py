"""The Cyborg driver: it overlays or publishes the accelerators that a Cyborg manages."""
