#!/bin/sh
# Go on with the run in a folder, or begin it there: what a supervisor starts, however often.
#
#   run-or-resume.sh run|server RUN SCENARIO [OPTION…]
set -eu
command=$1 run=$2 scenario=$3
shift 3
if [ -e "$run/journal.sqlite" ]; then
    for option; do # a run goes on as it is: what --set has changed is kept in its folder
        shift
        if [ "${previous-}" != --set ] && [ "$option" != --set ]; then
            set -- "$@" "$option"
        fi
        previous=$option
    done
    exec seedbus "$command" --resume "$run" "$@"
fi
exec seedbus "$command" "$scenario" --out "$run" "$@"
