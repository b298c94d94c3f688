#!/usr/bin/env python3
"""The commands of `shoal` as a user gives them, on the bundled model.

    cli_test.py SHOAL SHOAL_NODE CONTAINER
"""

import json
import os
import pty
import signal
import subprocess
import sys
import tempfile

import numpy as np
from shoal_program import Program, Shoal, check, finish

COMMANDS = ("convert", "plan", "run", "chat", "eval", "tokenize", "detokenize", "inspect", "shard", "synth", "bench",
            "bench link", "version")
TEXT = "Once upon a time there was a king"
CHECKPOINT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/tiny-kimi-linear")


def help_and_version(shoal, node):
    overview = shoal.ok("--help").text
    for command in COMMANDS:
        text = shoal.ok(*command.split(), "--help").text
        check(text == shoal.ok("help", *command.split()).text, f"help {command} is the same")
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


def cpus(shoal, node_program, model):
    allowed = sorted(os.sched_getaffinity(0))
    one = str(allowed[-1])
    result = shoal.ok("run", model, TEXT, "--max-tokens", 4, "--json", "--cpus", one).json
    check(result["cpus"] == one and result["num_threads"] == 1, "--cpus keeps the program where it says", str(result["cpus"]))
    check(result["ids"] == shoal.ok("run", model, TEXT, "--max-tokens", 4, "--json").json["ids"], "and the tokens are the same")
    shoal.refused(["run", model, TEXT, "--cpus", "1023"], 2, "CPU 1023 is not there")
    shoal.refused(["run", model, TEXT, "--cpus", "0-x"], 2, '"0-x" is no CPU')
    shoal.refused(["run", model, TEXT, "--cpus", one, "--threads", 2], 2, f"--threads 2 with --cpus {one}")
    node = subprocess.run([node_program, model, "--cpus", "1023"], capture_output=True, text=True)
    check(node.returncode == 2 and "CPU 1023 is not there" in node.stderr, "a node refuses a CPU that is not there", node.stderr)


def profile(shoal, node_program, model, directory):
    kept = os.path.join(directory, "profile")

    def run(*flags):
        result = shoal.ok("run", model, TEXT, "--max-tokens", 4, "--json", *flags).json
        return result["ids"], result["thread_profile"]

    plain, usual = run("--profile", "none")
    check(usual["expert_splits_origin"] == usual["least_parallel_multiply_adds_origin"] == "usual", "--profile none measures nothing", str(usual))
    ids, first = run("--profile", kept)
    origins = ("expert_splits_origin", "least_parallel_multiply_adds_origin")
    check(all(first[origin] == "measured" for origin in origins), "the first start measures how work is best shared out", str(first))
    files = sorted(os.listdir(kept))
    check([name.rsplit("-", 1)[0] for name in files] == ["expert-splits", "trunk-loops"], "and keeps it", str(files))
    again, second = run("--profile", kept)
    check(all(second[origin].startswith(f"kept in {kept}/") for origin in origins), "the next start takes it from there", str(second))
    values = ("expert_splits", "least_parallel_multiply_adds")
    check(all(first[value] == second[value] for value in values), "with the same values", f"{first} {second}")
    check(plain == ids == again, "the tokens are the same")
    with open(os.path.join(kept, files[0]), "w") as file:
        file.write('{"format": "shoal-profile", "version": 9}')
    ids, anew = run("--profile", kept)
    check(anew["expert_splits_origin"].startswith(f"measured; {kept}/{files[0]}") and "9" in anew["expert_splits_origin"],
          "a file of another version is named and measured anew", str(anew))
    blocked = os.path.join(kept, files[0], "under-a-file")
    ids, unkept = run("--profile", blocked)
    check(ids == plain and unkept["expert_splits_origin"].startswith("measured; ") and "not kept: create" in unkept["expert_splits_origin"],
          "where nothing can be kept the model runs all the same, and says so", str(unkept))
    node = Program(node_program, model, "--listen", "127.0.0.1:0", "--json", "--profile", os.path.join(directory, "of-node"))
    try:
        said = node.said
        check(said["expert_splits_origin"] == "measured" and said["expert_splits"][0]["rows"] == 1 and said["num_threads"] > 0 and said["cpus"],
              "a node says the same of itself", str(said))
        check(f"computes on {said['num_threads']} threads, CPUs {said['cpus']}; experts by " in node.log, "and in its log", node.log)
    finally:
        node.process.kill()
        node.process.wait()


