"""Imported before the tests are, which import oslo.versionedobjects: ours has to be first."""

import wharfinger.objects  # noqa: F401
