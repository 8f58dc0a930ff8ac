"""Hosts that are network namespaces of this machine, on one switch, with links of a given rate; needs root and iproute2."""

import json
import os
import shutil
import signal
import subprocess
import sys

# As many bytes as the token bucket lets through at once, and how long a packet may wait in it: a small switch's.
BURST, LATENCY = 128 << 10, "40ms"
DEVICE = "eth0"


def check(script):
    """Ends the program if there can be no hosts here."""
    if not shutil.which("ip") or not shutil.which("tc"):
        sys.exit("this needs `ip` and `tc`: install iproute2 (Linux only)")
    if os.geteuid() != 0:
        sys.exit(f"this makes network namespaces, which needs root: sudo {script} --engine BINARY ...")
    # Who is asked to end first ends its peers and removes its hosts, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


class Loopback:
    """No hosts: all peers are here, and every two of them reach each other."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def command(self, _, command):
        return command

    def listen(self, _):
        return "127.0.0.1:0"


class Hosts:
    """`with Hosts(4, 100) as hosts`: four hosts at 10.77.0.1 to 4 that send and receive at most 100 Mbit/s each."""

    def __init__(self, n, rate_mbit, burst=BURST, label=""):
        # Others on this machine may have namespaces of their own, and this process several by their labels.
        prefix = f"nettorrent-{os.getpid()}{label and '-'}{label}"
        self.switch, self.names = f"{prefix}-switch", [f"{prefix}-{i + 1}" for i in range(n)]
        self.rate_mbit, self.burst = rate_mbit, burst

    def __enter__(self):
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_):
        self.down()

    def up(self):
        call("ip netns add", self.switch)
        call("ip -n", self.switch, "link add br0 type bridge")
        call("ip -n", self.switch, "link set br0 up")
        for i, name in enumerate(self.names, 1):
            call("ip netns add", name)
            call("ip link add", DEVICE, "netns", name, f"type veth peer name port{i} netns", self.switch)
            call("ip -n", self.switch, f"link set port{i} master br0 up")
            call("ip -n", name, "link set lo up")
            call("ip -n", name, f"addr add {self.address(i - 1)}/24 dev {DEVICE}")
            call("ip -n", name, f"link set {DEVICE} up")
            # What a host sends is limited at its card, what it receives at the switch's port.
            for namespace, device in [(name, DEVICE), (self.switch, f"port{i}")]:
                call("tc -n", namespace, f"qdisc add dev {device} root tbf rate {self.rate_mbit}mbit burst {self.burst} "
                     f"latency {LATENCY}")

    def down(self):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def listen(self, host):
        """Where a peer there listens: at any free port."""
        return f"{self.address(host)}:0"

    def command(self, host, command):
        """The command line that runs a command there."""
        return ["ip", "netns", "exec", self.names[host], *map(str, command)]

    def sent_bytes(self):
        """What each has sent so far, with all headers."""
        return [sent_bytes(name, DEVICE) for name in self.names]


def sent_bytes(namespace, device):
    command = ["ip", "-n", namespace, "-s", "-j", "link", "show", "dev", device]
    shown = subprocess.run(command, capture_output=True, check=True)
    return json.loads(shown.stdout)[0]["stats64"]["tx"]["bytes"]


def call(*words):
    command = " ".join(words).split()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
