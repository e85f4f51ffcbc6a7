"""`python -m cbt_crypto` is `cbt-crypto`."""

from cbt_crypto.cli import cbt_crypto

cbt_crypto(prog_name="cbt-crypto")
