"""`gate`: does a change lose more than `--loss`? Yes, no, or unknown, for each workload.

The report's intervals, test, level and family, with the margin where these have 100 %: whatever
fails is starred there. No, of all workloads, takes each one's: none needs a stricter test
(R. Berger, Technometrics 24, 1982). Yes takes one, which has to hold beside all others (Holm).
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Optional

from lxml import etree
from lxml.builder import E

from cbt_crypto.archive.files import one_line
from cbt_crypto.archive.folder import label_of, matches
from cbt_crypto.errors import UsageError
from cbt_crypto.report import wording
from cbt_crypto.report.figures.doubts import is_control
from cbt_crypto.report.figures.metric import Metric
from cbt_crypto.report.figures.repeats import UNTIL_KNOWN, differing, p_of
from cbt_crypto.report.headline import caveats, fault_of, forbids
from cbt_crypto.report.model import Comparison, ControlState, Report, ReportCell
from cbt_crypto.results.repetition import ALPHA, FEWEST_ROUNDS, VERDICT
from cbt_crypto.units import counted

#: More of them are "many".
_MOST_ROUNDS = 20


class Answer(str, enum.Enum):
    """Whether more is lost than may be."""

    NO = "no"
    YES = "yes"
    CANNOT_TELL = "cannot tell"


WORDS = {Answer.NO: "PASS", Answer.YES: "FAIL", Answer.CANNOT_TELL: "UNKNOWN"}
#: Of the command; 2 says that something was wrong with what it was given.
EXIT_STATUS = {Answer.NO: 0, Answer.YES: 1, Answer.CANNOT_TELL: 3}


@dataclass(frozen=True)
class LoadAnswer:
    """The answer for one workload of one configuration.

    `loss_percent` is of the baseline's figure, negative for a gain; `low` and `high` are its 95 %
    interval's ends, None without a verdict. `p` is two-sided, where exactly what may be lost is.
    """

    load: str
    name: str
    answer: Answer
    reason: str
    loss_percent: Optional[float] = None
    low: Optional[float] = None
    high: Optional[float] = None
    basis: Optional[str] = None
    p: Optional[float] = None
    #: What may be lost, in percent.
    allowed_percent: Optional[float] = None

    @property
    def line(self) -> str:
        """`FAIL     loses 7.1 % (5.9 to 8.3), allowed 5 %`, and of what."""
        return f"{WORDS[self.answer]:<7}  {self.reason}  {self.what}"

    @property
    def what(self) -> str:
        """Row and workload."""
        return f"{self.name}, {self.load}"


@dataclass(frozen=True)
class Question:
    """Is more than `loss` percent of a figure lost? Of rows in `own` what their name has there."""

    metric: Metric
    loss: float
    own: Mapping[str, float] = field(default_factory=dict)

    def of(self, cell: ReportCell) -> Question:
        """What is asked of one row."""
        return replace(self, loss=self.own.get(name_of(cell), self.loss))

    def __str__(self) -> str:
        """`5 %`, or `5 % (LUKS: 20 %)`."""
        own = ", ".join(f"{name}: {loss:g} %" for name, loss in self.own.items())
        return f"{self.loss:g} %{f' ({own})' if own else ''}"

    @property
    def limit(self) -> float:
        """The percent of the baseline's figure at which exactly that much is lost."""
        return 100 - self.loss * self.metric.better

    def lost(self, percent: float) -> float:
        """What is lost in a percent of the baseline's; of what less is better, more is the loss."""
        return (100 - percent) * self.metric.better + 0.0


def name_of(cell: ReportCell) -> str:
    """A row's name, without what else is said of it there."""
    return cell.in_legend.removesuffix(f", {cell.reason}")


def findings(report: Report, question: Question, only: Sequence[str] = ()) -> list[LoadAnswer]:
    """One for each workload and each row that is neither the baseline nor its control.

    UsageError where the question has a limit of its own for a row that is not there. Loads at a
    given rate are left out where the figure is that rate. `only` chooses answers by their line and
    by cells' labels; each is beside all of the report's comparisons.
    """
    metric = question.metric
    if metric.better > 0 and max(question.loss, *question.own.values(), 0) >= 100:
        raise UsageError(f"--loss: of {metric.label} less than 100 % can be lost; 5% is usual")
    rows = list(_rows(report, metric))
    names = dict.fromkeys(name_of(cell) for _, cell, _ in rows)
    for name in question.own.keys() - names.keys():
        raise UsageError(f"--loss {name}=...: nothing is called so; name one of {'; '.join(names)}")
    found = answers_of(rows, question, report.family.get(metric.key, 0))
    return [
        answer
        for (_, cell, _), answer in zip(rows, found)
        if not only
        or any(
            matches(label, pattern)
            for label in (answer.what, *(label_of(run.planned) for run in cell.runs))
            for pattern in only
        )
    ]


