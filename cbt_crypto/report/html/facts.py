"""What stands behind the figures in report.html: proofs of configurations, and the environment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from cbt_crypto.archive.documents import OverlayProof
from cbt_crypto.report.figures.host_words import (
    CIPHER_HEADINGS,
    CipherSpeed,
    cipher_speeds,
    energy_counters,
    not_measured,
)
from cbt_crypto.report.html.elements import E
from cbt_crypto.report.html.tables import Element, anchor, caption, scrolling
from cbt_crypto.report.model import Report
from cbt_crypto.results.cell.run import Run

#: What of a host is shown in the table; the rest is a click away.
_HOST_COLUMNS = ("roles", "cpu_model", "cores", "threads", "smt", "governor", "kernel", "os")


def configurations(report: Report) -> Iterator[Element]:
    """Each configuration: its overlays, its proof in every cell, its ceph.conf."""
    runs: dict[str, dict[int, Run]] = {}
    for cell in report.cells:
        for run in cell.runs:
            runs.setdefault(run.planned.configuration, {})[id(run)] = run
    for name, overlays in report.configurations.items():
        of_configuration = list(runs.get(name, {}).values())
        proofs = [run for run in of_configuration if run.proof is not None]
        proved = sum(run.proof is not None and run.proof.proved for run in proofs)
        state = (
            f"proved in {proved} of {len(of_configuration)} runs"
            if proofs
            else "nothing was proved"
        )
        attributes = {"id": fragment} if (fragment := anchor(report, name)) else {}
        yield E.DETAILS(
            E.SUMMARY(name, " ", E.SPAN(E.CLASS("small"), state)),
            E.DIV(*_overlays(overlays), *_proofs(proofs), *_conf(report, name)),
            **attributes,
        )


def _overlays(overlays: Any) -> Iterator[Element]:
    yield E.H4("Overlays")
    yield _json(overlays) if overlays else E.P("None: the cluster as the campaign deploys it.")


def _proofs(runs: list[Run]) -> Iterator[Element]:
    """The verdict of every overlay in every cell, and the evidence of the first."""
    if not runs:
        return
    yield E.H4("Proof")
    rows = [
        E.TR(
            E.TH(run.planned.path, E.CLASS("name"), scope="row"),
            E.TD(overlay.overlay, E.CLASS("name")),
            E.TD(E.SPAN(E.CLASS(_class(overlay.proved)), _word(overlay)), E.CLASS("name")),
            E.TD(overlay.reason, E.CLASS("name")),
        )
        for run in runs
        if run.proof is not None
        for overlay in run.proof.overlays
    ]
    heads = ("Cell", "Overlay", "", "Why")
    yield scrolling(E.TABLE(_head(heads), E.TBODY(*rows)), "Proof")
    first = runs[0].proof
    if first is not None and first.overlays:
        yield E.H4(f"Evidence of {runs[0].planned.path}")
        yield _json({overlay.overlay: overlay.evidence for overlay in first.overlays})


def _class(proved: bool) -> str:
    return "proved" if proved else "failed"


def _word(overlay: OverlayProof) -> str:
    state = "in force" if overlay.present else "absent"
    return f"proved {state}" if overlay.proved else f"not proved {state}"


def _conf(report: Report, name: str) -> Iterator[Element]:
    texts = report.environment.get("ceph_conf")
    text = texts.get(name) if isinstance(texts, Mapping) else None
    if isinstance(text, str) and text.strip():
        yield E.H4("ceph.conf")
        yield E.PRE(text, tabindex="0")


def environment(report: Report) -> Iterator[Element]:
    """The hosts in a table, and all that was recorded of them a click away."""
    hosts = report.environment.get("hosts", {})
    if not hosts:
        yield E.P(E.CLASS("note"), "Nothing is known of the hosts.")
        return
    columns = [c for c in _HOST_COLUMNS if any(about.get(c) for about in hosts.values())]
    heads = ["Host", *(column.replace("_", " ") for column in columns), "Ceph", "fio"]
    counters = energy_counters(report.environment)
    heads += ["energy counters"] if counters else []
    rows = [
        _host(name, about, columns, [counters.get(name)] if counters else [])
        for name, about in hosts.items()
    ]
    yield scrolling(E.TABLE(_head(heads), E.TBODY(*rows)), "Hosts")
    yield from _ciphers(report)
    rest = {key: value for key, value in report.environment.items() if key != "ceph_conf"}
    yield E.DETAILS(E.SUMMARY("Everything that was recorded"), E.DIV(_json(rest)))


def _head(texts: Sequence[str]) -> Element:
    return E.THEAD(E.TR(*(E.TH(text, E.CLASS("name"), scope="col") for text in texts)))


def _ciphers(report: Report) -> Iterator[Element]:
    """What `cryptsetup benchmark` measured; nothing where no configuration encrypts drives."""
    by_host = cipher_speeds(report.environment)
    rows = [_cipher(row) for speeds in by_host.values() for row in speeds]
    if rows:
        yield E.H3("Speed of ciphers")
        table = E.TABLE(*caption(report), _head(CIPHER_HEADINGS), E.TBODY(*rows))
        yield scrolling(table, "Speed of ciphers")
        yield E.P(E.CLASS("note"), "By cryptsetup benchmark: in memory, on one core, without IO.")
    for host, speeds in by_host.items():
        if not speeds:
            yield E.P(E.CLASS("note"), not_measured(host))


def _cipher(row: CipherSpeed) -> Element:
    return E.TR(
        E.TH(row.host, E.CLASS("name"), scope="row"),
        E.TD(row.cipher, E.CLASS("name")),
        E.TD(str(row.key_bits)),
        *(E.TD(text) for text in row.speeds),
        E.TD(row.driver, E.CLASS("name")),
    )


def _host(
    name: str, about: Mapping[str, Any], columns: list[str], more: list[Optional[str]]
) -> Element:
    versions = about.get("versions")
    known = versions if isinstance(versions, Mapping) else {}
    texts = [_text(about.get(c)) for c in columns] + [_text(known.get(p)) for p in ("ceph", "fio")]
    texts += map(_text, more)
    emulated = [" ", E.SPAN(E.CLASS("failed"), "emulated")] if about.get("emulated") else []
    head = E.TH(name, *emulated, E.CLASS("name"), scope="row")
    return E.TR(head, *(E.TD(text, E.CLASS("name")) for text in texts))


def _text(value: Optional[Any]) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _json(value: Any) -> Element:
    return E.PRE(json.dumps(value, indent=1, ensure_ascii=False, default=str), tabindex="0")
