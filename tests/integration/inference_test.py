#!/usr/bin/env python3
"""The client API of `shoal serve` from Python, against real processes, with nodes and without.

    inference_test.py SHOAL SHOAL_NODE CONTAINER SOURCE_DIR
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import grpc

from shoal_program import Program, Shoal, check, finish

PROMPT = "Once upon a time there was a little girl who lived"
CONTEXT = 2048
FILES = ["shoal/v1/inference.proto", "google/rpc/status.proto", "google/rpc/error_details.proto"]


class Call:
    """A stream of events."""

    def __init__(self, stream):
        self.stream = stream
        self.ids, self.text, self.done, self.error, self.kinds = [], "", None, None, []

    @property
    def number(self):
        """What the server's log calls it."""
        return dict(self.stream.initial_metadata()).get("shoal-call", "")

    def next(self):
        """The next event's kind; None at the end."""
        try:
            event = next(self.stream)
        except StopIteration:
            return None
        except grpc.RpcError as error:
            self.error = error
            return None
        kind = event.WhichOneof("kind")
        self.kinds.append(kind)
        if kind == "token":
            self.ids.append(event.token.id)
            self.text += event.token.text
        elif kind == "finished":
            self.done = event.finished
        return kind

    def begin(self):
        while self.next() != "token":
            if self.error or self.done:
                raise RuntimeError(f"no token: {self.error}")
        return self

    def finish(self):
        while self.next():
            pass
        return self

    def cancel(self):
        self.stream.cancel()
        return self.finish()


class Server:
    """`shoal serve` and a client of it."""

    def __init__(self, test, container, *flags, before=()):
        self.api = test.api
        self.program = Program(*before, test.shoal.program, "serve", container, "--listen", "127.0.0.1:0", "--ctx", CONTEXT, "--json", *flags)
        test.stack.callback(self.program.end)
        self.channel = grpc.insecure_channel(self.program.address)
        test.stack.callback(self.channel.close)
        self.stub = test.stubs.InferenceStub(self.channel)

    def generate(self, text=PROMPT, timeout=60, **options):
        options.setdefault("max_tokens", 40)
        return Call(self.stub.Generate(self.api.GenerateRequest(text=text, options=options), timeout=timeout))

    def endless(self, **more):
        return self.generate(max_tokens=CONTEXT, ignore_end_of_text=True, **more)

    def model(self):
        return self.stub.GetModel(self.api.GetModelRequest(), timeout=60)

    def wait_for_load(self, running, waiting):
        deadline = time.monotonic() + 60
        while True:
            load = self.model().load
            if (load.running, load.waiting) == (running, waiting):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"the load is {load}, not {running} and {waiting}")
            time.sleep(0.005)

    def health(self, name):
        """A Watch: statuses as they come, 1 SERVING, 2 NOT_SERVING."""
        watch = self.channel.unary_stream("/grpc.health.v1.Health/Watch")
        for reply in watch(b"\x0a" + bytes([len(name)]) + name.encode(), timeout=60):
            yield reply[1] if reply else 0


class Test:
    def __init__(self, shoal, node_program, container, source, work, stack):
        self.shoal, self.node_program, self.container, self.source, self.work, self.stack = Shoal(shoal), node_program, container, source, work, stack
        self.stub_path = os.path.join(work, "python")
        os.mkdir(self.stub_path)
        subprocess.run(["protoc", "-I", os.path.join(source, "proto"), f"--python_out={self.stub_path}", f"--grpc_python_out={self.stub_path}",
                        f"--plugin=protoc-gen-grpc_python={shutil.which('grpc_python_plugin')}", *FILES], check=True)
        sys.path.insert(0, self.stub_path)
        from google.rpc import error_details_pb2, status_pb2
        from shoal.v1 import inference_pb2, inference_pb2_grpc
        self.api, self.stubs, self.status, self.error_details = inference_pb2, inference_pb2_grpc, status_pb2, error_details_pb2

    def run(self, *args):
        return self.shoal.ok("run", self.container, *args, "--ctx", CONTEXT, "--json").json

    def details(self, error):
        found = {}
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                for detail in self.status.Status.FromString(value).details:
                    for kind in ("ErrorInfo", "BadRequest", "RetryInfo"):
                        message = getattr(self.error_details, kind)()
                        if detail.Unpack(message):
                            found[kind] = message
        return found

    def check_error(self, what, error, code, reason, field=None):
        """Code, reason and field of an error; its details."""
        if error is None:
            check(False, what, "no error")
            return {}
        details = self.details(error)
        said = details["ErrorInfo"].reason if "ErrorInfo" in details else None
        named = details["BadRequest"].field_violations[0].field if "BadRequest" in details else None
        check((error.code(), said, named) == (code, reason, field), what, f"{error.code()}, {said}, {named}: {error.details()}")
        check(reason is None or details["ErrorInfo"].domain == "shoal", f"{what}: the domain")
        check(self.work not in error.details() and self.container not in error.details(), f"{what}: names no path", error.details())
        return details

    def refused(self, what, call, code, reason, field=None):
        error = None
        try:
            list(call)
        except grpc.RpcError as refusal:
            error = refusal
        return self.check_error(what, error, code, reason, field)


