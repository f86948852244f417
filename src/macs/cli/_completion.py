"""`macs --install-completion`, which cyclopts writes; a file of its own, so that no other command imports it."""

from cyclopts.completion.install import create_install_completion_command

from macs.cli._app import app

install = create_install_completion_command(app.install_completion, True)
