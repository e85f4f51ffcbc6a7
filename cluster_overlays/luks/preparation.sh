# shellcheck shell=sh disable=SC2046,SC2154
# $1 is the mapping's name, $2 the device below it. $keys, FORMAT, FLAGS, FLASH, OPAL, WANTED,
# FLASH_WANTED and KNOWN are the caller's, and `format_luks` and `patiently` are destroy.sh's.

# What only flash gets, $2; device-mapper hands on what the devices below, $1, say of themselves.
more() {
    [ -z "$2" ] || [ "$(lsblk -dnro ROTA "$1" | tr -d ' ')" != 0 ] || echo "$2"
}

# Text without a newline, as one ends it where it is read; drives need not take more than 32 bytes.
# One that is there already may be the drive's. $1 is its file.
admin_key() {
    [ -s "$1" ] || head -c 16 /dev/urandom | od -An -v -tx1 | tr -d ' \n' > "$1"
}

make() {
    head -c 64 /dev/urandom > "$keys/$1"
    admin=/dev/null
    [ -z "$OPAL" ] || { admin=$keys/$1.opal; admin_key "$admin"; }
    format_luks "$1" "$2" "$admin"
    patiently cryptsetup open --type luks $FLAGS $(more "$2" "$FLASH") \
        --key-file "$keys/$1" "$2" "$1"
}

in_force() {
    dmsetup table "$1" | tr ' ' '\n' | grep -xE "$KNOWN" | sort | tr '\n' ' '
}

# The flags in force are compared first: a refresh suspends the device for a moment.
refresh() {
    wanted=$(printf '%s\n' $WANTED $(more "$2" "$FLASH_WANTED") | grep . | sort | tr '\n' ' ')
    [ "$(in_force "$1")" = "$wanted" ] ||
        cryptsetup refresh $FLAGS $(more "$2" "$FLASH") --key-file "$keys/$1" "$1"
}

# One fact a line. The module is loaded as cryptsetup itself would; it shows the version. $@ are
# the places that may hold keys.
facts() {
    PATH=$PATH:/usr/sbin:/sbin
    for program in cryptsetup dmsetup blkid wipefs; do
        command -v $program > /dev/null && echo "has $program"
    done
    cryptsetup --version 2> /dev/null || :
    cryptsetup --help 2> /dev/null | grep -o -- '--perf-[a-z_]*' | sed 's/^--perf-/knows /' || :
    $SUDO modprobe -q dm-crypt 2> /dev/null || :
    $SUDO dmsetup targets 2> /dev/null | grep '^crypt ' || :
    echo "kernel $(uname -r)"
    for mount; do
        echo "on $(stat -f -c %T "$mount" 2> /dev/null || :)"
    done
}