def answers(test, server):
    """The streams of a server that nobody else uses."""
    expected = test.run(PROMPT, "--max-tokens", 40)
    call = server.generate().finish()
    check(call.ids == expected["ids"] and call.text == expected["text"], "the text and ids of `shoal run`", call.text)
    check(call.kinds[0] == "prefill" and call.kinds[-1] == "finished", "progress first, the end last", str(call.kinds))
    check((call.done.prompt_tokens, call.done.generated_tokens) == (expected["prompt_tokens"], 40), "the usage", str(call.done))
    check(test.api.FinishReason.Name(call.done.reason) == "FINISH_REASON_LENGTH", "the reason of the end")
    times = call.done.times
    check(0 < times.prefill_ns < times.first_token_ns and times.decode_ns > 0, "times", str(times))
    sampled = server.generate(temperature=0.8, top_p=0.95, top_k=50, seed=7).finish()
    expected = test.run(PROMPT, "--max-tokens", 40, "--temperature", 0.8, "--top-p", 0.95, "--top-k", 50, "--seed", 7)
    check(sampled.ids == expected["ids"], "the drawn ids of `shoal run` with the same seed")
    expected = test.run("Tell me <|im_end|> a story", "--chat", "--max-tokens", 30)
    message = test.api.ChatMessage(role=test.api.CHAT_ROLE_USER, content="Tell me <|im_end|> a story")
    chat = Call(server.stub.Chat(test.api.ChatRequest(messages=[message], options={"max_tokens": 30}))).finish()
    # `shoal run --chat` goes on after the end of the message, where the model says one.
    check(chat.ids == expected["ids"][:len(chat.ids)] and chat.done.prompt_tokens == expected["prompt_tokens"], "the answer of `shoal run --chat`", str(chat.ids))
    ids = server.stub.Tokenize(test.api.TokenizeRequest(text=PROMPT)).ids
    check(list(ids) == test.shoal.ok("tokenize", test.container, PROMPT, "--json").json["ids"], "the ids of `shoal tokenize`")
    by_ids = Call(server.stub.Generate(test.api.GenerateRequest(token_ids={"ids": ids}, options={"max_tokens": 5}))).finish()
    check(by_ids.ids == call.ids[:5], "a prompt of ids")
    check(server.stub.Detokenize(test.api.DetokenizeRequest(ids=ids)).text == PROMPT, "and back to the text")


def two_at_once(test, server):
    expected = test.run(PROMPT, "--max-tokens", 200, "--ignore-eos")["ids"]
    other = test.run("The old man", "--max-tokens", 20, "--ignore-eos")["ids"]
    slow = server.generate(max_tokens=200, ignore_end_of_text=True).begin()
    quick = server.generate("The old man", max_tokens=20, ignore_end_of_text=True).finish()
    made = server.model().work.generated_tokens
    check(server.model().load.running == 1 or len(slow.ids) == 200, "one that began later and is shorter is done before", f"{made} tokens made")
    check(quick.ids == other, "two at once: the one is exact")
    check(slow.finish().ids == expected, "two at once: the other is exact")


def cancelled(test, server):
    server.wait_for_load(0, 0)
    call = server.endless().begin().cancel()
    check(call.error.code() == grpc.StatusCode.CANCELLED, "cancel: the client's own status")
    server.wait_for_load(0, 0)
    work = server.model().work
    made = server.generate(max_tokens=2).finish()
    after = server.model().work
    check(after.generated_tokens == work.generated_tokens + 2, "cancel: no token is made after it", f"{work} {after}")
    check(after.prompt_tokens == work.prompt_tokens + made.done.prompt_tokens, "cancel: nor any of the prompt", f"{work} {after}")
    time.sleep(0.2)  # any work would go on meanwhile
    check(server.model().work == after, "cancel: no expert is touched after it", f"{after} {server.model().work}")


