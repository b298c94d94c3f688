"""Runs `shoal` for the integration tests, and keeps count of what failed."""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

_failures = []


def check(ok, what, detail=""):
    print(f"{'ok  ' if ok else 'FAIL'} {what}{'' if ok else f': {detail}'}", flush=True)
    if not ok:
        _failures.append(what)


def finish():
    """Ends the test: status 1 where a check failed."""
    if _failures:
        print(f"{len(_failures)} checks failed:\n  " + "\n  ".join(_failures))
    sys.exit(1 if _failures else 0)


class Result:
    def __init__(self, status, out, error):
        self.status, self.out, self.error = status, out, error

    @property
    def text(self):
        return self.out.decode()

    @property
    def json(self):
        return json.loads(self.out)


def wait(condition):
    """Whether it comes true within a minute."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)  # between two looks at the condition
    return False


class Program:
    """A process that says in a line of JSON where it listens. What it writes to standard error is kept."""

    def __init__(self, *command):
        self.command = list(map(str, command))
        self._errors = tempfile.NamedTemporaryFile()
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self._errors)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.command} ended with {self.process.wait()}: {self.log}")
        self.said = json.loads(line)
        self.address = self.said["listening_on"]

    @property
    def log(self):
        # Not through the process's own descriptor: they share one position.
        with open(self._errors.name, errors="replace") as file:
            return file.read()

    def logs(self, text):
        """Waits until it is written."""
        return wait(lambda: text in self.log)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def processor_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def limit_files(size_bytes):
    """For preexec_fn: no file may grow beyond this, as on a disk that is full; a write that would fails with EFBIG."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))

    return limit


class Shoal:
    def __init__(self, program):
        self.program = program

    def run(self, *args, stdin=b"", before=None):
        done = subprocess.run([self.program, *map(str, args)], input=stdin, capture_output=True, timeout=300, preexec_fn=before)
        return Result(done.returncode, done.stdout, done.stderr.decode(errors="replace"))

    def interrupted(self, args, ready, stdin=None):
        """A run that gets Ctrl-C once ready(process) is true, and ends by itself then."""
        process = subprocess.Popen([self.program, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        if stdin is not None:
            process.stdin.write(stdin)
            process.stdin.flush()
        deadline = time.monotonic() + 60
        while not ready(process) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)  # between two looks at the condition
        held_open = os.dup(process.stdin.fileno())  # the end of the input would end a chat too
        process.send_signal(signal.SIGINT)
        try:
            out, error = process.communicate(timeout=60)
        finally:
            os.close(held_open)
        return Result(process.returncode, out, error.decode(errors="replace"))

    def ok(self, *args, stdin=b""):
        """A run that must end with status 0."""
        result = self.run(*args, stdin=stdin)
        if result.status != 0:
            check(False, f"shoal {' '.join(map(str, args))} ends with 0", f"{result.status}: {result.error}")
            finish()
        return result

    def refused(self, args, status, *words, stdin=b"", before=None):
        """A run that must end with `status`, and whose output must hold all `words`."""
        result = self.run(*args, stdin=stdin, before=before)
        said = result.error + result.out.decode(errors="replace")
        missing = [word for word in words if word not in said]
        label = " ".join(str(a).rsplit("/", 1)[-1][:40] for a in args)
        check(result.status == status and not missing, f"`shoal {label}` is refused with {status}",
              f"status {result.status}, without {missing}: {said}")
        return result
