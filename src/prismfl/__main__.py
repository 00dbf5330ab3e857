"""`python -m prismfl` is the `prismfl` command."""

from prismfl.cli.main import main

main()
