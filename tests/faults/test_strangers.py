"""Other people's disks, runs and processes beside a campaign; hosts that lost what they knew."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fault_disks import digest, disks, plug_in, run, swap
from fault_lab import ARCHIVE, CLUSTER, HOME, TMP_DIR, Laboratory, document, until
from fault_story import Story

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

NOTHING = "complete, nothing left"


def on_devices(**cluster: Any) -> dict[str, Any]:
    """A campaign whose OSDs are on block devices."""
    return document({**CLUSTER, "osd_file_size": None, **cluster})


def refused(lab: Laboratory, text: str, *options: str, index: int = 0) -> tuple[float, str]:
    """Seconds and words until a start is refused."""
    since = time.monotonic()
    start = lab.start(*options, index=index)
    assert start.finish() == 2, start.said()
    after = time.monotonic() - since
    assert text in start.said(), start.said()
    return after, next(line for _, line in start.lines if text in line)


def completes(story: Story) -> None:
    again = story.lab.start()
    assert again.finish() == 0, again.said()
    now = story.lab.finished()
    assert len(now) == 2 and story.before.items() <= now.items()
    assert story.lab.leftovers() == []


def test_disks_are_renumbered(story: Story, loop_devices: None) -> None:
    """With the host's reboot: at our disk's place is somebody's file system, unmounted."""
    lab, where = story.lab, story.where
    with disks(where, "mine", "third", "other") as found:
        story.content = on_devices(
            osd_devices={"node2": [found["mine"]], "node3": [found["third"]]}
        )
        plug_in(lab, 2, found["mine"], found["other"])
        plug_in(lab, 3, found["third"])
        running = story.begin()
        lab.signal("KILL")
        assert running.finish() == 255
        lab.power_off(2)
        run("mkfs.ext4", "-q", found["other"])
        swap(where, found, "mine", "other")
        lab.power_on(2)
        plug_in(lab, 2, found["mine"], found["other"])
        before = digest(where / "other")
        after, said = refused(lab, "is another device now")
        assert str(where / "mine") in said and str(where / "other") in said
        assert digest(where / "other") == before
        with (where / "mine").open("rb") as disk:
            assert disk.read(11) == b"cbt-crypto:", "ours was emptied where it is now"
        lab.power_off(2)
        swap(where, found, "mine", "other")
        lab.power_on(2)
        plug_in(lab, 2, found["mine"], found["other"])
        completes(story)
        assert digest(where / "other") == before
        said = said.replace(str(where), "")
    story.table.add(
        "kill -9, and a reboot after which two disks have each other's names", f"{after:.0f} s",
        said, "1 of 1", "ours is emptied where it is now, the other is as it was", NOTHING,
    )  # fmt: skip


#: A TuneD of Debian's on a bus of its own. Its two profiles set what a network namespace has for
#: itself: the machine's own settings stay as they are.
_TUNED = """
mkdir -p /run/dbus
[ -e /run/dbus/pid ] || dbus-daemon --system --fork
for profile in before:63 during:62; do
    mkdir -p /etc/tuned/profiles/${profile%:*}
    printf '[main]\\nsummary=test\\n[sysctl]\\nnet.ipv4.ip_default_ttl=%s\\n' ${profile#*:} \\
        > /etc/tuned/profiles/${profile%:*}/tuned.conf
done
for setting in daemon:1 dynamic_tuning:0 udev_settle_count:0; do
    echo "${setting%:*} = ${setting#*:}"
done > /etc/tuned/tuned-main.conf
: > /etc/sysctl.conf; rm -rf /etc/sysctl.d /usr/lib/sysctl.d /run/sysctl.d
setsid tuned --daemon --profile before > /dev/null 2>&1 < /dev/null
n=0; until tuned-adm active 2>&1 | grep -q before || [ $n = 60 ]; do sleep 1; n=$((n + 1)); done
tuned-adm active
"""
_TTL = "cat /proc/sys/net/ipv4/ip_default_ttl; tuned-adm active | sed 's/.*: //'"


