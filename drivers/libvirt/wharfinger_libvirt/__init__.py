"""The libvirt driver: it publishes one host with its mediated devices (mdevs), such as vGPUs."""
