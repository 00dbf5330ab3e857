"""A site's processes: its SuperNode, the warm process that its ClientApps are forked from. Light to import."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path

from prismfl.errors import UserError
from prismfl.files import schema
from prismfl.files.atomic import opener, write_atomically
from prismfl.site.certificates import look_at_trust
from prismfl.site.config import SCHEMA
from prismfl.site.servers import place_of
from prismfl.site.warm import Waiting
from prismfl.transport.flower.children import (
    ProcessError,
    beside_python,
    end,
    environment,
    free_port,
    guarded,
    spawn,
    split_address,
    wait,
)
from prismfl.transport.flower.guard import FIFO, write_commands

Say = Callable[[str], None]
WARM = [sys.executable, "-m", "prismfl.site.warm"]
READ = [sys.executable, "-m", "prismfl.site.making"]
CLOCK_TOLERANCE = 5.0
RETRY_SECONDS = 5.0
PATIENCE_SECONDS = 120.0  # that Flower's SuperNode repeats a call; then it ends, and is started anew
SHORT_LIFE, REFUSED_RETRY, REFUSED_SECONDS = 30.0, 15.0, 90.0


class Refusals:
    """How long a server has been turning this site away.

    Flower counts a connection that broke off as open for another minute and refuses the same key meanwhile, in the same
    words as a key that it does not know; only time tells the two apart.
    """

    since: float | None = None

    def last_too_long(self, started: float, ended: float) -> bool:
        """Takes note of a connection; whether those that were refused, one after the other, have lasted too long."""
        if ended - started >= SHORT_LIFE:
            self.since = None
            return False
        self.since = started if self.since is None else self.since
        return ended - self.since > REFUSED_SECONDS


def preflight(address: str, ca: Path | None, say: Say, *, attempts: int | None = None) -> bool:
    """Reach the server with the site's own trust before Flower does, and say in one line what is wrong. Whether this
    site's clock is right.

    An unreachable server is tried again (for ever unless `attempts` is given); a wrong certificate is final.
    """
    host, port = split_address(address)
    tried = 0
    while True:
        tried += 1
        try:
            return _check_clock(host, port, ca, say)
        except ssl.SSLCertVerificationError as error:
            raise UserError(f"{_named(error, host, address)}; nothing was sent.") from None
        except ssl.SSLError as error:
            raise UserError(f"The server at {address} does not speak TLS ({error.reason}); nothing was sent.") from None
        except OSError as error:
            why = error.strerror or type(error).__name__
            if attempts is not None and tried >= attempts:
                raise UserError(f"Cannot reach the server at {address}: {why}.") from None
            say(f"cannot reach the server at {address}: {why}; trying again in {RETRY_SECONDS:g} s")
            time.sleep(RETRY_SECONDS)


EXPIRED, NOT_YET, OTHER_NAME, OTHER_ADDRESS = 10, 9, 62, 64  # OpenSSL's numbers


def _named(error: ssl.SSLCertVerificationError, host: str, address: str) -> str:
    """What is wrong with a server's certificate, by name, and who mends it."""
    if error.verify_code == EXPIRED:
        return f"The certificate of the server at {address} has expired: its operator renews it (prismfl server renew)"
    if error.verify_code == NOT_YET:
        return f"The certificate of the server at {address} is not good yet: is this machine's clock right?"
    if error.verify_code in (OTHER_NAME, OTHER_ADDRESS):
        return (
            f"The certificate of the server at {address} is for other names than '{host}': use one of those, or its "
            f"operator adds this one (prismfl server renew --name {host})"
        )
    return (
        f"The server at {address} does not have a certificate of this federation ({error.verify_message}): another "
        "server, or keys/ca.pem is of another one; ask its operator for the right ca.pem"
    )


def check_trust(ca: Path, say: Say) -> None:
    """What a site trusts is an authority that has not ended; one that ends soon is told."""
    state = look_at_trust(ca)
    if state.faults:
        raise UserError(f"This site cannot trust any server: {state.faults[0]}.")
    if state.soon is not None:
        say(f"warning: {state.soon}; ask the server's operator for a new ca.pem")


def _check_clock(host: str, port: int, ca: Path | None, say: Say) -> bool:
    if ca is None:
        connection = http.client.HTTPConnection(host, port, timeout=10)
    else:
        context = ssl.create_default_context(cafile=str(ca))
        connection = http.client.HTTPSConnection(host, port, timeout=10, context=context)
    try:
        connection.request("GET", "/v1/fleet/clock")
        told = connection.getresponse().getheader("date")
    except http.client.HTTPException:
        raise ConnectionError(0, "it does not answer as a server of a federation") from None
    finally:
        connection.close()
    if told:
        skew = (datetime.now(UTC) - parsedate_to_datetime(told)).total_seconds()
        if abs(skew) > CLOCK_TOLERANCE:
            say(f"warning: this site's clock is {skew:+.0f} s off the server's; set it, or the server will refuse it")
            return False
    return True


