"""The Cyborg driver: the accelerators that a Cyborg manages.

- ``config``: what an operator says.
- ``deployable``: an accelerator as Cyborg describes it; pure.
- ``client``: what is asked of Cyborg, one method for each request; the only input and output.
- ``accelerators``: all that Cyborg has, and what has changed of it.
- ``driver``: the contract with the framework.
"""
