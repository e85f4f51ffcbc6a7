"""Write man pages of all commands into a directory: `python packaging/man_pages.py man`."""

import sys
from pathlib import Path

import click
from click_man.core import write_man_pages

from cbt_crypto import __version__
from cbt_crypto.cli import cbt_crypto
from cbt_crypto.main import cbt

target = Path(sys.argv[1])
target.mkdir(exist_ok=True)
# What is imported when it is called is in no list that click-man reads.
context = click.Context(cbt_crypto)
for name in cbt_crypto.list_commands(context):
    command = cbt_crypto.get_command(context, name)
    assert command is not None and command.help is not None
    command.short_help = command.help.splitlines()[0]
    cbt_crypto.add_command(command, name)
write_man_pages("cbt-crypto", cbt_crypto, version=__version__, target_dir=str(target))
write_man_pages("cbt.py", cbt, version=__version__, target_dir=str(target))
