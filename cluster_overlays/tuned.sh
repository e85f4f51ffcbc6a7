# shellcheck shell=sh disable=SC2046

# $1 are profiles. `tuned-adm active` tells whether the daemon runs only in its words.
check_profiles() {
    if ! command -v tuned-adm > /dev/null; then
        echo "tuned-adm is missing; install tuned"
    elif $SUDO tuned-adm active 2>&1 | grep -qE 'Cannot talk to|not running'; then
        echo "TuneD is not running; start it, e.g. with: systemctl start tuned"
    else
        for profile in $1; do
            $SUDO tuned-adm profile_info "$profile" > /dev/null 2>&1 ||
                { echo "TuneD has no profile $profile; 'tuned-adm list' shows those it has"; exit 0; }
        done
        echo ok
    fi
}

active_now() { $SUDO tuned-adm active | sed -n 's/^Current active profile: //p'; }

# The arguments of tuned-adm that lead back to what is active now.
way_back() {
    before=$(active_now)
    if [ -z "$before" ]; then before=off
    elif grep -qx auto /etc/tuned/profile_mode 2> /dev/null; then before=auto_profile
    else before="profile $before"; fi
    echo "$before"
}

# $1 is the profile, $2 the file whose first line is the way back; profiles of ours follow.
activate() {
    if [ ! -s "$2" ]; then
        way_back > "$2.new"
        # A power cut would leave the name of a file without a word in it.
        sync "$2.new"
        mv "$2.new" "$2"
    fi
    echo "$1" >> "$2"
    $SUDO tuned-adm profile $1
}

# $1 is that file.
show_way_back() { if [ -s "$1" ]; then head -n 1 "$1"; else way_back; fi; }

# $1 is the profile, $2 that file, $3 what was in it, or nothing. A profile that is not in force
# any more is somebody else's choice since.
keep_way_back() {
    if [ ! -s "$2" ] && command -v tuned-adm > /dev/null && [ "$(active_now)" = "$1" ]; then
        if [ -n "$3" ]; then echo "$3" > "$2"; else
            echo "the TuneD profile $1 is in force, and nobody knows which was before;" \
                "if it is not yours: tuned-adm list, tuned-adm profile NAME"
        fi
    fi
}

# $1 is that file. A profile that is none of ours is somebody else's choice since, and stays; where
# none is told, the daemon may be down, and would come back with ours.
restore() {
    [ -s "$1" ] || { rm -f "$1"; return 0; }
    now=$(active_now) ours=$(sed 1d "$1")
    if [ -z "$now" ] || [ -z "$ours" ] || echo "$ours" | grep -qxF -e "$now"; then
        $SUDO tuned-adm $(head -n 1 "$1")
    fi
    rm -f "$1"
}

# tuned-adm says only that something differs; what does is in the daemon's log.
probe() {
    $SUDO tuned-adm active || :
    if ! $SUDO tuned-adm verify --ignore-missing; then
        $SUDO awk '/verifying profile/ { n = 0 } /verify: failed: / { failed[n++] = $0 }
            END { for (i = 0; i < n; i++) print failed[i] }' /var/log/tuned/tuned.log
    fi
}
