#!/bin/sh
# Runs pytest with the arguments. What failed beside other tests is run once more, each alone, and its
# first failure stays in the output: one that passes alone shares something with a neighbour.
pytest -q --durations=10 --cache-clear "$@"
status=$?
[ "$status" = 1 ] || exit "$status" # only failed tests; not a run that broke off
echo "Once more, alone:"
exec pytest -v --last-failed --last-failed-no-failures=none --maxfail=1 "$@" -n 0