def full_line(test, server):
    """Two sessions and one place behind them."""
    code, api = grpc.StatusCode, test.api
    running = [server.endless().begin(), server.endless().begin()]
    waiting = server.generate(max_tokens=3)
    check(waiting.next() == "queued", "a call that waits is told so")
    refused = server.generate().finish()
    details = test.check_error("a full line", refused.error, code.RESOURCE_EXHAUSTED, "QUEUE_FULL")
    check(details["RetryInfo"].retry_delay.ToTimedelta().total_seconds() >= 0.1, "a full line: when to come again", str(details))
    late = None
    waiting.cancel()
    server.wait_for_load(2, 0)
    late = server.generate(timeout=0.2).finish()
    check(late.error.code() == code.DEADLINE_EXCEEDED, "a deadline is kept in the line", str(late.error))
    server.wait_for_load(2, 0)
    for call in running:
        call.cancel()
    server.wait_for_load(0, 0)
    call = server.endless(timeout=0.5).finish()
    check(call.error.code() == code.DEADLINE_EXCEEDED and call.ids, "and while computing", str(call.error))
    server.wait_for_load(0, 0)


def refusals(test, server):
    code, api, stub = grpc.StatusCode, test.api, server.stub
    text = {"text": "a"}

    def generate(what, request, *expected):
        test.refused(what, stub.Generate(api.GenerateRequest(**request)), *expected)

    generate("no prompt", {}, code.INVALID_ARGUMENT, "INVALID_FIELD", "prompt")
    generate("a prompt without tokens", {"text": ""}, code.INVALID_ARGUMENT, "INVALID_FIELD", "text")
    generate("an id outside the vocabulary", {"token_ids": {"ids": [1, 2 ** 32 - 1]}}, code.INVALID_ARGUMENT, "INVALID_FIELD", "token_ids.ids[1]")
    generate("more tokens than the context", {"text": "17 " * 5000}, code.INVALID_ARGUMENT, "PROMPT_TOO_LONG", "text")
    generate("another model", {**text, "model": "other"}, code.NOT_FOUND, "MODEL_UNKNOWN")
    generate("a number out of range", {**text, "options": {"top_p": 1.5}}, code.INVALID_ARGUMENT, "INVALID_FIELD", "options.top_p")
    generate("too many tokens wanted", {**text, "options": {"max_tokens": CONTEXT + 1}}, code.INVALID_ARGUMENT, "INVALID_FIELD", "options.max_tokens")
    generate("an empty stop string", {**text, "options": {"stop": ["a", ""]}}, code.INVALID_ARGUMENT, "INVALID_FIELD", "options.stop[1]")
    test.refused("no message", stub.Chat(api.ChatRequest()), code.INVALID_ARGUMENT, "INVALID_FIELD", "messages")
    test.refused("a message of nobody", stub.Chat(api.ChatRequest(messages=[{"content": "Hi"}])), code.INVALID_ARGUMENT, "INVALID_FIELD", "messages[0].role")
    # What gRPC refuses itself has no details.
    raw = server.channel.unary_stream("/shoal.v1.Inference/Generate")
    test.refused("a message that is none", raw(b"\x12\xff\xff"), code.UNIMPLEMENTED, None)
    test.refused("a text that is not UTF-8", raw(b"\x12\x02a\xff"), code.UNIMPLEMENTED, None)
    test.refused("a message that is too large", raw(b"\x12" + b"\x80\x80\x80\x01" + b"a" * 2 ** 21), code.RESOURCE_EXHAUSTED, None)
    test.refused("a method that there is not", server.channel.unary_stream("/shoal.v1.Inference/Other")(b""), code.UNIMPLEMENTED, None)

    waiting = [stub.Tokenize.future(api.TokenizeRequest(text="1" * 65536)) for _ in range(150)]
    errors = [call.exception() for call in waiting]
    refused = [error for error in errors if error is not None]
    check(0 < len(refused) < 150, "some of too many texts are refused", str(len(refused)))
    test.check_error("too many texts", refused[0], code.RESOURCE_EXHAUSTED, "TEXTS_WAITING")
    check("RetryInfo" in test.details(refused[0]), "too many texts: when to come again")
    check(server.model().load.running == 0, "none of them was let in")


