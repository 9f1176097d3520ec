"""The Cyborg driver: it publishes the accelerators that a Cyborg manages.

- ``config``: the options of a driver instance.
- ``deployable``: an accelerator as Cyborg describes it; pure.
- ``client``: the requests to Cyborg, one method for each.
- ``accelerators``: all accelerators, and which of them have changed.
- ``driver``: the class that the framework calls.
"""