def reread_apart(folder: Path, say: Say) -> None:
    """The site's own data read anew where they have changed, by another process: this one lasts, and stays light."""
    done = subprocess.run([*READ, str(folder)], stdout=subprocess.PIPE, text=True, check=False)
    for line in done.stdout.splitlines():
        told = json.loads(line)
        if "error" in told:
            raise UserError(told["error"])
        say(told["say"])
    if done.returncode:
        raise ProcessError(f"Reading the data of '{folder}' ended with code {done.returncode}.")


def trust_of(folder: Path, server: str = "") -> Path:
    """The authority that this site believes for a server."""
    return place_of(folder, server) / "ca.pem" if server else folder / "keys" / "ca.pem"


def supernode_command(folder: Path, address: str, *, insecure: bool, server: str = "") -> list[str]:
    """The command that starts this site's SuperNode against the server at `address`."""
    keys = folder / "keys"
    beside_python("flower-supernode")  # or it is told that Flower is not installed
    command = [*guarded("supernode"), "--superlink", address]
    if insecure:
        command += ["--insecure"]
    else:
        command += ["--root-certificates", str(trust_of(folder, server))]
        command += ["--auth-supernode-private-key", str(keys / "node.key")]
    command += ["--max-wait-time", f"{PATIENCE_SECONDS:g}"]
    return [*command, "--host", "127.0.0.1", "--port", str(free_port())]


class Outage:
    """Says when the server stops answering and when it is back, from what Flower's SuperNode writes into its log."""

    GONE, BACK = "Connection attempt failed, retrying in", "Connection successful after"

    def __init__(self, address: str, say: Say) -> None:
        self.address, self.say, self.gone = address, say, False

    def __call__(self, line: str) -> None:
        """Takes note of a line; most mean nothing."""
        if self.GONE in line and not self.gone:
            self.gone = True
            self.say(f"the server at {self.address} does not answer; trying again by itself")
        elif self.BACK in line and self.gone:
            self.gone = False
            self.say(f"the server at {self.address} answers again")


def follow_log(log: Path, say: Say) -> Callable[[], None]:
    """A function that repeats what is new in a log: what this site refused, and why, belongs on its terminal."""
    seen = log.stat().st_size if log.exists() else 0

    def look() -> None:
        nonlocal seen
        size = log.stat().st_size if log.exists() else 0
        if size < seen:
            seen = 0  # the log was rotated
        if size > seen:
            with log.open("rb") as file:
                file.seek(seen)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            seen += len(whole)
            for line in whole.decode(errors="replace").splitlines():
                say(line)

    return look


def join(
    folder: Path, address: str, say: Say, *, insecure: bool, attempts: int | None = None, server: str = ""
) -> None:
    """Be a site until told to stop: a SuperNode that is started again when it ends by itself. A site of several servers
    has a process of this kind for each."""
    folder = folder.resolve()
    place = place_of(folder, server)
    ca = None if insecure else trust_of(folder, server)
    schema.begin(folder, SCHEMA)
    write_commands(place / "bin")
    settings = {**environment(place / "flower"), "PRISMFL_SITE": str(folder), "PRISMFL_SERVER": server}
    settings["PATH"] = f"{place / 'bin'}{os.pathsep}{settings['PATH']}"
    write_atomically(place / "site.pid", str(os.getpid()).encode())
    refusals = Refusals()
    while True:
        if ca is not None:
            check_trust(ca, say)
        clock = preflight(address, ca, say, attempts=attempts)
        say(f"joining {address}; stop with Ctrl-C")
        started = time.monotonic()
        log_path = place / "supernode.log"
        with open(log_path, "ab", opener=opener) as log:
            warm = Waiting(place / "bin" / FIFO, partial(spawn, WARM, settings, log))
            process = spawn(supernode_command(folder, address, insecure=insecure, server=server), settings, log)
            code = wait(process, warm, follow_log(folder / "site.log", say), follow_log(log_path, Outage(address, say)))
            warm.close()
            if warm.process is not None:
                end(warm.process)
        if code is None:
            return
        if not clock:
            refusals.since = None  # why it is refused is known, and mends itself once the clock is set
        elif refusals.last_too_long(started, time.monotonic()):
            raise ProcessError(
                f"The server at {address} does not accept this site: is keys/node.pub enrolled there? "
                f"See {place / 'supernode.log'}."
            )
        refused = refusals.since is not None
        why = ": the server counts a broken one for a minute, or lacks the key" if refused else ""
        pause = REFUSED_RETRY if refused else RETRY_SECONDS
        say(f"the connection ended (code {code}){why}; joining again in {pause:g} s")
        time.sleep(pause)
