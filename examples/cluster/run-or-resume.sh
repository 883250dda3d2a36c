#!/bin/sh
# Go on with the run in a folder, or begin it there: what a supervisor starts, however often.
#
#   run-or-resume.sh run|server RUN SCENARIO [OPTION…]
set -eu
command=$1 run=$2 scenario=$3
shift 3
if [ -e "$run/journal.sqlite" ]; then
    previous=
    for option; do # a run goes on as it is: what --set has changed is kept in its folder
        shift
        case "$previous $option" in
        "--set "* | *" --set" | *" --set="*) ;;
        *) set -- "$@" "$option" ;;
        esac
        previous=$option
    done
    exec seedbus "$command" --resume "$run" "$@"
fi
exec seedbus "$command" "$scenario" --out "$run" "$@"
