"""Upstream's `monitoring`, which ends also when what is monitored does not end well."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from cbt_crypto.engine.upstream.common import Common
from cbt_crypto.engine.upstream.settings import Settings
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.remote import preamble
from cbt_crypto.hosts.samplers import counters

#: Seconds that collectl may take to write its first sample; upstream does not wait for it.
_PATIENCE_S = 30


class Monitoring:
    """Upstream's module; a name that is not here is upstream's own."""

    def __init__(self, module: Any, common: Common, settings: Settings) -> None:
        self._module = module
        self._common = common
        self._settings = settings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def prepare(self, directory: str) -> None:
        """Nothing: upstream starts its monitors when it measures."""

    @contextlib.contextmanager
    def monitor(self, directory: str) -> Iterator[None]:
        """The profiles run while the block does, which begins when there is a first sample."""
        upstream = self._module.monitor(directory)
        upstream.__enter__()
        try:
            with self._samples(directory):
                yield
        except BaseException:
            # The later of upstream's two kinds stops by itself here, the earlier does not.
            with contextlib.suppress(BaseException):
                upstream.__exit__(*sys.exc_info())
            self._module.stop(directory)
            raise
        upstream.__exit__(None, None, None)

    @contextlib.contextmanager
    def _samples(self, directory: str) -> Iterator[None]:
        """Wait for collectl, or run our sampler.

        One without a sample by then is not waited for: the report says what it lacks.
        """
        if not self._settings.sampler_roles:
            roles = self._settings.monitoring_profiles["collectl"]["nodes"]
            self._on(roles, shell.first_sample(f"{directory}/collectl", _PATIENCE_S))
            yield
            return
        started = counters.start_script(directory)
        first = shell.first_sample(f"{directory}/{counters.NAME}", _PATIENCE_S)
        self._on(self._settings.sampler_roles, f"{started}\n{first}")
        try:
            yield
        finally:
            self._on(self._settings.sampler_roles, counters.stop_script(directory))

    def _on(self, roles: Sequence[str], text: str) -> None:
        nodes = filter(None, self._settings.getnodes(*roles).split(","))
        marked = f"{preamble(str(self._settings.cluster['tmp_dir']))}\nset -eu\n{text}"
        self._common.pdsh_each(dict.fromkeys(nodes, marked)).communicate(_PATIENCE_S + 15)
