"""What a campaign was predicted to take, and what it took."""

from __future__ import annotations

from collections.abc import Iterator

from cbt_crypto.archive.documents import PredictionDocument, TimelineDocument
from cbt_crypto.archive.files import Malformed
from cbt_crypto.archive.folder import Folder
from cbt_crypto.units import time_text

#: A pause longer than any of a campaign's own: it stood still and was gone on with.
_STOOD_STILL_S = 300.0


def how_it_came_out(folder: Folder) -> Iterator[str]:
    """A sentence, where the archive has a prediction; or what is wrong with that."""
    try:
        predicted = folder.document("results/prediction.json", PredictionDocument)
        timeline = folder.document("results/timeline.json", TimelineDocument)
    except Malformed as error:
        yield str(error)
        return
    if predicted is None or timeline is None or not timeline.steps:
        return
    usual, low, high = map(time_text, (predicted.seconds, predicted.low, predicted.high))
    took = seconds_of(timeline)
    inside = "" if predicted.low <= took <= predicted.high else ", which is outside of that"
    yield (
        f"judging by {predicted.like} it was to take {usual}, {low} to {high} with a chance of "
        f"80 %; so far it took {time_text(took)}{inside}"
    )


def seconds_of(timeline: TimelineDocument) -> float:
    """From the first step to the last one, without the time in which the campaign stood still."""
    total, end = 0.0, None
    for step in sorted(timeline.steps, key=lambda step: step.started):
        gap = 0.0 if end is None else step.started - end
        total += step.seconds + (gap if 0 < gap < _STOOD_STILL_S else 0.0)
        end = max(end or 0.0, step.started + step.seconds)
    return total
