"""The commands of the ``wharfinger`` program: one module for each noun."""
