"""Upstream raises plain exceptions, or ends the program: here both become a campaign's errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cbt_crypto.errors import CampaignError, RunError

_LONGEST = 600


@contextlib.contextmanager
def failures_named(what: str) -> Iterator[None]:
    """Raise RunError, naming the step, for whatever upstream raises in the block."""
    try:
        yield
    except CampaignError:
        raise
    except (Exception, SystemExit) as error:
        raise RunError(f"upstream CBT: {what}: {_sentence(error)}") from error


def _sentence(error: BaseException) -> str:
    """The last lines of what it says: a failed command's output comes at the end."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines)[-_LONGEST:] or type(error).__name__
