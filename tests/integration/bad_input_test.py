#!/usr/bin/env python3
"""Hostile and broken input through the programs: every case ends with an error that names the file and what is wrong with it, and
never with a crash.

    bad_input_test.py SHOAL CHECKPOINT CONTAINER
"""

import json
import os
import shutil
import struct
import sys
import tempfile

from shoal_program import Shoal, check, finish, limit_files


class Sandbox:
    """Copies of the checkpoint and the container that a case may break; large files are linked."""

    def __init__(self, shoal, checkpoint, container):
        self.shoal, self.checkpoint, self.container = shoal, checkpoint, container

    def convert(self, label, change, status, *words):
        with tempfile.TemporaryDirectory() as directory:
            source = os.path.join(directory, "checkpoint")
            shutil.copytree(self.checkpoint, source)
            change(source)
            target = os.path.join(directory, "target")
            print(f"--- {label}")
            self.shoal.refused(["convert", source, target, "--experts", "f32", "--trunk", "f32"], status, *words)
            check(not os.path.exists(target), "and no container appears")

    def broken_container(self, label, change, status, *words, command=("run", "--ids", "1,2", "--max-tokens", "2")):
        with tempfile.TemporaryDirectory() as directory:
            model = os.path.join(directory, "model")
            shutil.copytree(self.container, model)
            change(model)
            print(f"--- {label}")
            self.shoal.refused([command[0], model, *command[1:]], status, *words)


def edit_config(**fields):
    def change(source):
        path = os.path.join(source, "config.json")
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        config.update(fields)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)

    return change


def edit_header(edit):
    """Changes the safetensors header's JSON; the data stays where it is."""

    def change(source):
        path = os.path.join(source, "model.safetensors")
        with open(path, "rb") as f:
            (length,) = struct.unpack("<Q", f.read(8))
            header = json.loads(f.read(length))
            data = f.read()
        edit(header)
        text = json.dumps(header).encode()
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + data)

    return change


def edit_bytes(name, edit):
    def change(source):
        path = os.path.join(source, name)
        with open(path, "rb") as f:
            data = bytearray(f.read())
        with open(path, "wb") as f:
            f.write(edit(data))

    return change


def checkpoints(sandbox):
    norm = "model.norm.weight"
    sandbox.convert("truncated safetensors", edit_bytes("model.safetensors", lambda d: d[:-1000]), 4, "model.safetensors")
    sandbox.convert("safetensors of three bytes", edit_bytes("model.safetensors", lambda d: d[:3]), 4, "model.safetensors")
    sandbox.convert("header length larger than the file",
                    edit_bytes("model.safetensors", lambda d: struct.pack("<Q", 1 << 60) + d[8:]), 4, "model.safetensors", "header")

    def overlap(header):
        names = [n for n in header if n != "__metadata__"]
        header[names[1]]["data_offsets"] = header[names[0]]["data_offsets"]
        header[names[1]]["shape"] = header[names[0]]["shape"]

    sandbox.convert("overlapping tensors", edit_header(overlap), 4, "model.safetensors", "inside the one before it")
    sandbox.convert("shape that overflows", edit_header(lambda h: h[norm].update(shape=[1 << 40, 1 << 40])), 1, norm, "overflow")
    sandbox.convert("wrong shape", edit_header(lambda h: h[norm].update(shape=[2, 96])), 1, norm, "[192]")
    sandbox.convert("missing tensor", edit_header(lambda h: h.update({"model.other.weight": h.pop(norm)})), 1, norm)
    sandbox.convert("dtype that is not read", edit_header(lambda h: h[norm].update(dtype="I16")), 1, norm, "I16")

    def nan(data):
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        begin = 8 + length + header[norm]["data_offsets"][0]
        data[begin + 6:begin + 8] = b"\xc0\x7f"  # the fourth bfloat16
        return data

    sandbox.convert("a weight that is NaN", edit_bytes("model.safetensors", nan), 1, norm, "element 3")
    sandbox.convert("unknown model type", edit_config(model_type="llama"), 1, "config.json", "model_type", "llama")
    for field, value in (("hidden_size", 0), ("hidden_size", -192), ("num_hidden_layers", 1 << 40), ("num_experts", 10**18),
                         ("vocab_size", 0), ("moe_intermediate_size", -1), ("num_experts_per_token", 33), ("rms_norm_eps", -1),
                         ("kv_lora_rank", 1 << 50), ("hidden_size", "many")):
        sandbox.convert(f"{field} {value}", edit_config(**{field: value}), 1, "config.json", field)
    sandbox.convert("config.json that is no JSON", edit_bytes("config.json", lambda d: d[:20]), 1, "config.json")
    sandbox.convert("no config.json", lambda s: os.remove(os.path.join(s, "config.json")), 1, "config.json")
    sandbox.convert("no weights", lambda s: os.remove(os.path.join(s, "model.safetensors")), 1, "safetensors")
    lines = "tiktoken.model"
    sandbox.convert("rank file without a byte", edit_bytes(lines, lambda d: d[d.index(b"\n") + 1:]), 1, lines)
    sandbox.convert("rank file with a rank twice",
                    edit_bytes(lines, lambda d: d.replace(b" 300\n", b" 301\n", 1)), 1, lines, "301")


