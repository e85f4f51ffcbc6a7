"""Who may write to a directory or file that we trust. This file runs on the hosts, and the head
imports it. Needs nothing but Python 3.6."""

import os
import stat
from typing import Collection, Optional

_GROUP_AND_OTHERS, _OTHERS = 0o022, 0o002


def distrust(
    status: os.stat_result,
    owners: Collection[int],
    is_way: bool = False,
    is_group_ours: bool = False,
) -> Optional[str]:
    """Why somebody else may write to what has this status, in a few words; None when nobody may.

    `owners` are trusted; a link is its owner's. `is_way`: it is a directory on the way to what we
    trust, so the sticky bit, as /tmp has it, is enough. `is_group_ours`: its group is trusted.
    """
    if status.st_uid not in owners:
        return f"belongs to uid {status.st_uid}"
    if stat.S_ISLNK(status.st_mode) or (is_way and status.st_mode & stat.S_ISVTX):
        return None
    open_to = status.st_mode & (_OTHERS if is_group_ours else _GROUP_AND_OTHERS)
    return "can be written to by others" if open_to else None
