"""Hosts at a switch, the "internet", with a relay: at it themselves, or behind routers with NAT. Network namespaces; takes root."""

import subprocess

from hosts import call

RELAY, PORT = "198.18.0.2", 3340
RULES = """
table ip nat {
  chain post { type nat hook postrouting priority 100; oifname "wan" masquerade %s; }
  chain pre { type nat hook prerouting priority -100; %s }
}
table ip filter {
  chain input { type filter hook input priority 0; policy accept; iifname "wan" ct state != established,related drop; }
  chain forward { type filter hook forward priority 0; policy drop;
    iifname "lan" accept; ct state established,related accept; %s }
}
"""
ONLY_RELAY = """
table ip cut {
  chain out { type filter hook output priority 0; meta l4proto udp drop; ip daddr != %s drop; }
}
""" % RELAY


class Internet:
    """A switch with a relay, and two hosts of these kinds."""

    def __init__(self, kinds, rate, nettorrent):
        self.kinds, self.rate, self.nettorrent = kinds, rate, nettorrent
        self.names, self.hosts, self.relay = [], [], None

    def __enter__(self):
        try:
            self.up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.relay:
            self.relay.kill()
            self.relay.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def up(self):
        switch = self.namespace("switch")
        call("ip -n", switch, "link add br0 type bridge")
        call("ip -n", switch, "link set br0 up")
        relay = self.attached("relay", RELAY)
        for side, kind in enumerate(self.kinds, 1):
            if kind == "open":
                self.hosts.append(self.attached(f"host{side}", f"198.18.0.{10 + side}"))
            else:
                self.hosts.append(self.behind_router(side, kind))
        command = [self.nettorrent, "relay", "--listen", f"0.0.0.0:{PORT}", "--json"]
        self.relay = self.start(relay, command)
        if not self.relay.stdout.readline():
            raise RuntimeError(self.relay.stderr.read())

    def namespace(self, name):
        name = f"routers-{name}"
        call("ip netns add", name)
        self.names.append(name)
        call("ip -n", name, "link set lo up")
        return name

    def attached(self, name, address):
        """A host at the switch."""
        name, port = self.namespace(name), f"port{len(self.names)}"
        switch = self.names[0]
        call("ip link add wan netns", name, f"type veth peer name {port} netns", switch)
        call("ip -n", switch, f"link set {port} master br0 up")
        call("ip -n", name, f"addr add {address}/24 dev wan")
        call("ip -n", name, "link set wan up")
        if self.rate:
            for namespace, device in [(name, "wan"), (switch, port)]:
                call("tc -n", namespace, f"qdisc add dev {device} root tbf rate {self.rate}mbit burst 128k latency 40ms")
        return name

    def behind_router(self, side, kind):
        router = self.attached(f"router{side}", f"198.18.0.{10 + side}")
        host = self.namespace(f"host{side}")
        call("ip link add eth0 netns", host, "type veth peer name lan netns", router)
        for name, device, address in [(router, "lan", "192.168.1.1"), (host, "eth0", "192.168.1.2")]:
            call("ip -n", name, f"addr add {address}/24 dev {device}")
            call("ip -n", name, f"link set {device} up")
        call("ip -n", host, "route add default via 192.168.1.1")
        call("ip netns exec", router, "sysctl -q -w net.ipv4.ip_forward=1")
        is_full = kind == "full-cone"
        rules = RULES % ("fully-random" if kind == "symmetric" else "",
                         'iifname "wan" meta l4proto udp dnat to 192.168.1.2;' if is_full else "",
                         "ct status dnat accept;" if is_full else "")
        self.rule(router, rules)
        return host

    def rule(self, name, rules):
        subprocess.run(["ip", "netns", "exec", name, "nft", "-f", "-"], input=rules, text=True, check=True)

    def start(self, name, command):
        command = ["ip", "netns", "exec", name, *map(str, command)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def move(self, side, address):
        """The router before a host gets another address, as if the host had gone to another network."""
        router = next(name for name in self.names if name.endswith(f"router{side}"))
        call("ip -n", router, f"addr del 198.18.0.{10 + side}/24 dev wan")
        call("ip -n", router, f"addr add {address}/24 dev wan")
