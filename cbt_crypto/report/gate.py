"""`gate`: does a change lose more than so much? Yes, no, or it cannot be told, for each load.

The answer is the 95 % interval's, not the mean's: no when all of it lies within what may be lost,
yes when all of it lies beyond, and otherwise more runs are needed to tell. A test of one run each
against a fixed percent answers such a question with its noise.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Optional

from lxml import etree
from lxml.builder import E

from cbt_crypto.report.figures.metric import Metric
from cbt_crypto.report.model import Comparison, Report, ReportCell


class Answer(str, enum.Enum):
    """Whether more is lost than may be."""

    NO = "no"
    YES = "yes"
    CANNOT_TELL = "cannot tell"


#: Of the command; 2 says that something was wrong with what it was given.
EXIT_STATUS = {Answer.NO: 0, Answer.YES: 1, Answer.CANNOT_TELL: 3}


@dataclass(frozen=True)
class LoadAnswer:
    """The answer for one load of one configuration.

    `loss_percent` is what is lost of the baseline's figure, negative for a gain, and `low` and
    `high` are the ends of its 95 % interval; None where there are none. `reason` is for people.
    """

    load: str
    name: str
    answer: Answer
    reason: str
    loss_percent: Optional[float] = None
    low: Optional[float] = None
    high: Optional[float] = None
    basis: Optional[str] = None

    @property
    def line(self) -> str:
        """One line for people."""
        return f"{self.answer.value}: {self.name}, {self.load}: {self.reason}"


def findings(report: Report, metric: Metric, loss: float) -> list[LoadAnswer]:
    """One for each load and each row that is not the baseline.

    `loss` is what may be lost, in percent. Loads at a given rate are left out where the figure is
    that rate.
    """
    answers = []
    for table in report.tables:
        if table.dimensions.get("rate", "max") != "max" and metric.key == "iops":
            continue
        for section in table.sections:
            load = f"{table.title}, {section.label}"
            rows = (cell for cell in section.cells if not cell.is_baseline)
            answers += [answer_of_cell(load, cell, metric, loss) for cell in rows]
    return answers


def overall(findings: Sequence[LoadAnswer]) -> Answer:
    """Yes where any load loses too much; else cannot tell where any cannot be told, or none is."""
    answers = {finding.answer for finding in findings}
    if Answer.YES in answers:
        return Answer.YES
    return Answer.NO if answers == {Answer.NO} else Answer.CANNOT_TELL


def answer_of_cell(load: str, cell: ReportCell, metric: Metric, loss: float) -> LoadAnswer:
    """Whether a row loses at most `loss` percent of its baseline, by the whole of its interval."""
    name = cell.in_legend
    comparison = cell.comparisons.get(metric.key)
    if cell.state != "measured" or comparison is None:
        why = cell.reason or f"there is no {metric.label} of it, or of its baseline"
        return LoadAnswer(load, name, Answer.CANNOT_TELL, f"{cell.state}: {why}")
    lost = _lost(comparison.percent, metric)
    ends = _ends(comparison, metric)
    if ends is None:
        reason = f"loses {lost:.1f} %, and without repetition there is no interval"
        return LoadAnswer(load, name, Answer.CANNOT_TELL, reason, lost)
    low, high = ends
    answer = Answer.CANNOT_TELL
    if high <= loss:
        answer = Answer.NO
    elif low > loss:
        answer = Answer.YES
    reason = f"loses {lost:.1f} % of {metric.label} ({low:.1f} to {high:.1f})"
    if answer is Answer.CANNOT_TELL:
        reason += f", and {loss:g} % lies within; measure more"
    return LoadAnswer(load, name, answer, reason, lost, low, high, comparison.basis)


def _ends(comparison: Comparison, metric: Metric) -> Optional[tuple[float, float]]:
    if comparison.low is None or comparison.high is None or comparison.is_of_one_deployment:
        # the range within single runs says nothing of another deployment
        return None
    low, high = sorted(_lost(end, metric) for end in (comparison.low, comparison.high))
    return low, high


def _lost(percent: float, metric: Metric) -> float:
    """Of what less is better, more than the baseline's is the loss."""
    return (100 - percent) * metric.better + 0.0


def as_json(findings: Sequence[LoadAnswer], metric: Metric, loss: float) -> str:
    """All of it as one document."""
    document = {
        "question": f"is more than {loss:g} % of {metric.label} lost?",
        "metric": metric.key,
        "loss_percent": loss,
        "answer": overall(findings).value,
        "findings": [{**asdict(finding), "answer": finding.answer.value} for finding in findings],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_junit(findings: Sequence[LoadAnswer], title: str) -> str:
    """A test case for each load, as CI servers show them: yes fails, cannot tell is skipped."""
    counts = {
        "tests": str(len(findings)),
        "failures": str(sum(finding.answer is Answer.YES for finding in findings)),
        "skipped": str(sum(finding.answer is Answer.CANNOT_TELL for finding in findings)),
        "errors": "0",
    }
    suite = E.testsuite(*_cases(findings), name=_text(title), **counts)
    tree = E.testsuites(suite, name="cbt-crypto gate", **counts)
    text: bytes = etree.tostring(tree, pretty_print=True, xml_declaration=True, encoding="UTF-8")
    return text.decode()


def _cases(findings: Sequence[LoadAnswer]) -> Iterator[etree._Element]:
    for finding in findings:
        case = E.testcase(name=_text(finding.load), classname=_text(finding.name), time="0")
        if finding.answer is Answer.YES:
            case.append(E.failure(_text(finding.reason), message=_text(finding.reason)))
        elif finding.answer is Answer.CANNOT_TELL:
            case.append(E.skipped(message=_text(finding.reason)))
        yield case


def _text(text: str) -> str:
    """What XML can hold: an archive is somebody else's words."""
    return "".join(char if char.isprintable() else " " for char in text)
