#!/usr/bin/env python3
"""Peers that mean harm: streams that are opened and left, cancelled and half sent, connections that break off anywhere, and readers that do
not read, against `shoal serve` and a node, while a well-behaved client goes on.

    hostile_test.py SHOAL SHOAL_NODE CONTAINER SOURCE_DIR
"""

import contextlib
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import grpc

from shoal_program import Program, Shoal, check, finish, wait

PROMPT = "Once upon a time there was a little girl who lived"
TOKENS = 24
STREAMS = 10_000
CONNECTIONS = 1_000
SLOW_READERS = 100
# Of one connection at a time, as docs/protocol.md says.
MOST_STREAMS = 100
# What a server may have grown by when all is over: what gRPC, malloc and the kernel's counts keep of the 256 connections that were open at
# a time. A leak of 1 KiB a stream or 10 a connection is beyond it.
KEPT_BYTES = 40 << 20

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def headers(stream, path, key=None):
    """The head of a call, no field of it compressed."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"), ("te", "trailers"),
              ("content-type", "application/grpc")]
    if key:
        fields.append(("authorization", f"Bearer {key}"))
    block = b"".join(b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in fields)
    return frame(HEADERS, END_HEADERS, stream, block)


def data(stream, message, flags=END_STREAM):
    return frame(DATA, flags, stream, b"\0" + struct.pack(">I", len(message)) + message)


class Wire:
    """An HTTP/2 connection whose every byte is ours."""

    def __init__(self, address, settings=b"", begin=True):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.next_stream = 1
        if begin:
            self.send(PREFACE + frame(SETTINGS, 0, 0, settings) + frame(SETTINGS, ACK, 0))

    def send(self, data):
        self.socket.sendall(data)

    def stream(self):
        self.next_stream += 2
        return self.next_stream - 2

    def synchronize(self):
        """Returns when the server has read all that was sent."""
        self.send(frame(PING, 0, 0, b"12345678"))
        while True:
            kind, flags, _ = self.receive()
            if kind == PING and flags & ACK:
                return

    def receive(self):
        head = self.exactly(9)
        length = int.from_bytes(head[:3], "big")
        return head[3], head[4], self.exactly(length)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def reset(self):
        """Ends it with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()