def stop_strings(shoal, model):
    whole = shoal.ok("run", model, TEXT, "--max-tokens", 40, "--json").json
    # Every stop string of three characters out of the text, wherever tokens end.
    for begin in range(5, 60, 11):
        stop = whole["text"][begin:begin + 3]
        result = shoal.ok("run", model, TEXT, "--max-tokens", 40, "--stop", stop, "--json").json
        expected = whole["text"][:whole["text"].find(stop)]
        check(result["text"] == expected and result["finish_reason"] == "stop", f"--stop {stop!r} ends the text before it",
              f"{result['text']!r} in place of {expected!r}")


def progress_of_a_long_prompt(shoal, model):
    ids = ",".join(str(i * 37 % 3840) for i in range(1200))  # three chunks
    args = [shoal.program, "run", model, "--ids", ids, "--max-tokens", "1", "--threads", "2"]
    terminal, standard_error = pty.openpty()
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=standard_error)
    os.close(standard_error)
    text = process.communicate(timeout=120)[0]
    shown = os.read(terminal, 65536).decode(errors="replace")
    os.close(terminal)
    check("\rprompt  512 of 1200 tokens" in shown and "\r\x1b[K" in shown, "a terminal shows how far a long prompt is", repr(shown))
    done = subprocess.run(args, capture_output=True)
    check(b"of 1200 tokens" not in done.stderr and done.stdout == text, "a file does not", done.stderr)