def test_tmp_dir_is_lost(story: Story, loop_devices: None) -> None:
    """It was in memory: all that the host knew of the run is gone, TuneD's way back too."""
    lab, where = story.lab, story.where
    mount = f"mkdir -p {TMP_DIR} && mount -t tmpfs -o mode=700 tmpfs {TMP_DIR}"
    with disks(where, "one", "two") as found:
        devices = {"node2": [found["one"]], "node3": [found["two"]]}
        tuned = {"Tuned": {"tuned": {"profile": "during", "roles": ["osds"]}}}
        story.content = on_devices(osd_devices=devices, configurations=tuned, control=False)
        plug_in(lab, 2, found["one"])
        plug_in(lab, 3, found["two"])
        for index in (2, 3):
            assert "before" in lab.on(index, _TUNED)
            lab.on(index, mount)
        try:
            running = story.begin()
            assert lab.on(3, _TTL).split() == ["62", "during"]
            lab.signal("KILL")
            assert running.finish() == 255
            # The OSD ends with the power; TuneD would start again with the profile it had.
            marked = (
                f"grep -lzxF CBT_CRYPTO_MARK={TMP_DIR}@node3 /proc/[0-9]*/environ | cut -d/ -f3"
            )
            lab.on(
                3, f"kill -9 $({marked} | cut -d/ -f3) || :; umount -l {TMP_DIR}; rmdir {TMP_DIR}"
            )
            began = time.monotonic()
            cleanup = f"cd {HOME} && python3 -c 'from cbt_crypto.cli import cbt_crypto; "
            said = lab.on(0, cleanup + f"cbt_crypto()' cleanup --yes {ARCHIVE}")
            after = time.monotonic() - began
            for index in (2, 3):
                assert lab.on(index, _TTL).split() == ["63", "before"]
            for name in ("one", "two"):
                with (where / name).open("rb") as disk:
                    assert disk.read(11) == b"cbt-crypto:"
            lab.on(2, f"umount {TMP_DIR} && rmdir {TMP_DIR}")
            completes(story)
        finally:
            for index in (2, 3):
                lab.on(index, f"umount -l {TMP_DIR} 2>/dev/null || :; tuned-adm off || :")
                lab.on(index, "kill $(cat /run/tuned/tuned.pid) || :")
    story.table.add(
        "kill -9, and a power cut that takes a tmp_dir in memory (OSDs on devices, with TuneD)",
        f"at cleanup, which took {after:.0f} s", said.splitlines()[0], "1 of 1",
        "none: the profile of before is in force, the devices are emptied", NOTHING,
    )  # fmt: skip


#: Of a host: all that ran ends, also what holds it; what is on its disk stays.
_POWER_CUT = r"""
for e in /proc/[0-9]*/environ; do
    p=${e%/environ}
    ! grep -qz -e ^CBT_CRYPTO_MARK= $e 2> /dev/null && ! grep -qza 'action": *"hold' $p/cmdline ||
        kill -9 ${p#/proc/} || :
done 2> /dev/null
"""


def test_resume_beside_another_campaign(story: Story) -> None:
    """Killed with its hosts; another campaign began on them since; then the first starts again."""
    lab = story.lab
    running = story.begin()
    lab.signal("KILL")
    assert running.finish() == 255
    # The other one finds what the first left in its way, and is told whose it is.
    lab.carry_in(document(), story.where, index=1)
    _, told = refused(lab, "is in use by root@node0", "-a /root/other", index=1)
    assert ARCHIVE in told
    for index in range(4):
        lab.on(index, _POWER_CUT)
    other = lab.start("-a /root/other", index=1)
    other.wait_for("cell 1/2")
    until("fio of the other", lambda: lab.pids(1, "fio"))
    osds = lab.pids(2, "ceph-osd")
    after, said = refused(lab, "is in use by root@node1")
    assert "archive /root/other" in said
    assert lab.pids(2, "ceph-osd") == osds, "the other's daemons live"
    assert other.finish() == 0, other.said()
    completes(story)
    lab.on(1, "rm -rf /root/other")
    story.table.add(
        "kill -9, a power cut, and a resume beside another campaign", f"{after:.0f} s", said,
        "1 of 1, and 2 of 2 of the other", "none of ours; the other's daemons live on",
        "refused until the other has ended; then " + NOTHING,
    )  # fmt: skip


