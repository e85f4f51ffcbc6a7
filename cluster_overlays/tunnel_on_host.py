"""Make, show and remove a tunnel between hosts. Runs on hosts as root: Python 3.6, iproute2.

Keys are made in a tmpfs and never leave. The kernel gets them by stdin or a file, never in argv.
"""

import glob
import hashlib
import hmac
import ipaddress
import json
import os
import resource
import socket
import subprocess
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

from cbt_crypto.hosts.keys_on_host import key_directories, make_key_directory

#: Bytes that a tunnel adds to each packet over IPv4. ESP: header 8, IV 8, ICV 16, trailer up to 5.
OVERHEAD = {"vxlan": 50, "ipip": 20, "wireguard": 60, "ipsec": 60}
#: What `ip link add ... type` calls them.
LINK_TYPES = {"vxlan": "vxlan", "ipip": "ipip", "wireguard": "wireguard", "ipsec": "xfrm"}

Request = Dict[str, Any]


class Way:
    """How packets to one peer leave this host: our address, the peer's, the device."""

    def __init__(self, peer: str, tunnel: str, number: int, source: str, address: str, dev: str):
        self.peer, self.tunnel, self.number = peer, tunnel, number
        self.source, self.address, self.dev = source, address, dev


def ways(request: Request) -> List[Way]:
    """The ways to all other hosts."""
    all_ways = []
    for number, (host, addresses) in enumerate(sorted(request["hosts"].items())):
        if host == request["me"]:
            continue
        address = _ipv4(addresses["underlay"])
        route = json.loads(run(["ip", "-j", "-4", "route", "get", address]))[0]
        all_ways.append(
            Way(host, addresses["tunnel"], number, route["prefsrc"], address, route["dev"])
        )
    return all_ways


def _ipv4(name: str) -> str:
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(name, None, socket.AF_INET)}
    except OSError:
        sentence = f"{name} has no IPv4 address here; name it in network.addresses"
        raise SystemExit(sentence) from None
    return sorted(addresses)[0]


def run(command: List[str], text: Optional[str] = None) -> str:
    """A command's output; what it says on failure ends this program."""
    pipe = subprocess.PIPE
    streams = {"stdin": pipe, "stdout": pipe, "stderr": pipe}
    with subprocess.Popen(command, universal_newlines=True, **streams) as process:  # type: ignore[call-overload]
        output, problem = process.communicate(text)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:4])}: {problem.strip()[-300:]}")
    return str(output)


# -- keys -------------------------------------------------------------------------------------


def key_file(request: Request) -> str:
    """Where this host's private key is."""
    return f"{make_key_directory()}/{request['link']}.key"


def introduce(request: Request) -> Dict[str, str]:
    """Make this host's key pair, where the kind needs one; what others may know of it."""
    os.umask(0o077)
    if request["kind"] == "wireguard":
        private = run(["wg", "genkey"])
        with open(key_file(request), "w") as file:
            file.write(private)
        return {"public": run(["wg", "pubkey"], private).strip()}
    if request["kind"] == "ipsec":
        run(["openssl", "genpkey", "-algorithm", "X25519", "-out", key_file(request)])
        return {"public": run(["openssl", "pkey", "-in", key_file(request), "-pubout"])}
    return {}


def agreed(request: Request, public: str) -> bytes:
    """The secret that this host and the owner of a public key have in common (X25519)."""
    path = key_file(request) + ".peer"
    with open(path, "w") as file:
        file.write(public)
    try:
        return subprocess.check_output(
            ["openssl", "pkeyutl", "-derive", "-inkey", key_file(request), "-peerkey", path]
        )
    finally:
        os.remove(path)


