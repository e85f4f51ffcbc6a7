# shellcheck shell=sh
# Of all fio processes here together; its JSON has them once for each direction of each job.
print_iops() {
    if grep -hvx 0 exit_status.* > /dev/null; then
        tail -n 3 output.[0-9] output.[0-9][0-9] >&2 2> /dev/null; exit 1
    fi
    cat json_output.* |
        awk '$1 == "\"iops\"" { gsub(",", "", $3); s += $3 } END { printf "%.3f\n", s }'
}
