"""The Ironic driver: it publishes the bare metal nodes of an Ironic, or some of them."""