def esp_key(secret: bytes, spi: int, bits: int) -> str:
    """The key of one direction with its salt of 4 bytes, as iproute2 takes it."""
    material = b"".join(
        hmac.new(secret, b"cbt-crypto esp %d %d" % (spi, n), hashlib.sha256).digest()
        for n in range(2)
    )
    return "0x" + material[: bits // 8 + 4].hex()


# -- what makes a tunnel ----------------------------------------------------------------------


def mtu(request: Request, all_ways: List[Way]) -> int:
    """The MTU asked for, or the least of all ways, minus what the tunnel adds."""
    if request["mtu"]:
        return int(request["mtu"])
    under = []
    for way in all_ways:
        with open(f"/sys/class/net/{way.dev}/mtu", errors="replace") as file:
            under.append(int(file.read()))
    return min(under) - OVERHEAD[request["kind"]]


def vxlan(request: Request, all_ways: List[Way], size: int) -> Tuple[List[str], List[str]]:
    """Lines for `ip -batch` and for `bridge -batch`: one device, and where each peer is.

    Nothing is learned: whoever sends a packet to the port would be where a peer is.
    """
    link, me = request["link"], sorted(request["hosts"]).index(request["me"])
    lines = [
        f"link add {link} address {_mac(me)} type vxlan id {request['id']} nolearning "
        f"local {all_ways[0].source} dstport {request['port']}",
        *_addressed(request, link, size),
    ]
    for way in all_ways:
        at = f"lladdr {_mac(way.number)} dev {link} nud permanent"
        lines.append(f"neigh replace {way.tunnel} {at}")
    places = [f"fdb replace {_mac(w.number)} dev {link} dst {w.address}" for w in all_ways]
    return lines, places


def _mac(number: int) -> str:
    return f"02:cb:70:00:{number >> 8:02x}:{number & 255:02x}"


def ipip(request: Request, all_ways: List[Way], size: int) -> Tuple[List[str], List[str]]:
    """One device a peer."""
    lines = []
    for way in all_ways:
        link = f"{request['link']}.{way.number}"
        lines += [
            f"link add {link} type ipip local {way.source} remote {way.address}",
            f"addr add {_tunnel_address(request)} peer {way.tunnel}/32 dev {link}",
            f"link set {link} mtu {size} up",
        ]
    return lines, []


def wireguard(request: Request, all_ways: List[Way], size: int) -> Tuple[List[str], List[str]]:
    """One device; `peers` gives it its peers."""
    link = request["link"]
    return [f"link add {link} type wireguard", *_addressed(request, link, size)], []


def ipsec(request: Request, all_ways: List[Way], size: int) -> Tuple[List[str], List[str]]:
    """One xfrm interface; states and policies hold for what goes through it, and nothing else."""
    link = request["link"]
    lines = [
        f"link add {link} type xfrm dev {all_ways[0].dev} if_id {request['id']}",
        *_addressed(request, link, size),
    ]
    for way in all_ways:
        secret = agreed(request, request["said"][way.peer]["public"])
        lines += security(request, way, secret)
    return lines, []


def security(request: Request, way: Way, secret: bytes) -> List[str]:
    """The states and policies of both directions between this host and one peer."""
    me = sorted(request["hosts"]).index(request["me"])
    out, into = spi(request, me, way.number), spi(request, way.number, me)
    lines = []
    for number, ends in ((out, (way.source, way.address)), (into, (way.address, way.source))):
        key = esp_key(secret, number, request["key_size"])
        lines.append(
            f"xfrm state add src {ends[0]} dst {ends[1]} proto esp spi {number} mode tunnel "
            f"if_id {request['id']} replay-window 128 flag esn aead rfc4106(gcm(aes)) {key} 128"
        )
    near, far = _tunnel_address(request) + "/32", way.tunnel + "/32"
    for direction, ends, outer in (
        ("out", (near, far), (way.source, way.address)),
        ("in", (far, near), (way.address, way.source)),
    ):
        lines.append(
            f"xfrm policy add src {ends[0]} dst {ends[1]} dir {direction} if_id {request['id']} "
            f"tmpl src {outer[0]} dst {outer[1]} proto esp mode tunnel"
        )
    return lines


def spi(request: Request, sender: int, receiver: int) -> int:
    """A number for each direction between two hosts, beyond those that are reserved."""
    return (1 << 28) | (int(request["id"]) & 0xFFF) << 16 | sender << 8 | receiver


def _tunnel_address(request: Request) -> str:
    return str(request["hosts"][request["me"]]["tunnel"])


def _addressed(request: Request, link: str, size: int) -> List[str]:
    return [
        f"addr add {_tunnel_address(request)}/{request['prefix']} dev {link}",
        f"link set {link} mtu {size} up",
    ]


def peers(request: Request, all_ways: List[Way]) -> List[str]:
    """The command that gives a WireGuard device its key, by a file's name, and its peers."""
    command = ["wg", "set", request["link"], "listen-port", str(request["port"])]
    command += ["private-key", key_file(request)]
    for way in all_ways:
        command += ["peer", request["said"][way.peer]["public"], "allowed-ips", way.tunnel + "/32"]
        command += ["endpoint", f"{way.address}:{request['port']}"]
    return command


KINDS = {"vxlan": vxlan, "ipip": ipip, "wireguard": wireguard, "ipsec": ipsec}


def make(request: Request) -> None:
    """Bring the tunnel up."""
    all_ways = ways(request)
    lines, floods = KINDS[request["kind"]](request, all_ways, mtu(request, all_ways))
    run(["ip", "-batch", "-"], "\n".join(lines) + "\n")
    if floods:
        run(["bridge", "-batch", "-"], "\n".join(floods) + "\n")
    if request["kind"] == "wireguard":
        run(peers(request, all_ways))


# -- what takes it away -----------------------------------------------------------------------


def links(request: Request) -> List[str]:
    """The tunnel's devices on this host."""
    name = request["link"]
    return [
        link for link in sorted(os.listdir("/sys/class/net"))
        if link == name or link.startswith(name + ".")
    ]  # fmt: skip


def remove(request: Request) -> None:
    """Remove the tunnel's devices, IPsec states and keys; what is not there is no error."""
    for link in links(request):
        run(["ip", "link", "delete", link])
    if request["kind"] == "ipsec":
        lines = list(undone(request["id"], run(["ip", "xfrm", "policy"]), "policy"))
        lines += undone(request["id"], run(["ip", "xfrm", "state"]), "state")
        if lines:
            run(["ip", "-batch", "-"], "\n".join(lines) + "\n")
    for directory in key_directories():
        for path in glob.glob(f"{directory}/{request['link']}.key*"):
            os.remove(path)
        if not os.listdir(directory):
            os.rmdir(directory)


def undone(number: int, printed: str, kind: str) -> Iterator[str]:
    """Lines that delete the states or policies of our interface number, from what `ip` printed."""
    for block in blocks(printed):
        words = " ".join(block).split()
        if "if_id" not in words or int(words[words.index("if_id") + 1], 16) != number:
            continue
        ends = f"src {words[1]} dst {words[3]}"
        if kind == "state":
            yield f"xfrm state delete {ends} proto esp spi {words[words.index('spi') + 1]}"
        else:
            where = words[words.index("dir") + 1]
            yield f"xfrm policy delete {ends} dir {where} if_id {number}"


def blocks(printed: str) -> List[List[str]]:
    """The entries of `ip xfrm`: a line, and those indented under it."""
    entries = []  # type: List[List[str]]
    for line in printed.splitlines():
        if line[:1].isspace() and entries:
            entries[-1].append(line)
        elif line.strip():
            entries.append([line])
    return entries


# -- what shows it ----------------------------------------------------------------------------


def show(request: Request) -> Dict[str, Any]:
    """The tunnel's devices with their counters, and the addresses that OSDs are connected by."""
    return {
        "links": {link: _link(link) for link in links(request)},
        "sockets": {osd: sockets(pid) for osd, pid in request["osds"].items()},
    }


def _link(link: str) -> Dict[str, Any]:
    about = json.loads(run(["ip", "-j", "-d", "link", "show", link]))[0]
    counted = {}
    for name in ("rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "tx_dropped"):
        with open(f"/sys/class/net/{link}/statistics/{name}", errors="replace") as file:
            counted[name] = int(file.read())
    return {"kind": about.get("linkinfo", {}).get("info_kind"), "mtu": about["mtu"], **counted}


def sockets(pid_file: str) -> Optional[Dict[str, int]]:
    """Our address -> how many established TCP connections of a process have it."""
    try:
        with open(pid_file) as file:
            pid = file.read().strip()
        of_process = set()
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                of_process.add(os.readlink(f"/proc/{pid}/fd/{name}"))
            except FileNotFoundError:
                continue
        tables = [f"/proc/{pid}/net/{name}" for name in ("tcp", "tcp6")]
    except FileNotFoundError:
        return None
    counts = {}  # type: Dict[str, int]
    for path in tables:
        if os.path.exists(path):
            with open(path, errors="replace") as file:
                for address in established(file.read(), of_process):
                    counts[address] = counts.get(address, 0) + 1
    return counts


def established(table: str, of_process: Any) -> Iterator[str]:
    """The local addresses of the connections, in /proc/net/tcp or tcp6, that `of_process` has."""
    for line in table.splitlines()[1:]:
        words = line.split()
        if words[3] == "01" and f"socket:[{words[9]}]" in of_process:
            yield address_of(words[1].partition(":")[0])


def address_of(text: str) -> str:
    """An address as /proc has it: 32-bit words of this host's byte order, in hexadecimal."""
    packed = b"".join(
        int(text[n : n + 8], 16).to_bytes(4, sys.byteorder) for n in range(0, len(text), 8)
    )
    address = ipaddress.ip_address(packed)
    return str(getattr(address, "ipv4_mapped", None) or address)


def unused(request: Request) -> None:
    """Print ok, or who has an address in the subnet already, but for links of our own."""
    subnet = ipaddress.IPv4Network(request["subnet"])
    for link in json.loads(run(["ip", "-j", "-4", "addr"])):
        for info in link.get("addr_info", ()):
            own = link["ifname"].startswith(request["own"])
            if not own and ipaddress.ip_address(info["local"]) in subnet:
                name = "{}; name another network.subnet".format(link["ifname"])
                sys.exit(print("has an address in", subnet, "on", name))
    print("ok")


ACTIONS = {
    "introduce": introduce, "make": make, "remove": remove, "show": show, "unused": unused,
}  # fmt: skip


if __name__ == "__main__":
    # What holds keys leaves no core, nor do the programs that it starts.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    given = json.loads(sys.argv[1])
    answer = ACTIONS[given["action"]](given)
    if answer is not None:
        print(json.dumps(answer))
