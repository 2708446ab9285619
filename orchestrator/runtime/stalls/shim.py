"""Count opens and reads of each path, including those of native code, by a small preloaded library.

It is compiled when needed, by that computer's C compiler, and the interpreter is restarted with it. Each
process keeps a table in a file: slots of a path (256 bytes) and four 64-bit numbers: opens, reads, bytes,
nanoseconds in reads. The table is a shared mapping, so its counts survive the process.
"""

# Close to the kernel: paths need os calls, not pathlib.
# ruff: noqa: PTH103, PTH110, PTH118

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any, MutableMapping, Optional

FOLDER = "ORCH_READS"

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 16384
#define FDS 65536
struct row { char path[256]; uint64_t opens, reads, bytes, ns; };
static struct row *table;
static int owner[FDS];
static pid_t mine;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int busy;

#define REAL(name) ({ static void *f; if (!f) f = dlsym(RTLD_NEXT, #name); (__typeof__(&name))f; })

static void begin(void) {
    const char *folder = getenv("ORCH_READS");
    char path[4096];
    mine = getpid();
    table = NULL;
    memset(owner, 0, sizeof owner);
    if (!folder) return;
    snprintf(path, sizeof path, "%s/%d.reads", folder, (int)mine);
    int fd = REAL(open)(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return;
    if (ftruncate(fd, SLOTS * sizeof(struct row)) == 0) {
        void *found = mmap(0, SLOTS * sizeof(struct row), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (found != MAP_FAILED) table = found;
    }
    REAL(close)(fd);
}

/* The slot of a path, 1 and up; 0 where the table is full. With the lock held. */
static int slot(const char *path) {
    uint32_t hash = 2166136261u;
    for (const char *c = path; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    for (int i = 0; i < 64; i++) {
        int at = (hash + i) % SLOTS;
        if (!table[at].path[0]) { strncpy(table[at].path, path, 255); return at + 1; }
        if (!strncmp(table[at].path, path, 255)) return at + 1;
    }
    return 0;
}

static int opened(int fd, int flags) {
    if (fd < 0 || fd >= FDS || busy) return fd;
    busy = 1;
    pthread_mutex_lock(&lock);
    if (mine != getpid()) begin();
    owner[fd] = 0;
    if (table && (flags & O_ACCMODE) != O_WRONLY) {
        char link[64], path[4096];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, path, sizeof path - 1);
        if (n > 0) {
            path[n] = 0;
            if (path[0] == '/' && strncmp(path, "/proc/", 6) && strncmp(path, "/sys/", 5)
                && strncmp(path, "/dev/", 5)) {
                owner[fd] = slot(path);
                if (owner[fd]) table[owner[fd] - 1].opens++;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    busy = 0;
    return fd;
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static ssize_t counted(int fd, ssize_t got, uint64_t since) {
    int at = fd >= 0 && fd < FDS ? owner[fd] : 0;
    if (at && table && mine == getpid()) {
        struct row *row = table + at - 1;
        __atomic_fetch_add(&row->reads, 1, __ATOMIC_RELAXED);
        if (got > 0) __atomic_fetch_add(&row->bytes, got, __ATOMIC_RELAXED);
        __atomic_fetch_add(&row->ns, now() - since, __ATOMIC_RELAXED);
    }
    return got;
}

static int mode_of(int flags, va_list more) {
    int made = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    return made ? va_arg(more, int) : 0;
}
#define OPEN(name) int name(const char *path, int flags, ...) { va_list more; va_start(more, flags); \
    int mode = mode_of(flags, more); va_end(more); return opened(REAL(name)(path, flags, mode), flags); }
#define OPENAT(name) int name(int at, const char *path, int flags, ...) { \
    va_list more; va_start(more, flags); \
    int mode = mode_of(flags, more); va_end(more); return opened(REAL(name)(at, path, flags, mode), flags); }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

static FILE *fopened(FILE *file, const char *mode) {
    if (file) opened(fileno(file), mode[0] == 'r' ? O_RDONLY : O_WRONLY);
    return file;
}
FILE *fopen(const char *path, const char *mode) { return fopened(REAL(fopen)(path, mode), mode); }
FILE *fopen64(const char *path, const char *mode) { return fopened(REAL(fopen64)(path, mode), mode); }

ssize_t read(int fd, void *to, size_t n) { uint64_t t = now(); return counted(fd, REAL(read)(fd, to, n), t); }
ssize_t pread(int fd, void *to, size_t n, off_t at) {
    uint64_t t = now(); return counted(fd, REAL(pread)(fd, to, n, at), t); }
ssize_t pread64(int fd, void *to, size_t n, off64_t at) {
    uint64_t t = now(); return counted(fd, REAL(pread64)(fd, to, n, at), t); }
int close(int fd) {
    if (fd >= 0 && fd < FDS) owner[fd] = 0;
    return REAL(close)(fd);
}
"""


def begin_again(folder: str, environ: MutableMapping[str, str] = os.environ) -> Optional[str]:
    """Restart this interpreter with the library. Returns only if it is loaded already (None), or why it
    cannot be.

    Called before the program begins, so that nothing is done twice.
    """
    arguments = getattr(sys, "orig_argv", None)
    library = os.path.join(folder, "reads.so")
    if environ.get(FOLDER):
        return None
    if not arguments:
        return "Python before 3.10 does not know its own command line"
    os.makedirs(folder, exist_ok=True)
    why = build(library)
    if why is None:
        environ[FOLDER] = folder
        environ["LD_PRELOAD"] = " ".join(filter(None, [library, environ.get("LD_PRELOAD")]))
        os.execv(sys.executable, [sys.executable, *arguments[1:]])
    return why


def build(library: str, source: str = SOURCE) -> Optional[str]:
    """Compile to `library`; returns the reason if that fails."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return "there is no C compiler here"
    if os.path.exists(library):
        return None
    part = f"{library}.{os.getpid()}"
    argv = [compiler, "-O2", "-shared", "-fPIC", "-w", "-x", "c", "-o", part, "-", "-ldl", "-lpthread"]
    done: Any = subprocess.run(argv, input=source.encode(), capture_output=True, check=False)
    if done.returncode != 0:
        return f"the C compiler refused: {done.stderr.decode(errors='replace').strip()[-200:]}"
    os.replace(part, library)  # noqa: PTH105
    return None