def threads(program):
    """Names of its threads, but those of gRPC's own pools, which grow to a few for each processor, for whatever work, and stay."""
    pools = ("default-executo", "grpc_global_tim", "event_engine", "timer_manager")
    names = []
    for task in os.scandir(f"/proc/{program.process.pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            names.append(open(f"{task.path}/comm").read().strip())
    return sorted(name for name in names if name not in pools)


class Good:
    """A client that asks again and again and expects the right tokens."""

    def __init__(self, test, key="good"):
        self.test, self.times, self.wrong, self.going = test, [], [], True
        self.channel = grpc.insecure_channel(test.serve.address)
        self.stub = test.stubs.InferenceStub(self.channel)
        self.metadata = (("authorization", f"Bearer {test.keys[key]}"),)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        request = self.test.api.GenerateRequest(text=PROMPT, options={"max_tokens": TOKENS, "ignore_end_of_text": True})
        while self.going:
            try:
                ids, last = [], None
                for event in self.stub.Generate(request, metadata=self.metadata, timeout=60):
                    if event.WhichOneof("kind") == "token":
                        ids.append(event.token.id)
                        now = time.monotonic()
                        if last is not None:
                            self.times.append(now - last)
                        last = now
                if ids != self.test.expected:
                    self.wrong.append(ids)
            except grpc.RpcError as error:
                self.wrong.append(str(error))

    def take_times(self):
        times, self.times = self.times, []
        return times

    def end(self):
        self.going = False
        self.thread.join()
        self.channel.close()


def p95(times):
    return sorted(times)[int(len(times) * 0.95)] if times else 0.0


class Hostile:
    def __init__(self, shoal, node_program, container, source, work, stack):
        self.shoal, self.container, self.work, self.stack = Shoal(shoal), container, work, stack
        stubs = os.path.join(work, "python")
        os.mkdir(stubs)
        subprocess.run(["protoc", "-I", os.path.join(source, "proto"), f"--python_out={stubs}", f"--grpc_python_out={stubs}",
                        f"--plugin=protoc-gen-grpc_python={shutil.which('grpc_python_plugin')}", "shoal/v1/inference.proto"], check=True)
        sys.path.insert(0, stubs)
        from shoal.v1 import inference_pb2, inference_pb2_grpc
        self.api, self.stubs = inference_pb2, inference_pb2_grpc
        keys = os.path.join(work, "keys.json")
        self.keys = {name: self.shoal.ok("keys", "add", name, "--keys", keys, "--json").json["key"] for name in ("good", "bad")}
        self.expected = self.shoal.ok("run", container, PROMPT, "--max-tokens", TOKENS, "--ignore-eos", "--json").json["ids"]
        self.node = self.start(node_program, container, "--listen", "127.0.0.1:0", "--no-measure", "--json")
        self.serve = self.start(shoal, "serve", container, "--nodes", self.node.address, "--pool-alone", "--listen", "127.0.0.1:0", "--sessions", 2,
                                "--keys", keys, "--json")
        self.random = random.Random(4)

    def start(self, *command):
        program = Program(*command)
        self.stack.callback(program.end)
        return program

    def generate(self, tokens=2000):
        return self.api.GenerateRequest(text=PROMPT, options={"max_tokens": tokens, "ignore_end_of_text": True}).SerializeToString()

    # Each does harm for a while and leaves nothing open on this side.

    def streams(self):
        """Ten thousand streams: left open, cancelled, half sent."""
        request = self.generate()
        targets = ((self.serve.address, "/shoal.v1.Inference/Generate", request, self.keys["bad"]),
                   (self.serve.address, "/grpc.health.v1.Health/Watch", b"", None),
                   (self.serve.address, "/shoal.v1.Inference/Tokenize", b"\x12\x05hello", self.keys["bad"]),
                   (self.node.address, "/shoal.v1.ExpertNode/Execute", b"\x22\x02\x08\x01", None),
                   (self.node.address, "/shoal.v1.ExpertNode/Describe", b"", None))
        ways = ("left", "cancelled", "half")
        for batch in range(STREAMS // MOST_STREAMS):
            address, path, message, key = targets[batch % len(targets)]
            wire = Wire(address)
            sent = b""
            for _ in range(MOST_STREAMS):
                stream, way = wire.stream(), self.random.choice(ways)
                sent += headers(stream, path, key)
                if way == "half":
                    sent += frame(DATA, 0, stream, b"\0\0\0\4\0" + b"x" * 100)  # 100 of 1024 bytes
                else:
                    sent += data(stream, message)
                if way == "cancelled":
                    sent += frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
            try:
                wire.send(sent)
                wire.synchronize()
            except (ConnectionError, socket.timeout) as error:
                check(False, "the server reads on", f"{path}: {error}")
            if batch % 2:
                wire.reset()
            else:
                wire.close()

    def connections(self):
        """A thousand connections that end anywhere; hundreds are open at a time."""
        call = headers(1, "/shoal.v1.Inference/Generate", self.keys["bad"]) + data(1, self.generate())
        beginning = PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0)
        hello = bytes.fromhex("16030100c8010000c40303") + self.random.randbytes(100)  # TLS, and then nothing
        sent = (b"", self.random.randbytes(2000), PREFACE[:11], beginning + call[:7], beginning + call[:40], hello, beginning + call,
                beginning + frame(HEADERS, END_HEADERS, 1, self.random.randbytes(300)), beginning + b"\xff\xff\xff" + self.random.randbytes(100),
                b"GET /metrics HTTP/1.1\r\n\r\n")
        open_now = []
        for i in range(CONNECTIONS):
            wire = Wire(self.random.choice((self.serve, self.node)).address, begin=False)
            with contextlib.suppress(OSError):  # it may be closed already
                wire.send(sent[i % len(sent)])
            open_now.append(wire)
            if len(open_now) > 300:
                self.end_one(open_now)
            time.sleep(self.random.uniform(0, 0.012))  # it is their number that harms, not our share of the processor
        while open_now:
            self.end_one(open_now)

    def end_one(self, open_now):
        wire = open_now.pop(self.random.randrange(len(open_now)))
        if self.random.random() < 0.5:
            wire.reset()
        else:
            wire.close()

    def slow_readers(self):
        """A hundred that ask and never read."""
        bad = self.keys["bad"]
        asked = ((self.serve, "/shoal.v1.Inference/Generate", self.generate(), bad),
                 (self.serve, "/shoal.v1.Inference/Tokenize", b"\x12\x64" + b"a b " * 25, bad),
                 (self.serve, "/grpc.health.v1.Health/Watch", b"", None),
                 (self.node, "/shoal.v1.ExpertNode/Describe", b"", None))
        wires = []
        for i in range(SLOW_READERS):
            program, path, message, key = asked[i % len(asked)]
            wire = Wire(program.address, struct.pack(">HI", 4, 2))  # a window of two bytes
            wire.send(headers(1, path, key) + data(1, message))
            wires.append(wire)
        wait(lambda: self.model().load.running == 2 or not self.good.going)
        self.good.take_times()
        wait(lambda: len(self.good.times) >= 10 * TOKENS)
        for wire in wires:
            wire.close()

    def model(self):
        return self.good.stub.GetModel(self.api.GetModelRequest(), metadata=self.good.metadata, timeout=60)

    def run(self):
        self.good = Good(self)
        try:
            wait(lambda: len(self.good.times) >= 2 * TOKENS)  # all is warm
            self.good.take_times()
            wait(lambda: len(self.good.times) >= 10 * TOKENS)
            quiet = p95(self.good.take_times())
            other = Good(self, "bad")  # a session's turns are anybody's
            wait(lambda: len(other.times) >= TOKENS)
            self.good.take_times()
            wait(lambda: len(self.good.times) >= 10 * TOKENS)
            shared = p95(self.good.take_times())
            other.end()
            programs = {"serve": self.serve, "node": self.node}
            before = {name: (p.descriptors(), threads(p), p.resident_bytes()) for name, p in programs.items()}
            ratios = []
            for harm in (self.streams, self.connections, self.slow_readers):
                began = time.monotonic()
                harm()
                times = self.good.take_times()
                ratios.append(f"{harm.__name__} {p95(times) / quiet:.2f} and {p95(times) / shared:.2f} ({len(times)} tokens)")
                highest = {name: p.resident_bytes() - before[name][2] for name, p in programs.items()}
                print(f"{harm.__name__}: {time.monotonic() - began:.1f} s; grown by " +
                      ", ".join(f"{name} {grown / 2 ** 20:.1f} MiB" for name, grown in highest.items()), flush=True)
            print(f"p95 from token to token, times that of the quiet server ({1000 * quiet:.1f} ms), and of one with another well-behaved client "
                  f"({1000 * shared:.1f} ms): {', '.join(ratios)}", flush=True)
        finally:
            self.good.end()
        check(not self.good.wrong, "the well-behaved client got the right tokens throughout", str(self.good.wrong[:3]))
        for name, program in programs.items():
            descriptors, before_threads, resident = before[name]
            check(program.process.poll() is None, f"{name} is alive", program.log)
            # One less than before, where the good client's own connection is counted.
            check(wait(lambda p=program, d=descriptors: p.descriptors() <= d), f"{name}: descriptors are back", f"{descriptors}, now {program.descriptors()}")
            check(wait(lambda p=program, t=before_threads: threads(p) == t), f"{name}: threads are back", f"{before_threads}, now {threads(program)}")
            check(program.resident_bytes() - resident < KEPT_BYTES, f"{name}: memory is back", f"{resident}, now {program.resident_bytes()}")
        self.no_work_is_left()

    def no_work_is_left(self):
        after = Good(self)
        self.good = after
        wait(lambda: len(after.times) >= TOKENS)
        after.end()
        channel = grpc.insecure_channel(self.serve.address)
        stub = self.stubs.InferenceStub(channel)
        metadata = (("authorization", f"Bearer {self.keys['good']}"),)

        def model():
            return stub.GetModel(self.api.GetModelRequest(), metadata=metadata, timeout=60)

        check(wait(lambda: (model().load.running, model().load.waiting) == (0, 0)), "no call is left", str(model().load))
        made = model().work.generated_tokens
        time.sleep(0.3)  # any work would go on meanwhile
        check(model().work.generated_tokens == made, "and no token is made", str(model().work))
        check(not after.wrong, "who comes after gets the right tokens", str(after.wrong[:3]))
        channel.close()


def main():
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
        Hostile(*sys.argv[1:], work, stack).run()
    finish()


if __name__ == "__main__":
    main()
