"""Runs OpenSSH's server as the current user, with the public key that an MPIJob has mounted, on a free port.

python sshd.py FOLDER KEYS      FOLDER gets a file with this host's port, for `ssh -F`; KEYS has authorized_keys

Ranks of all hosts run on one machine here, and daemons of Open MPI need host names that differ: the command that comes
through ssh is told one by the variables of Slurm.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

SSHD = "/usr/sbin/sshd"
NAMED = """\
#!/bin/sh
export SLURMD_NODENAME={host} SLURM_NODEID=0 SLURM_JOBID=1 SLURM_JOB_ID=1
exec /bin/sh -c "$(printf '%s' "$SSH_ORIGINAL_COMMAND" | sed 's/ ess "env" / ess "slurm" /')"
"""

shared, keys = map(Path, sys.argv[1:])
host = os.environ["HOSTNAME"]
own = Path("sshd").absolute()
own.mkdir(mode=0o700)
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", own / "host"], check=True)
(own / "named").write_text(NAMED.format(host=shlex.quote(host)))
(own / "named").chmod(0o700)
if os.getuid() == 0:
    Path("/run/sshd").mkdir(exist_ok=True)
(own / "config").write_text(f"""\
ListenAddress 127.0.0.1
Port {port}
HostKey {own}/host
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
AuthorizedKeysFile {keys}/authorized_keys
ForceCommand {own}/named
LogLevel VERBOSE
""")
(shared / f"{host}.new").write_text(f"Host {host}.*\n  HostName 127.0.0.1\n  Port {port}\n")
(shared / f"{host}.new").rename(shared / f"{host}.conf")
os.execv(SSHD, [SSHD, "-D", "-e", "-f", str(own / "config")])  # noqa: S606 - in the place of this process