def containers(sandbox):
    files = sorted(os.path.relpath(os.path.join(folder, name), sandbox.container)
                   for folder, _, names in os.walk(sandbox.container) for name in names)
    verify = ("inspect", "--verify")
    for name in files:
        def flip(data):
            data[len(data) // 2] ^= 1
            return data

        sandbox.broken_container(f"flipped byte in {name}", edit_bytes(name, flip), 4, name if name != "SHA256SUMS" else "SHA256",
                                 command=verify)
        sandbox.broken_container(f"{name} is missing", lambda m, n=name: os.remove(os.path.join(m, n)),
                                 1, name, "convert", command=("run", "--ids", "1"))
    bank = "experts/layer-00003.bank"
    sandbox.broken_container("truncated bank", edit_bytes(bank, lambda d: d[:-4096]), 4, bank)
    sandbox.broken_container("bank damaged where run reads it", edit_bytes(bank, lambda d: bytes(len(d))), 4, bank, "layer 3", "unit 0")
    sandbox.broken_container("truncated trunk", edit_bytes("trunk.bin", lambda d: d[:-64]), 4, "trunk.bin")
    sandbox.broken_container("an extra file", lambda m: open(os.path.join(m, "extra.bin"), "w").close(), 4, "extra.bin", command=verify)


def manifest_of_another_version(sandbox):
    """The digests are made right again, so that the version is what is refused."""
    import hashlib

    def change(model):
        path = os.path.join(model, "manifest.json")
        with open(path, encoding="utf-8") as f:
            manifest = json.load(f)
        field = next(k for k in manifest if "version" in k)
        manifest[field] = 99
        text = json.dumps(manifest)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        sums = os.path.join(model, "SHA256SUMS")
        with open(sums, encoding="utf-8") as f:
            lines = f.read().splitlines()
        digest = hashlib.sha256(text.encode()).hexdigest()
        with open(sums, "w", encoding="utf-8") as f:
            f.writelines((f"{digest}  manifest.json" if line.endswith("  manifest.json") else line) + "\n" for line in lines)

    sandbox.broken_container("manifest of version 99", change, 1, "manifest.json", "99")


def requests(sandbox):
    shoal, model = sandbox.shoal, sandbox.container
    shoal.refused(["run", model, "--ids", "4096"], 1, "4096", "0 to 4095")
    shoal.refused(["run", model, "--ids", "1,x"], 2, "'x'")
    shoal.refused(["run", model, "--ids", "1,2,3,4,5", "--ctx", "4"], 1, "5 tokens", "--ctx")
    shoal.refused(["run", model, "--ids", "1", "--budget", "1MiB"], 3, "expert_cache", "--budget")
    shoal.refused(["run", model, "--ids", "1", "--budget", "1Mib"], 2, "--budget")
    for command in (["run", model, "--ids", "1"], ["plan", model], ["eval", model, "x"], ["bench", model], ["chat", model]):
        shoal.refused([*command, "--ctx", "100000000", "--budget", "1MiB"], 3, "floor")
    check("is cut to" in shoal.ok("plan", model, "--ctx", "100000000", "--budget", "64GiB").error, "plan cuts --ctx as run does")
    shoal.refused(["run", model, "--ctx", "16"], 1, "more than the 16 tokens", "--ctx", stdin=b"king " * 100)
    shoal.refused(["run", model, "--", "-text", "--max-tokens", "2"], 2, "'--max-tokens'", "before --")
    empty = shoal.refused(["eval", model, "", "--window", "8", "--dump-logits", "/nowhere/x.npy"], 2, "empty")
    check("/nowhere" not in empty.error, "an empty text is refused before a file is made")
    both = shoal.refused(["tokenize", model, "x", "--file", "y"], 2, "--file")
    check("--ids" not in both.error, "tokenize does not offer --ids, which it does not take")
    shoal.refused(["run", model, "--file", "/nowhere/prompt.txt"], 1, "/nowhere/prompt.txt")
    shoal.refused(["run", "/nowhere", "x"], 1, "/nowhere", "shoal convert")
    shoal.refused(["detokenize", model, "--ids", "5000"], 1, "5000")
    shoal.refused(["eval", model, "a b c", "--dump-logits", "/nowhere/x.npy"], 1, "/nowhere/x.npy")
    shoal.refused(["inspect", model, "--dequantize", model], 1, model)


def full_disk(sandbox):
    """A limit on the size of files in place of a disk without room: every write beyond it fails."""
    shoal, model = sandbox.shoal, sandbox.container
    with tempfile.TemporaryDirectory() as directory:
        print("--- full disk")
        limit = limit_files(20000)
        out = os.path.join(directory, "out")
        shoal.refused(["convert", sandbox.checkpoint, out, "--experts", "f32", "--trunk", "f32"], 1, "File too large", "out.partial",
                      before=limit)
        check(not os.path.exists(out), "and no container appears")
        shutil.rmtree(out + ".partial")

        logits = os.path.join(directory, "logits.npy")
        shoal.refused(["eval", model, "a b c d e f", "--dump-logits", logits], 1, "logits.npy", "File too large", before=limit)
        hidden = os.path.join(directory, "hidden")
        shoal.refused(["eval", model, "--ids", ",".join(["1"] * 60), "--dump-hidden", hidden], 1, "hidden/", "File too large",
                      before=limit)
        check(not os.listdir(hidden), "no half array is left", os.listdir(hidden))
        state = os.path.join(directory, "chat.state")
        shoal.refused(["chat", model, "--max-tokens", 3], 1, "chat.state", "File too large", stdin=f"Hello\n/save {state}\n".encode(),
                      before=limit)
        checkpoint = os.path.join(directory, "checkpoint")
        shoal.refused(["inspect", model, "--dequantize", checkpoint], 1, "File too large", before=limit)
        os.rmdir(hidden)
        check(not os.listdir(directory), "nothing half written is left", os.listdir(directory))


def main():
    program, checkpoint, container = sys.argv[1:]
    sandbox = Sandbox(Shoal(program), checkpoint, container)
    checkpoints(sandbox)
    containers(sandbox)
    manifest_of_another_version(sandbox)
    requests(sandbox)
    full_disk(sandbox)
    finish()


if __name__ == "__main__":
    main()
