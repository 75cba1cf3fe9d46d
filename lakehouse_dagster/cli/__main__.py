"""``python -m lakehouse_dagster.cli``: the ``lakehouse`` command where it is not on the PATH."""

from lakehouse_dagster.cli import main

main()