def faults(test):
    code = grpc.StatusCode
    short = Server(test, test.container, "--max-time", 1)
    call = short.endless().finish()
    test.check_error("--max-time", call.error, code.DEADLINE_EXCEEDED, "MAX_TIME")
    check(call.ids, "--max-time: what there was came before")
    copy = os.path.join(test.work, "damaged")
    shutil.copytree(test.container, copy)
    damaged = Server(test, copy)
    for name in os.listdir(os.path.join(copy, "experts")):
        path = os.path.join(copy, "experts", name)
        os.truncate(path, os.path.getsize(path) // 2)
    call = damaged.generate().finish()
    test.check_error("a damaged bank", call.error, code.DATA_LOSS, "MODEL_DAMAGED")
    check(f"call {call.number}: DATA_LOSS" in damaged.program.log and copy in damaged.program.log, "a damaged bank: the server's log names the file", damaged.program.log)
    check(f"call {call.number}" in call.error.details(), "a damaged bank: the error names the call as the log does", call.error.details())
    check("little girl" not in damaged.program.log, "a damaged bank: the log has no prompt")


def logged(test):
    """The call that failed on a node is named alike in its log and in the coordinator's, where it came from."""
    copy = os.path.join(test.work, "damaged_node")
    shutil.copytree(test.container, copy)
    node = Program("env", "SHOAL_LOG=json", test.node_program, copy, "--listen", "127.0.0.1:0", "--no-measure", "--json")
    test.stack.callback(node.end)
    server = Server(test, test.container, "--nodes", node.address, "--pool-alone", before=("env", "SHOAL_LOG=json"))
    good = server.generate(max_tokens=3).finish()
    experts = os.path.join(copy, "experts")
    for name in os.listdir(experts):
        os.truncate(os.path.join(experts, name), 0)
    bad = server.generate("The old man and the sea, and an elephant with zebras", max_tokens=100).finish()
    check(bad.error is not None and len({good.number, bad.number}) == 2 and len(bad.number) == 16, "calls have numbers of their own", bad.number)
    lines = {program: [json.loads(line) for line in log.splitlines()] for program, log in (("shoal", server.program.log), ("shoal-node", node.log))}
    for program, said in lines.items():
        check(all(line["program"] == program and line["time"] and line["message"] for line in said), f"{program}: every line of the log is an object", said)
        failed = [line for line in said if line.get("call") == bad.number]
        check(failed and all(line["code"] == "DATA_LOSS" for line in failed), f"{program}: the log names the call that failed", said)
    check([line["message"].split(":")[0] for line in lines["shoal"] if line.get("call") == good.number] == ["done"], "and that which did not", lines["shoal"])
    check(not any(line.get("call") == good.number for line in lines["shoal-node"]), "a node says nothing of what went well")
    check("elephant" not in server.program.log + node.log, "no log has a prompt")


def described(test, server):
    model = server.model()
    check(model.name == "tiny" and model.chat and model.context_tokens == CONTEXT, "the model by the name that it was given", str(model))
    check((model.limits.sessions, model.limits.queue) == (2, 1), "its sessions and line")
    reflection = server.channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
    listed = b"".join(reflection(iter([b"\x3a\x00"])))  # list_services
    for name in ("shoal.v1.Inference", "shoal.v1.Cluster", "grpc.health.v1.Health"):
        check(name.encode() in listed, f"reflection lists {name}")
    for name in ("", "shoal.v1.Inference", "shoal.v1.Inference/tiny"):
        check(next(server.health(name)) == 1, f'health of "{name}" is SERVING')


def drained(test, server):
    """Ends the server."""
    code = grpc.StatusCode
    watch = server.health("shoal.v1.Inference")
    check(next(watch) == 1, "health before the drain")
    running = server.generate(max_tokens=100, ignore_end_of_text=True).begin()
    longer = server.endless().begin()
    waiting = server.generate()
    check(waiting.next() == "queued", "one waits")
    server.program.process.send_signal(signal.SIGTERM)
    check(next(watch) == 2, "Watch sees the drain")
    test.check_error("a drain ends the line", waiting.finish().error, code.UNAVAILABLE, "DRAINING")
    test.check_error("a drain refuses calls", server.generate().finish().error, code.UNAVAILABLE, "DRAINING")
    check(running.finish().done is not None and len(running.ids) == 100, "a drain lets running answers end", str(running.error))
    check(server.program.process.poll() is None and longer.next() == "token", "and goes on with the other")
    server.program.process.send_signal(signal.SIGTERM)
    check(server.program.process.wait(60) == -signal.SIGTERM, "a second signal ends it at once")

    patience = Server(test, test.container, "--drain-time", 0)
    call = patience.endless().begin()
    patience.program.process.send_signal(signal.SIGINT)
    test.check_error("--drain-time is over", call.finish().error, code.UNAVAILABLE, "DRAINING")
    check(patience.program.process.wait(60) == 0, "a drained server ends with 0")


def examples(test, server):
    expected = test.run(PROMPT, "--max-tokens", 30)["text"]
    python = subprocess.run([sys.executable, os.path.join(test.source, "examples/python/client.py"), server.program.address, "generate", PROMPT, "30"],
                            capture_output=True, text=True, env={**os.environ, "PYTHONPATH": test.stub_path}, timeout=60)
    check(python.returncode == 0 and python.stdout == expected, "the client in Python", python.stdout + python.stderr)
    build = os.path.join(test.work, "client")
    subprocess.run(["cmake", "-S", os.path.join(test.source, "examples/client"), "-B", build, "-G", "Ninja"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", build], check=True, stdout=subprocess.DEVNULL)
    client = subprocess.run([os.path.join(build, "client"), server.program.address, PROMPT, "30"], capture_output=True, text=True, timeout=60)
    check(client.returncode == 0 and client.stdout == expected, "the client in C++", client.stdout + client.stderr)
    refused = subprocess.run([os.path.join(build, "client"), server.program.address, "", "30"], capture_output=True, text=True, timeout=60)
    check(refused.returncode == 1 and "reason INVALID_FIELD\n" in refused.stderr and "field text\n" in refused.stderr, "the client in C++ shows details", refused.stderr)


def metrics_of(program):
    """{name with labels: value} of what a program tells Prometheus; every family has its help and type."""
    with urllib.request.urlopen(f"http://{program.said['metrics_on']}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    values = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if not line.startswith("#")}
    typed = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    families = {name.split("{")[0] for name in values}
    plain = {name for name in families if name not in typed}
    check(all(name.rsplit("_", 1)[0] in typed for name in plain), "metrics: every family has its type", str(plain))
    return values


def measured(server, nodes):
    """What serve and its nodes tell, against each other and against GetModel."""
    model, told, of_nodes = server.model(), metrics_of(server.program), [metrics_of(node) for node in nodes]
    check(told["shoal_inference_generated_tokens_total"] == model.work.generated_tokens > 0, "metrics: tokens as GetModel counts them")
    check(told["shoal_inference_prompt_tokens_total"] == model.work.prompt_tokens, "metrics: tokens of prompts too")
    calls = told['shoal_inference_calls_total{code="OK"}']
    check(told["shoal_inference_first_token_seconds_count"] == calls == model.work.calls, "metrics: every call had a first token")
    check(told["shoal_inference_token_seconds_count"] == model.work.generated_tokens - calls, "metrics: and from each token to the next a time")
    for node, values in zip(nodes, of_nodes):
        label = f'{{node="{node.said["name"]}"'
        check(told[f'shoal_pool_node_requests_total{label}}}'] == values['shoal_node_layers_total{result="ok"}'] > 0, "metrics: layers as the node counts them")
        check(told[f'shoal_pool_node_state{label},state="live"}}'] == 1, "metrics: the node is live")
        parts = [told[f'shoal_pool_node_layer_seconds_total{label},part="{part}"}}'] for part in ("disk", "compute", "queue", "network")]
        check(all(part >= 0 for part in parts) and parts[1] > 0, "metrics: what a layer's time went into", str(parts))
    check(told["shoal_memory_resident_bytes"] <= told["shoal_memory_budget_bytes"], "metrics: memory within the budget")


def pool(test):
    """The same from a coordinator that computes no expert itself."""
    code = grpc.StatusCode
    nodes = [Program(test.node_program, test.container, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--no-measure", "--json") for _ in range(2)]
    for node in nodes:
        test.stack.callback(node.end)
    server = Server(test, test.container, "--nodes", ",".join(node.address for node in nodes), "--pool-alone", "--node-wait", 1, "--sessions", 2,
                    "--metrics", "127.0.0.1:0")
    answers(test, server)
    measured(server, nodes)
    expected = test.run(PROMPT, "--max-tokens", 120, "--ignore-eos")["ids"]
    call = server.generate(max_tokens=120, ignore_end_of_text=True).begin()
    nodes[0].end()
    check(call.finish().ids == expected, "a node killed in the middle of an answer: no token changes", str(call.error))
    nodes[1].end()
    call = server.generate().finish()
    test.check_error("no node left", call.error, code.UNAVAILABLE, "POOL_INCOMPLETE")
    check(nodes[1].address in call.error.details() or "units" in call.error.details(), "no node left: says what is missing", call.error.details())
    idle = server.model()
    check(idle.load.running == 0, "no node left: the session is free again")


def main():
    shoal, node_program, container, source = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
        test = Test(shoal, node_program, container, source, work, stack)
        server = Server(test, container, "--sessions", 2, "--queue", 1, "--name", "tiny")
        described(test, server)
        answers(test, server)
        two_at_once(test, server)
        cancelled(test, server)
        full_line(test, server)
        refusals(test, server)
        examples(test, server)
        drained(test, server)
        faults(test)
        logged(test)
        pool(test)
    finish()


if __name__ == "__main__":
    main()