def interrupts(shoal, model, directory):
    """Ctrl-C of every command that works for long: exit code 130, and what was done until then."""
    long = ["--ctx", "100000"]
    endless = [*long, "--max-tokens", "1000000", "--ignore-eos"]

    def printed(process):
        return process.stdout.peek(1)

    def field(process, file, name, base):
        try:
            with open(f"/proc/{process.pid}/{file}", encoding="ascii") as f:
                return int(next(line for line in f if line.startswith(name)).split()[1], base)
        except (OSError, StopIteration):  # it has ended
            return 0

    def catches(process):
        """True once Ctrl-C is a request to stop: when the model is open."""
        return field(process, "status", "SigCgt", 16) & (1 << (signal.SIGINT - 1))

    def after_reads(count):
        """True once so many reads were made since then: of experts."""
        first = []

        def ready(process):
            if not first and catches(process):
                first.append(field(process, "io", "syscr", 10))
            return first and field(process, "io", "syscr", 10) >= first[0] + count

        return ready

    result = shoal.interrupted(["run", model, TEXT, *endless], printed)
    check(result.status == 130, "Ctrl-C ends a run with 130", result.status)
    check("tokens/s" in result.error and "cancelled" in result.error, "and prints the statistics", result.error)

    many = ",".join(str(i * 37 % 3840) for i in range(20000))
    logits = os.path.join(directory, "interrupted.npy")
    args = ["eval", model, "--ids", many, *long, "--cache-records", "4", "--dump-logits", logits]
    result = shoal.interrupted([*args, "--json"], after_reads(100))
    check(result.status == 130, "Ctrl-C ends eval with 130", result.status)
    json_ok = result.out and result.json.get("interrupted") is True
    check(json_ok and result.json["tokens"] < 20000 and result.json["expert_reads"] > 0 and result.json["eval_ms"] > 0,
          "and eval prints what was done", result.text + result.error)
    result = shoal.interrupted(args, after_reads(100))
    check(result.status == 130 and " of 20000 tokens in " in result.error and "reads" in result.error, "also as text", result.error)
    check(not [name for name in os.listdir(directory) if "interrupted.npy" in name], "and leaves no half file", os.listdir(directory))

    for label, reads, args in (("prefill", 100, ["--prefill", 90000, "--decode", 1]), ("decode", 500, ["--prefill", 1, "--decode", 90000])):
        result = shoal.interrupted(["bench", model, "--cache-records", 4, *args, "--json"], after_reads(reads))
        check(result.status == 130 and result.out and result.json.get("interrupted") is True, f"Ctrl-C ends the {label} of bench with 130",
              f"{result.status} {result.text} {result.error}")
        done = {phase: result.json[phase]["tokens"] for phase in ("prefill", "decode")}
        check(sum(done.values()) < 90001 and (label == "prefill" or done["decode"] > 0), "with what it has measured", result.text)

    result = shoal.interrupted(["chat", model, *endless], printed, stdin=b"Hello\nHow are you?\n")
    check(result.status == 130, "Ctrl-C ends the chat of a script with 130", result.status)
    check("cancelled" in result.error and "tokens of context used" in result.error, "and prints the statistics", result.error)
    result = shoal.interrupted(["chat", model, "--json"], catches)
    check(result.status == 130 and result.out and result.json.get("interrupted") is True and result.json["session_tokens"] == 0,
          "so does one that waits for a message", f"{result.status} {result.text} {result.error}")

    target = os.path.join(directory, "converted")
    result = shoal.interrupted(["convert", CHECKPOINT, target, "--experts", "rvq3", "--json"], lambda _: os.path.exists(target + ".partial"))
    check(result.status == 130 and target + ".partial" in result.error, "Ctrl-C of convert says where to go on",
          f"{result.status} {result.error}")
    check(not os.path.exists(target), "and no container appears")
    check(shoal.ok("convert", CHECKPOINT, target, "--experts", "rvq3", "--json").json["identity"] == shoal.ok("inspect", model, "--json").json["identity"],
          "the same command goes on to the container that an undisturbed run makes")

    weights = os.path.join(directory, "weights")
    result = shoal.interrupted(["inspect", model, "--dequantize", weights], catches)
    check((result.status == 130 and " done; " in result.error and not os.path.exists(weights)) or result.status == 0,
          "Ctrl-C of inspect --dequantize says how far it came", f"{result.status} {result.error}")
    result = shoal.interrupted(["inspect", model, "--verify"], catches)
    check((result.status == 130 and " done; " in result.error) or result.status == 0, "so does --verify",
          f"{result.status} {result.error}")


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
    out = shoal.ok("chat", model, "--max-tokens", 3, "--ignore-eos", "--ctx", 200, "--json", stdin=b"Hello\n/stats\n").text.splitlines()
    answer, stats = map(json.loads, out)
    check(stats["session_tokens"] == answer["session_tokens"] == answer["prompt_tokens"] + 3, "/stats counts the session's tokens", out)
    check(stats["context_tokens"] == 200 and stats["num_threads"] >= 1 and stats["budget_bytes"] > 0, "and says what the model runs with")
    counters = ("expert_hits", "expert_misses", "expert_reads", "expert_bytes")
    check(all(stats[c] == answer[c] for c in counters) and stats["expert_reads"] > 0, "its counters are those of the only answer", out)
    words = shoal.ok("chat", model, "--max-tokens", 3, "--ignore-eos", "--ctx", 200, stdin=b"Hello\n/stats\n").error
    check(f"{stats['session_tokens']} of 200 tokens of context used; " in words and " experts from the cache, " in words,
          "for people too", words)


def tokens(shoal, model):
    rng = np.random.default_rng(5)
    for count in (1, 17, 300):
        raw = rng.integers(0, 256, count, dtype=np.uint8).tobytes()
        ids = shoal.ok("tokenize", model, "--json", stdin=raw).json["ids"]
        back = shoal.ok("detokenize", model, "--ids", ",".join(map(str, ids))).out
        check(back.rstrip(b"\n") == raw.rstrip(b"\n"), f"{count} random bytes survive tokenize and detokenize")
    ids = shoal.ok("tokenize", model, "--json", stdin=b"a\xff\xe4\xbdb").json["ids"]
    text = shoal.ok("detokenize", model, "--ids", ",".join(map(str, ids)), "--json").json["text"]
    check(text == "a\ufffd\ufffdb", "detokenize --json has U+FFFD for what is not UTF-8", repr(text))
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
        interrupts(shoal, model, directory)
        profile(shoal, node, model, directory)
    sampling(shoal, model)
    cpus(shoal, node, model)
    stop_strings(shoal, model)
    progress_of_a_long_prompt(shoal, model)
    tokens(shoal, model)
    other_commands(shoal, model)
    finish()


if __name__ == "__main__":
    main()