def answers_of(
    rows: Sequence[tuple[str, ReportCell, ControlState]], question: Question, family: int = 0
) -> list[LoadAnswer]:
    """One answer for each workload, row and control, none where that is not to be trusted.

    `family`: how many comparisons the report's verdicts hold over, where that is more than `rows`.
    """
    asked = [question.of(cell) for _, cell, _ in rows]
    compared = [cell.comparisons.get(question.metric.key) for _, cell, _ in rows]
    pairs = {n: (c, q) for n, (c, q) in enumerate(zip(compared, asked)) if c is not None}
    beyond = _beyond(pairs, family)
    beside = max(family, len(beyond))
    return [
        _answer_of_row(load, cell, asked[number], beyond.get(number, False), beside, control)
        for number, (load, cell, control) in enumerate(rows)
    ]


def _rows(report: Report, metric: Metric) -> Iterator[tuple[str, ReportCell, ControlState]]:
    """Workload, row, and what that figure's control says; it is missing where it failed there."""
    for table in report.tables:
        if table.dimensions.get("rate", "max") != "max" and metric.key == "iops":
            continue
        for section in table.sections:
            repeated = [cell for cell in section.cells if is_control(report, cell)]
            lacks = repeated and not any(metric.key in cell.comparisons for cell in repeated)
            control = ControlState("missing") if lacks else report.control(metric.key)
            for cell in section.cells:
                if not cell.is_baseline and not is_control(report, cell):
                    yield f"{table.title}, {section.label}", cell, control


def _beyond(comparisons: Mapping[int, tuple[Comparison, Question]], family: int) -> dict[int, bool]:
    """Whether more is shown to be lost, of every row at once, as the report has its stars."""
    found = {n: c.p_beyond(question.limit) for n, (c, question) in comparisons.items()}
    p_values = {n: p for n, p in found.items() if p is not None}
    shown = differing(p_values, max(0, family - len(p_values)))
    return {
        n: shown[n] and question.lost(c.percent) > question.loss
        for n, (c, question) in comparisons.items()
        if n in shown
    }


def overall(findings: Sequence[LoadAnswer]) -> Answer:
    """Yes if any workload loses too much; else cannot tell if any cannot be told, or none is."""
    answers = {finding.answer for finding in findings}
    if Answer.YES in answers:
        return Answer.YES
    return Answer.NO if answers == {Answer.NO} else Answer.CANNOT_TELL


def closing(report: Report, question: Question, found: Sequence[LoadAnswer]) -> Iterator[str]:
    """The answer for all in a sentence, and over how many comparisons a FAIL was corrected."""
    answer = overall(found)
    are = sum(one.answer is answer for one in found)
    metric = question.metric
    base, worse = report.baseline_name, f"worse by more than {question} in {metric.label}"
    asked = f"{counted(len(found), 'comparison')} with {base}"
    unknown = sum(one.answer is Answer.CANNOT_TELL for one in found)
    untold = f"; no answer for {unknown}" if unknown else ""
    others = f"; none of the others is {worse}" if are < len(found) else ""
    said = {
        Answer.NO: f"none of {asked} is {worse}",
        Answer.YES: f"{are} of {asked} {'is' if are == 1 else 'are'} {worse}{untold}",
        Answer.CANNOT_TELL: f"no answer for {are} of {asked}{others}",
    }[answer]
    yield f"{WORDS[answer]}: {said if found else f'nothing is compared with {base}'}."
    judged = report.family.get(metric.key, 0)
    if answer is Answer.YES and judged > 1:
        yield (
            f"At most 6 % of archives have a false FAIL. It takes all {judged} comparisons of "
            f"{metric.label} into account, a control's included, as in the report."
        )
    yield from caveats(report, metric)


def _answer_of_row(
    load: str, cell: ReportCell, question: Question, is_beyond: bool, beside: int,
    control: ControlState,
) -> LoadAnswer:  # fmt: skip
    """`is_beyond`: more than may be is shown to be lost, beside all other rows."""
    name, key = cell.in_legend, question.metric.key
    comparison = cell.comparisons.get(key)
    if cell.state != "measured" or comparison is None:
        nothing = f"{question.metric.label}: none was recorded of it, or its baseline has none or 0"
        why = cell.withheld.get(key) or cell.reason or nothing
        state = "no answer" if cell.state == "measured" else cell.state
        why = f"{question.metric.label}: {why}" if key in cell.withheld else why
        said = (load, name, Answer.CANNOT_TELL, f"{state}: {why}")
        return LoadAnswer(*said, allowed_percent=question.loss)
    p = comparison.p_beyond(question.limit)
    lost = question.lost(comparison.percent)
    low, high = (None, None) if p is None else _ends(comparison, question)
    loses, gains = ("loses", "gains") if question.metric.better > 0 else ("rises", "falls")
    shown = f"{gains} {-lost:.1f} %" if lost < 0 else f"{loses} {lost:.1f} %"
    if low is not None and high is not None:
        least, most = (-high, -low) if lost < 0 else (low, high)
        shown += f" ({wording.tenths(least)} to {wording.tenths(most)})"
    allowed = f"{shown}, allowed {question.loss:g} %"
    if p is None:
        answer, reason = Answer.CANNOT_TELL, _repeated_too_little(comparison, shown)
    elif is_beyond:
        answer, reason = Answer.YES, allowed
    elif p <= ALPHA and lost <= question.loss:
        answer, reason = Answer.NO, allowed if name in question.own else shown
    else:
        missing = _missing(comparison, question, beside)
        if low is not None and low > question.loss:
            missing = f"beyond it by itself; beside all {beside} comparisons it {missing}"
        elif control.state == "too noisy" and lost <= question.loss:
            missing += ", and a quieter control"
        answer, reason = Answer.CANNOT_TELL, f"{allowed}: {missing}"
    # Beyond what the control may vary by, a loss is one in the report, too.
    is_void = answer is Answer.NO or forbids(control, comparison, key)
    if is_void and (fault := fault_of(control, key)):
        answer, reason = Answer.CANNOT_TELL, f"{allowed}; but the control: {fault}"
    ends = (low, high)
    return LoadAnswer(load, name, answer, reason, lost, *ends, comparison.basis, p, question.loss)


