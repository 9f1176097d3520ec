"""The Cyborg driver: the accelerators that a Cyborg manages.

- ``config``: the options of an instance.
- ``deployable``: an accelerator as Cyborg describes it; pure.
- ``client``: the requests to Cyborg, one method for each; the only input and output.
- ``accelerators``: all accelerators, and their changes.
- ``driver``: the contract with the framework.
"""
