"""Runs `shoal` for the integration tests, and keeps count of what failed."""

import json
import subprocess
import sys

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


class Shoal:
    def __init__(self, program):
        self.program = program

    def run(self, *args, stdin=b""):
        done = subprocess.run([self.program, *map(str, args)], input=stdin, capture_output=True, timeout=300)
        return Result(done.returncode, done.stdout, done.stderr.decode(errors="replace"))

    def ok(self, *args, stdin=b""):
        """A run that must end with status 0."""
        result = self.run(*args, stdin=stdin)
        if result.status != 0:
            check(False, f"shoal {' '.join(map(str, args))} ends with 0", f"{result.status}: {result.error}")
            finish()
        return result

    def refused(self, args, status, *words, stdin=b""):
        """A run that must end with `status`, and whose output must hold all `words`."""
        result = self.run(*args, stdin=stdin)
        said = result.error + result.out.decode(errors="replace")
        missing = [word for word in words if word not in said]
        label = " ".join(str(a).rsplit("/", 1)[-1] for a in args)
        check(result.status == status and not missing, f"`shoal {label}` is refused with {status}",
              f"status {result.status}, without {missing}: {said}")
        return result
