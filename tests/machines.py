"""Machines for tests: network namespaces, each joined to ours by a cable of its own, which can be pulled."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess

ALLOWED = hasattr(os, "getuid") and os.getuid() == 0 and shutil.which("ip") is not None
NOT_ALLOWED = "network namespaces need root and the command `ip`"
N_SUBNETS = 2**14  # of four addresses each, in 10.213.0.0/16


class Machine:
    """A network namespace.

    Attributes:
        name: Its name.
        address: Its own address.
        gateway: The address of this machine, at our end of the cable.
    """

    def __init__(self) -> None:
        """Make it.

        Raises:
            OSError: The command `ip` failed.
        """
        self.name = f"sg{os.urandom(5).hex()}"  # the name of a link may have 15 letters
        ip(f"netns add {self.name}")
        try:
            ip(f"link add {self.name}a type veth peer name {self.name}b netns {self.name}")
            # The system numbers links, and no two have one number, so no two cables have one subnet.
            first = 4 * (socket.if_nametoindex(f"{self.name}a") % N_SUBNETS)
            subnet = f"10.213.{first >> 8}"
            self.gateway, self.address = f"{subnet}.{first % 256 + 1}", f"{subnet}.{first % 256 + 2}"
            ip(f"address add {self.gateway}/30 dev {self.name}a")
            ip(f"link set {self.name}a up")
            ip(f"-n {self.name} address add {self.address}/30 dev {self.name}b")
            ip(f"-n {self.name} link set lo up")
            self.plug()
        except BaseException:
            self.close()
            raise

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command begins with that runs there."""
        return ("ip", "netns", "exec", self.name)

    def pull(self) -> None:
        """Pull the cable: packets vanish in silence."""
        ip(f"-n {self.name} link set {self.name}b down")

    def plug(self) -> None:
        """Plug it in."""
        ip(f"-n {self.name} link set {self.name}b up")
        ip(f"-n {self.name} route add default via {self.gateway}")

    def close(self) -> None:
        """Remove the machine, and with it the cable."""
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True, check=False)


def ip(arguments: str) -> None:
    """Run the command `ip`.

    Raises:
        OSError: It failed.
    """
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {arguments}: {done.stderr.strip()}")
