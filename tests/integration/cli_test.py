#!/usr/bin/env python3
"""The commands of `shoal` as a user gives them, on the bundled model.

    cli_test.py SHOAL SHOAL_NODE CONTAINER
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
from shoal_program import Shoal, check, finish

COMMANDS = ("convert", "plan", "run", "chat", "eval", "tokenize", "detokenize", "inspect", "bench", "version")
TEXT = "Once upon a time there was a king"


def help_and_version(shoal, node):
    overview = shoal.ok("--help").text
    for command in COMMANDS:
        text = shoal.ok(command, "--help").text
        check("Examples:" in text and f"shoal {command}" in text, f"{command} --help has examples")
        check(command in overview, f"shoal --help lists {command}")
    check(shoal.ok("--version").text == shoal.ok("version").text, "--version and version agree")
    for flag in ("--help", "--version"):
        done = subprocess.run([node, flag], capture_output=True, text=True)
        check(done.returncode == 0 and "shoal-node" in done.stdout, f"shoal-node {flag} answers", done.stderr)
    shoal.refused(["rum"], 2, "run")
    shoal.refused([], 2)


def sources_of_text(shoal, model, directory):
    flags = ["--max-tokens", 12, "--json"]
    expected = shoal.ok("run", model, TEXT, *flags).json["ids"]
    check(len(expected) == 12, "run generates as many tokens as asked")
    file = os.path.join(directory, "prompt.txt")
    with open(file, "w", encoding="utf-8") as f:
        f.write(TEXT)
    ids = shoal.ok("tokenize", model, TEXT, "--json").json["ids"]
    for name, result in (
        ("a file", shoal.ok("run", model, "--file", file, *flags)),
        ("standard input", shoal.ok("run", model, *flags, stdin=TEXT.encode())),
        ("-", shoal.ok("run", model, "-", *flags, stdin=TEXT.encode())),
        ("token ids", shoal.ok("run", model, "--ids", ",".join(map(str, ids)), *flags)),
    ):
        check(result.json["ids"] == expected, f"a prompt from {name} gives the same tokens")
    for flag, value in (("--threads", 1), ("--threads", 4), ("--cache-records", 4), ("--ctx", 64)):
        check(shoal.ok("run", model, TEXT, *flags, flag, value).json["ids"] == expected, f"{flag} {value} changes no token")
    shoal.refused(["run", model, TEXT, "--file", file], 2, "--file")


def sampling(shoal, model):
    def draw(*flags):
        return shoal.ok("run", model, TEXT, "--max-tokens", 16, "--ignore-eos", "--json", *flags).json["ids"]

    greedy = draw()
    warm = draw("--temperature", 1.2, "--seed", 7)
    check(warm == draw("--temperature", 1.2, "--seed", 7), "the same seed draws the same tokens")
    check(warm != draw("--temperature", 1.2, "--seed", 8), "another seed draws others")
    check(draw("--temperature", 1.5, "--top-k", 1) == greedy, "top-k 1 is greedy")
    check(draw("--temperature", 1.5, "--top-p", 0.000001) == greedy, "a tiny top-p is greedy")
    check(draw("--temperature", 1.5, "--min-p", 1) == greedy, "min-p 1 is greedy")
    check(draw("--repetition-penalty", 1.8) != greedy, "a repetition penalty changes the text")
    for flag, value in (("--temperature", -1), ("--top-p", 0), ("--min-p", 2), ("--top-k", -3), ("--max-tokens", "many")):
        shoal.refused(["run", model, TEXT, flag, value], 2, flag)


def stop_strings(shoal, model):
    whole = shoal.ok("run", model, TEXT, "--max-tokens", 40, "--json").json
    # Every stop string of three characters out of the text, wherever tokens end.
    for begin in range(5, 60, 11):
        stop = whole["text"][begin:begin + 3]
        result = shoal.ok("run", model, TEXT, "--max-tokens", 40, "--stop", stop, "--json").json
        expected = whole["text"][:whole["text"].find(stop)]
        check(result["text"] == expected and result["finish_reason"] == "stop", f"--stop {stop!r} ends the text before it",
              f"{result['text']!r} in place of {expected!r}")


def interrupt(shoal, model):
    args = [shoal.program, "run", model, TEXT, "--max-tokens", "1000000", "--ctx", "100000", "--ignore-eos"]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(20)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    check(process.returncode == 130, "Ctrl-C ends a run with 130", process.returncode)
    check(b"tokens/s" in error and b"cancelled" in error, "and prints the statistics", error)
    print(f"     (it took {time.monotonic() - begin:.2f} s)")


def chat(shoal, model, directory):
    state = os.path.join(directory, "chat.state")
    flags = ["chat", model, "--max-tokens", 10, "--json"]

    def answers(script):
        lines = shoal.ok(*flags, stdin=script.encode()).text.splitlines()
        return [json.loads(line) for line in lines if '"role"' in line]

    straight = answers("Hello\nHow are you?\n")
    check(len(straight) == 2, "two messages get two answers")
    saved = answers(f"Hello\n/save {state}\n/reset\nSomething else\n/load {state}\nHow are you?\n")
    check([a["text"] for a in (saved[0], saved[2])] == [a["text"] for a in straight],
          "a chat that was saved and loaded goes on as if nothing had happened")
    check(saved[2]["session_tokens"] == straight[1]["session_tokens"], "with as many tokens")
    later = answers(f"/load {state}\nHow are you?\n")
    check(later[0]["text"] == straight[1]["text"], "also in another process")
    reset = answers("Hello\n/reset\nHello\n")
    check(reset[0]["text"] == reset[1]["text"], "/reset forgets")
    stats = shoal.ok("chat", model, "--max-tokens", 3, stdin=b"Hello\n/stats\n")
    check("tokens" in stats.text + stats.error, "/stats prints statistics")


def tokens(shoal, model):
    rng = np.random.default_rng(5)
    for count in (1, 17, 300):
        raw = rng.integers(0, 256, count, dtype=np.uint8).tobytes()
        ids = shoal.ok("tokenize", model, "--json", stdin=raw).json["ids"]
        back = shoal.ok("detokenize", model, "--ids", ",".join(map(str, ids))).out
        check(back.rstrip(b"\n") == raw.rstrip(b"\n"), f"{count} random bytes survive tokenize and detokenize")
    plain = shoal.ok("tokenize", model, "<|im_end|>", "--json").json["ids"]
    special = shoal.ok("tokenize", model, "--special", "<|im_end|>", "--json").json["ids"]
    check(len(special) == 1 and len(plain) > 1 and special[0] not in plain, "names of control tokens are text unless --special")


def evaluation(shoal, model, directory):
    ids = shoal.ok("tokenize", model, TEXT, "--json").json["ids"]
    file = os.path.join(directory, "logits.npy")
    hidden = os.path.join(directory, "hidden")
    result = shoal.ok("eval", model, TEXT, "--json", "--next", 3, "--dump-logits", file, "--dump-hidden", hidden).json
    logits = np.load(file)
    check(logits.dtype == np.float32 and logits.shape == (len(ids), 4096), "--dump-logits writes float32 [positions, vocabulary]")
    wide = logits.astype(np.float64)
    log_p = wide - wide.max(1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(1, keepdims=True))
    nats = -np.mean([log_p[i, ids[i + 1]] for i in range(len(ids) - 1)])
    check(abs(nats - result["nats_per_token"]) < 1e-9, "nats a token follow from the dumped logits")
    check(abs(np.exp(nats) - result["perplexity"]) < 1e-6, "perplexity is their exponential")
    best = np.argsort(-logits[-1], kind="stable")[:3].tolist()
    check([t["id"] for t in result["next"]] == best, "--next lists the likeliest tokens")
    check(np.load(os.path.join(hidden, "hidden.0.npy")).shape == (len(ids), 192), "--dump-hidden writes the states of every layer")


def other_commands(shoal, model):
    plan = shoal.ok("plan", model, "--json").json
    check(sum(p["floor_bytes"] for p in plan["parts"]) == plan["floor_bytes"], "the plan's parts add up to the floor")
    check(shoal.ok("inspect", model, "--json").json["num_moe_layers"] == 7, "inspect describes the model")
    check(shoal.ok("inspect", model, "--verify", "--json").json["whole"], "inspect --verify finds the container whole")
    bench = shoal.ok("bench", model, "--prefill", 32, "--decode", 8, "--json").json
    check(bench["decode"]["tokens"] == 8 and bench["prefill"]["tokens"] == 32, "bench measures what was asked")
    run = shoal.ok("run", model, TEXT, "--max-tokens", 8, "--json").json
    check(run["expert_reads"] == run["expert_misses"] > 0, "run reads once a miss")
    check(sum(layer["expert_reads"] for layer in run["layers"]) == run["expert_reads"], "the layers' reads add up")


def main():
    program, node, model = sys.argv[1:]
    shoal = Shoal(program)
    help_and_version(shoal, node)
    with tempfile.TemporaryDirectory() as directory:
        sources_of_text(shoal, model, directory)
        chat(shoal, model, directory)
        evaluation(shoal, model, directory)
    sampling(shoal, model)
    stop_strings(shoal, model)
    interrupt(shoal, model)
    tokens(shoal, model)
    other_commands(shoal, model)
    finish()


if __name__ == "__main__":
    main()
