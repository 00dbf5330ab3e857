"""A clock that a test can set for one family of processes: a few lines of C before the C library's own. Only what the
time is differs; what waits (the monotonic clock, sleeps, locks) is left alone, as where an operator sets a clock."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SOURCE = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long ahead(void) {
    char text[32] = {0};
    int before = errno, file = open(getenv("TEST_CLOCK") ? getenv("TEST_CLOCK") : "/dev/null", O_RDONLY | O_CLOEXEC);
    if (file >= 0) { if (read(file, text, sizeof text - 1) < 0) text[0] = 0; close(file); }
    errno = before;
    return atol(text);
}
int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, id, now);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
    return failed;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}
"""


class Clock:
    """The clock of the processes that are started with its `environment`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file, self.library = folder / f"{name}.clock", folder / "clock.so"
        self.set(0)
        if not self.library.exists():
            compiler = shutil.which("cc") or shutil.which("gcc")
            assert compiler is not None, "no C compiler"
            (folder / "clock.c").write_text(SOURCE)
            command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self.library), str(folder / "clock.c")]
            subprocess.run(command, check=True)

    def set(self, seconds: int) -> None:
        """How far it is ahead of this machine's, from now on."""
        part = self.file.with_suffix(".part")
        part.write_text(str(seconds))
        part.replace(self.file)

    @property
    def environment(self) -> dict[str, str]:
        """For processes that go by this clock."""
        return {**os.environ, "LD_PRELOAD": str(self.library), "TEST_CLOCK": str(self.file)}


def at_hand() -> bool:
    """Whether such a clock can be made here."""
    return (shutil.which("cc") or shutil.which("gcc")) is not None