@contextmanager
def stranger(lab: Laboratory, index: int, program: str) -> Iterator[subprocess.Popen[bytes]]:
    """`nobody` runs Python on a node for as long."""
    from cbt_crypto.lab import access  # noqa: PLC0415

    lab.on(index, f"cat > /tmp/stranger.py <<'PROGRAM'\n{program}\nPROGRAM\n")
    text = "exec setpriv --reuid=65534 --clear-groups python3 /tmp/stranger.py"
    with subprocess.Popen(
        access.command(lab.lab, lab.node(index), text), stdin=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            lab.on(index, "kill -9 $(cat /tmp/stranger.pid); rm -f /tmp/stranger*")
            process.wait(30)


#: Takes the name of a lock as soon as it is free, and says that a dead run of root's has it.
_TAKES = """
import json, os, socket, sys, time
open("/tmp/stranger.pid", "w").write(str(os.getpid()))
name = open("/tmp/stranger.name").read().strip()
one = socket.socket(socket.AF_UNIX)
while True:
    try:
        one.bind(name.replace("@", chr(0), 1))
        break
    except OSError:
        time.sleep(0.01)
one.listen(8)
open("/tmp/stranger.up", "w").close()
while True:
    client = one.accept()[0]
    try:
        client.sendall(json.dumps({"run": "x", "pid": 1, "host": "node0", "keeper": 1}).encode())
    except OSError:
        pass
    client.close()
"""


def test_a_keeper_dies_and_a_stranger_takes_its_name(story: Story) -> None:
    """Before the next deployment the run looks whether it still holds its hosts."""
    lab = story.lab
    story.content = document({"iterations": 2, "rebuild_every_test": True}, {"mode": "randread"})
    running = story.begin(at="cell 1/2")
    name = lab.on(2, "grep -o '@cbt-crypto-.*' /proc/net/unix").split()[0]
    lab.on(2, f"touch /tmp/stranger.name && chmod 644 /tmp/stranger.name; echo {name} > "
           "/tmp/stranger.name; chmod 1777 /tmp")  # fmt: skip
    with stranger(lab, 2, _TAKES):
        keeper = 'grep -lz \'"action": *"hold"\' /proc/[0-9]*/cmdline | cut -d/ -f3'
        lab.on(2, f"kill -9 $({keeper})")
        since = time.monotonic()
        until("his taking it", lambda: lab.on(2, "ls /tmp/stranger.up 2>/dev/null || :"))
        assert running.finish() == 1, running.said()
        after = time.monotonic() - since
        said = next(line for _, line in running.lines if "of uid 65534" in line)
        # What it deployed is left as it is: it holds the host no more.
        assert lab.pids(2, "ceph-osd")
        _, told = refused(lab, "of uid 65534")
        assert "which is not your campaign; end it" in told
    again = lab.start()
    assert again.finish() == 0, again.said()
    assert lab.leftovers() == []
    story.table.add(
        "what holds a host killed, and its name taken by another user", f"{after:.0f} s", said,
        "1 of 1", "all: it touches nothing more", "refused while he has it; then " + NOTHING,
    )  # fmt: skip


def test_another_user_made_tmp_dir_first(story: Story) -> None:
    """Below /tmp, with our marker in it, and notes that would have a disk wiped."""
    lab, own = story.lab, "/tmp/cbt-own"
    story.content = document({"tmp_dir": own})
    lab.carry_in(story.content, story.where)
    lab.on(2, f"chmod 1777 /tmp; mkdir {own}; touch {own}/.cbt-crypto {own}/ceph.conf")
    lab.on(2, f"echo '{{}}' > {own}/devices.json; chown -R 65534 {own}")
    list_it = f"ls -lnR --time-style=full-iso {own}"
    before = lab.on(2, list_it)
    after, said = refused(lab, f"{own} belongs to uid 65534")
    assert lab.on(2, list_it) == before
    lab.on(2, f"rm -r {own}")
    again = lab.start()
    assert again.finish() == 0, again.said()
    story.table.add(
        "another user of a host made tmp_dir first, with our marker in it", f"{after:.0f} s", said,
        "no cell yet", "none; his directory is as it was", "refused until it is gone",
    )  # fmt: skip


#: Stands before the real one, and hangs where a disk would.
_HANGS = r"""cat > /usr/local/sbin/wipefs <<'SHIM'
#!/bin/sh
case " $* " in *" -a "*) exec sleep 4711 ;; esac
exec /usr/sbin/wipefs "$@"
SHIM
chmod +x /usr/local/sbin/wipefs"""
_USER = """
id bench > /dev/null 2>&1 || useradd -m -p '*' -s /bin/sh bench
mkdir -p ~bench/.ssh && cp /root/.ssh/authorized_keys ~bench/.ssh/
chown -R bench: ~bench && chmod 700 ~bench/.ssh
echo 'bench ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/bench && chmod 440 /etc/sudoers.d/bench
"""


def test_a_command_of_root_s_hangs_under_sudo(story: Story, loop_devices: None) -> None:
    """The campaign's user is none that may do it himself; killed, its wipefs must not go on."""
    lab, where = story.lab, story.where
    with disks(where, "one", "two") as found:
        devices = {"node2": [found["one"]], "node3": [found["two"]]}
        story.content = on_devices(osd_devices=devices, user="bench", wipe=True)
        run("mkfs.ext4", "-q", found["one"])
        for index in range(4):
            lab.on(index, _USER)
        plug_in(lab, 2, found["one"])
        plug_in(lab, 3, found["two"])
        lab.on(2, _HANGS)
        hung = "pgrep -u root -x -f 'sleep 4711' || :"
        lab.carry_in(story.content, where)
        running = lab.start()
        ends = time.monotonic() + 180
        while not lab.on(2, hung):
            assert running.process.poll() is None and time.monotonic() < ends, running.said()
            time.sleep(1)
        lab.signal("KILL")
        assert running.finish() == 255
        assert lab.on(2, hung)
        lab.on(2, "rm /usr/local/sbin/wipefs")
        story.before = {}
        since = time.monotonic()
        again = lab.start()
        until("its end", lambda: not lab.on(2, hung), 180)
        after = time.monotonic() - since
        assert again.finish() == 0, again.said()
        said = next(line for _, line in again.lines if line.startswith("tearing down"))
        assert len(lab.finished()) == 2 and lab.leftovers() == []
        for index in range(4):
            lab.on(index, "rm /etc/sudoers.d/bench")
    story.table.add(
        "kill -9 while root's own wipefs hangs, started by a user with sudo",
        f"at the next start, ended after {after:.0f} s", said, "no cell yet",
        "wipefs as root on node2", NOTHING,
    )  # fmt: skip
