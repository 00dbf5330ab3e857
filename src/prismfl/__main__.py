"""`python -m prismfl` is the `prismfl` command."""

from prismfl.cli import main

main()
