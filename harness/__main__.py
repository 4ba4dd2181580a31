"""`python -m harness` is `touchstone`: for places where the console script is not installed."""

from harness.cli import main

main()