def _repeated_too_little(comparison: Comparison, shown: str) -> str:
    rounds = _repeated(comparison)
    if 0 < rounds < FEWEST_ROUNDS:
        return f"needs {counted(FEWEST_ROUNDS - rounds, 'more round')}"
    basis = comparison.basis or "one run of each, which says nothing about another run"
    basis = basis.removesuffix("; no verdict")
    takes = f"an answer needs iterations: {FEWEST_ROUNDS} or more, or six pairs of turns"
    return f"{shown}, {basis}; {takes}"


def _repeated(comparison: Comparison) -> int:
    """The rounds, or pairs of turns, that an answer rests on; 0 where it could rest on none."""
    own = (error for error in comparison.errors if error.is_own or error.is_sequence)
    return max((round(error.degrees) + 1 for error in own), default=0)


def _missing(comparison: Comparison, question: Question, beside: int) -> str:
    """What an answer takes, if the percentage stays where it is."""
    if UNTIL_KNOWN in (comparison.basis or ""):
        return "the precision is reached, and too coarse to tell; set a smaller one"
    repeated, distance = _repeated(comparison), abs(math.log(comparison.percent / question.limit))
    is_no = question.lost(comparison.percent) <= question.loss
    wanted = ALPHA if is_no else VERDICT / beside
    what, of = ("more pair", " of turns") if comparison.level == "turns" else ("more round", "")
    for more in range(1, _MOST_ROUNDS + 1 if repeated else 0):
        shrunk = math.sqrt(repeated / (repeated + more))
        errors = [
            replace(known, error=known.error * shrunk, degrees=known.degrees + more)
            for known in comparison.errors
        ]
        if p_of(errors, distance) <= wanted:
            return f"needs about {counted(more, what)}{of}"
    return f"needs more than {counted(_MOST_ROUNDS, what)}{of}"


def _ends(comparison: Comparison, question: Question) -> tuple[float, float]:
    """The least and the most that is lost, by the report's interval."""
    ends = (comparison.low, comparison.high)
    low, high = sorted(question.lost(comparison.percent if e is None else e) for e in ends)
    return low, high


def as_json(report: Report, question: Question, findings: Sequence[LoadAnswer]) -> str:
    """All of it as one document."""
    control = report.control(question.metric.key)
    document = {
        "format": 1,
        "question": f"is {question.metric.label} worse by more than {question}?",
        "metric": question.metric.key,
        "loss_percent": question.loss,
        "answer": overall(findings).value,
        "caveats": caveats(report, question.metric),
        "control": asdict(control) if control.state else None,
        "findings": [{**asdict(finding), "answer": finding.answer.value} for finding in findings],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_junit(findings: Sequence[LoadAnswer], title: str, caveats: Sequence[str] = ()) -> str:
    """A test case for each workload, as CI servers show them: yes fails, cannot tell is skipped."""
    counts = {
        "tests": str(len(findings)),
        "failures": str(sum(finding.answer is Answer.YES for finding in findings)),
        "skipped": str(sum(finding.answer is Answer.CANNOT_TELL for finding in findings)),
        "errors": "0",
    }
    said = [E.property(name="caveat", value=one_line(sentence)) for sentence in caveats]
    suite = E.testsuite(E.properties(*said), *_cases(findings), name=one_line(title), **counts)
    tree = E.testsuites(suite, name="cbt-crypto gate", **counts)
    text: bytes = etree.tostring(tree, pretty_print=True, xml_declaration=True, encoding="UTF-8")
    return text.decode()


def _cases(findings: Sequence[LoadAnswer]) -> Iterator[etree._Element]:
    for finding in findings:
        case = E.testcase(name=one_line(finding.load), classname=one_line(finding.name), time="0")
        if finding.answer is Answer.YES:
            case.append(E.failure(one_line(finding.reason), message=one_line(finding.reason)))
        elif finding.answer is Answer.CANNOT_TELL:
            case.append(E.skipped(message=one_line(finding.reason)))
        yield case
