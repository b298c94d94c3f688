#!/usr/bin/env python3
"""A pool that is safe to leave on: real processes that join with invitations, compute the same bits over TLS, and refuse everybody
else, each with the reason in the server's log and none for the peer.

    tls_test.py SHOAL SHOAL_NODE CONTAINER
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile

import grpc

from readme_section import free_port
from shoal_program import Program, Shoal, check, finish, wait

GENERATE = ("Once upon a time", "--max-tokens", 16, "--json")
POOL = "home"
LINK = ("bench", "link", "--round-trips", 1, "--batches", 1)


def listening(pid):
    out = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True).stdout
    # A socket of both families has IPv4 addresses mapped into IPv6.
    return [line.split()[3].replace("[::ffff:127.0.0.1]", "127.0.0.1") for line in out.splitlines() if f"pid={pid}," in line]


class Tls:
    def __init__(self, shoal_program, node_program, container, work, stack):
        self.shoal, self.node_program, self.container, self.work, self.stack = Shoal(shoal_program), node_program, container, work, stack
        self.pool = self.path("pool")
        self.coordinator = os.path.join(self.pool, "coordinator")

    def path(self, name):
        return os.path.join(self.work, name)

    def start(self, *command):
        program = Program(*command)
        self.stack.callback(program.end)
        return program

    def node_command(self, identity):
        return (self.node_program, self.container, "--listen", "127.0.0.1:0", "--no-measure", "--json", "--tls", self.path(identity))

    def node(self, identity, *more):
        return self.start(*self.node_command(identity), *more)

    def node_is_refused(self, what, *arguments, words):
        done = subprocess.run([self.node_program, self.container, "--listen", "127.0.0.1:0", "--no-measure", *map(str, arguments)],
                              capture_output=True, text=True, timeout=60)
        missing = [word for word in words if word not in done.stderr]
        check(done.returncode != 0 and not missing, what, f"{done.returncode}, without {missing}: {done.stderr}")

    def invite(self, names, *more):
        return self.start(self.shoal.program, "cluster", "invite", self.pool, names, "--listen", "127.0.0.1:0", "--json", *more)

    def run(self):
        self.only_loopback_by_default()
        self.make_the_authority()
        self.join()
        self.same_bits()
        self.strangers()
        self.dates()
        self.roles()
        self.fill()
        self.revoke()
        self.keys()

    def only_loopback_by_default(self):
        for command in ((self.node_program, self.container, "--listen", "127.0.0.1:0", "--no-measure", "--json"),
                        (self.shoal.program, "serve", self.container, "--listen", "localhost:0", "--json")):
            program = self.start(*command)
            where = listening(program.process.pid)
            check(where and all(a.startswith("127.0.0.1:") for a in where), "listens on loopback alone", where)
            program.end()

    def make_the_authority(self):
        self.shoal.ok("cluster", "init", self.pool, "--name", POOL)
        self.shoal.refused(("cluster", "init", self.pool), 1, "is there already")
        modes = {oct(os.stat(os.path.join(d, f)).st_mode & 0o777) for d, _, files in os.walk(self.pool) for f in files}
        check(modes == {"0o600"}, "what the authority wrote is its owner's alone", modes)

    def join(self):
        invite = self.invite("a,b")
        check(listening(invite.process.pid) == [invite.address], "the listener is on the address it was given", listening(invite.process.pid))
        codes = {i["name"]: i["code"] for i in invite.said["invites"]}
        address, fingerprint, secret = codes["a"].split("/")[1:]
        self.node_is_refused("a listener of another authority is not spoken to", "--tls", self.path("nobody"), "--join",
                             f"shoal-invite-1/{address}/{'0' * 64}/{secret}", words=["not who invited"])
        self.nodes = {name: self.node(name, "--join", codes[name]) for name in ("a", "b")}
        check(invite.process.wait(60) == 0, "the listener ends when all have joined")
        check([self.nodes[n].said["name"] for n in "ab"] == ["a", "b"], "a node has its certificate's name")
        self.node_is_refused("a node that has an identity joins no more", "--tls", self.path("a"), "--join", codes["a"], words=["identity already"])
        self.reused(fingerprint, secret)

    def reused(self, fingerprint, used):
        short = self.invite("late", "--expires", "1s")
        expired = short.said["invites"][0]["code"].split("/")[3]
        check(short.process.wait(60) == 1 and short.logs("late did not join"), "the listener ends when the time is over and names who did not join",
              short.log)
        killed = self.invite("killed")
        closed = killed.said["invites"][0]["code"].split("/")[3]
        killed.end()
        invite = self.invite("c")
        for secret, reason in ((used, "the invitation of a was used"), (expired, "the invitation of late has expired"),
                               (closed, "the invitation of killed has expired"),
                               ("A" * 22, "no invitation has this secret")):
            self.node_is_refused(f"refused: {reason}", "--tls", self.path("nobody"), "--join",
                                 f"shoal-invite-1/{invite.address}/{fingerprint}/{secret}", words=["the invitation is not accepted"])
            check(invite.logs(reason), f"the reason is in the log: {reason}", invite.log)
        check(not os.path.exists(self.path("nobody")), "who was refused has no identity")
        invite.end()

    def addresses(self):
        return ",".join(node.address for node in self.nodes.values())

    def same_bits(self):
        wanted = self.shoal.ok("run", self.container, *GENERATE).json
        found = self.shoal.ok("run", self.container, *GENERATE, "--pool-alone", "--nodes", self.addresses(), "--tls", self.coordinator).json
        check(found["text"] == wanted["text"] and found["ids"] == wanted["ids"], "the same tokens over TLS", (wanted, found))

    def strangers(self):
        a = self.nodes["a"]
        run = (*LINK, self.container, "--nodes", a.address)  # ends at the first refusal
        result = self.shoal.refused(run, 1, "the other side closed the connection", "--tls")
        check("certificate" not in result.error, "a client in plain text learns nothing", result.error)
        check(a.logs("no TLS that is accepted"), "a client in plain text is in the log", a.log)
        self.shoal.refused((*run, "--tls", self.path("a")), 1, "node a", "coordinator is needed")
        other = self.path("other")
        self.shoal.ok("cluster", "init", other, "--name", POOL)
        self.shoal.refused((*run, "--tls", os.path.join(other, "coordinator")), 1, "another authority")
        plan = self.path("wrong_name.json")
        identity = self.shoal.ok("inspect", self.container, "--json").json["identity"]
        with open(plan, "w") as file:
            json.dump({"format": "shoal-pool-plan", "version": 1, "identity": identity, "epoch": 1,
                       "nodes": [{"name": "x", "address": a.address, "slices": [{"units": [0, 8], "experts": [0, 32]}], "copies": []}]}, file)
        self.shoal.refused((*LINK, self.container, "--nodes", plan, "--tls", self.coordinator), 1,
                           "it is node a, and the plan has node x there")
        old = subprocess.run(["openssl", "s_client", "-connect", a.address, "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"], input=b"", capture_output=True,
                             timeout=60)
        check(b"BEGIN CERTIFICATE" not in old.stdout, "TLS 1.1 is refused", old.stdout)
        check(a.logs("unsupported protocol"), "TLS 1.1 is in the log", a.log)
        host, port = a.address.rsplit(":", 1)
        for bytes_ in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b""):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(bytes_)
        os.chmod(os.path.join(self.coordinator, "key.pem"), 0o640)
        self.shoal.refused((*run, "--tls", self.coordinator), 1, "chmod 600")
        os.chmod(os.path.join(self.coordinator, "key.pem"), 0o600)
        self.same_bits()

    def issue_by_hand(self, name, begin, end):
        """An identity of a node as the authority would make it, valid between these times; with OpenSSL's own tool."""
        directory, authority = self.path(name), os.path.join(self.pool, "authority")
        os.makedirs(os.path.join(directory, "ca"), 0o700)
        with open(os.path.join(directory, "ca", "conf"), "w") as file:
            file.write(f"[ca]\ndefault_ca=d\n[d]\ndatabase={directory}/ca/index\nrand_serial=yes\nnew_certs_dir={directory}/ca\ndefault_md=sha256\npolicy=p\n"
                       f"[p]\ncommonName=supplied\n[e]\nbasicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
                       f"extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=URI:shoal://{POOL}/node/{name},DNS:{name}.node.shoal\n")
        open(os.path.join(directory, "ca", "index"), "w").close()
        for command in (["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "key.pem"],
                        ["req", "-new", "-key", "key.pem", "-subj", f"/CN={name}", "-out", "ca/request"],
                        ["ca", "-batch", "-notext", "-config", "ca/conf", "-extensions", "e", "-in", "ca/request", "-out", "certificate.pem", "-startdate", begin,
                         "-enddate", end, "-cert", os.path.join(authority, "certificate.pem"), "-keyfile", os.path.join(authority, "key.pem")]):
            subprocess.run(["openssl", *command], cwd=directory, check=True, capture_output=True)
        shutil.copy(os.path.join(self.coordinator, "authority.pem"), directory)
        for file in ("key.pem", "certificate.pem"):
            os.chmod(os.path.join(directory, file), 0o600)

    def certificate_flags(self, name):
        return ["-cert", os.path.join(self.path(name), "certificate.pem"), "-key", os.path.join(self.path(name), "key.pem"), "-alpn", "h2"]

    def dates(self):
        """Certificates that are not valid any more, or not yet: as a client's, as a server's, and as one's own."""
        a = self.nodes["a"]
        self.issue_by_hand("good", "20200101000000Z", "20990101000000Z")
        self.start(*self.node_command("good")).end()
        for name, begin, end, reason in (("old", "20200101000000Z", "20200201000000Z", "it expired on 2020-02-01"),
                                         ("early", "20980101000000Z", "20990101000000Z", "it is not valid before 2098-01-01")):
            self.issue_by_hand(name, begin, end)
            self.node_is_refused(f"a node does not start: {reason}", "--tls", self.path(name), words=[reason])
            subprocess.run(["openssl", "s_client", "-connect", a.address, *self.certificate_flags(name)], input=b"", capture_output=True, timeout=60)
            check(a.logs(f"the certificate of node {name} is refused: {reason}"), f"a client is refused, and the log says why: {reason}", a.log)
            port = free_port()
            server = subprocess.Popen(["openssl", "s_server", "-accept", str(port), *self.certificate_flags(name)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.stack.callback(server.kill)
            while b"ACCEPT" not in server.stdout.readline():
                check(server.poll() is None, "openssl s_server serves")
            self.shoal.refused((*LINK, self.container, "--nodes", f"127.0.0.1:{port}", "--tls", self.coordinator), 1, reason)
            server.kill()

    def roles(self):
        """Members of the pool that call what is not theirs: refused before their message, which is none, is looked at."""
        a = self.nodes["a"]
        self.shoal.ok("cluster", "issue", self.pool, "laptop", "--role", "client", "--out", self.path("laptop"))
        for identity, who, method in (("b", "node b", "Execute"), ("b", "node b", "Fill"), ("b", "node b", "FetchUnits"), ("laptop", "client laptop", "Execute"),
                                      ("laptop", "client laptop", "Describe"), ("laptop", "client laptop", "FetchModel")):
            pem = [open(os.path.join(self.path(identity), f"{file}.pem"), "rb").read() for file in ("authority", "key", "certificate")]
            with grpc.secure_channel(a.address, grpc.ssl_channel_credentials(*pem), [("grpc.ssl_target_name_override", "a.node.shoal")]) as channel:
                error = None
                try:
                    list(channel.stream_stream(f"/shoal.v1.ExpertNode/{method}")(iter([b"\xff\xff"]), timeout=60))
                except grpc.RpcError as refusal:
                    error = refusal
            if method == "FetchUnits":  # a node's too, with a grant: the message is read
                check(error is not None and error.code() != grpc.StatusCode.PERMISSION_DENIED, f"{who} may call {method}", error)
                continue
            check(error is not None and (error.code(), error.details()) == (grpc.StatusCode.PERMISSION_DENIED, "not allowed"), f"{who} may not call {method}", error)
            check(a.logs(f"{who}: "), f"and the log names {who}", a.log)
        self.shoal.refused((*LINK, self.container, "--nodes", a.address, "--tls", self.path("laptop")), 1, "client laptop", "coordinator is needed")

    def fill(self):
        """A node that is empty is filled from the container and from a node, with a grant for its slices."""
        self.shoal.ok("cluster", "issue", self.pool, "d", "--role", "node", "--out", self.path("d"))
        empty = self.start(self.node_program, self.path("d_part"), "--listen", "127.0.0.1:0", "--no-measure", "--json", "--tls", self.path("d"))
        plan = self.path("fill.json")
        with open(plan, "w") as file:
            json.dump({"format": "shoal-pool-plan", "version": 1, "identity": self.shoal.ok("inspect", self.container, "--json").json["identity"],
                       "epoch": 1, "nodes": [{"name": "d", "address": empty.address, "slices": [{"units": [0, 8], "experts": [0, 32]}], "copies": []}]},
                      file)
        fill = ("fill", self.container, "--plan", plan)
        self.shoal.refused(fill, 1, "the other side closed the connection", "--tls")
        self.shoal.ok(*fill, "--from", self.nodes["a"].address, "--tls", self.coordinator)
        wanted = self.shoal.ok("run", self.container, *GENERATE).json
        found = self.shoal.ok("run", self.container, *GENERATE, "--pool-alone", "--nodes", plan, "--tls", self.coordinator).json
        check(found["ids"] == wanted["ids"], "a node that was filled over TLS answers the same", (wanted["ids"], found["ids"]))

    def revoke(self):
        serve = self.start(self.shoal.program, "serve", self.container, "--nodes", self.addresses(), "--tls", self.coordinator, "--listen",
                           "127.0.0.1:0", "--json")
        status = ("cluster", "status", "--at", serve.address, "--interval", 20, "--json", "--tls", self.coordinator)

        def states():
            return {n["name"]: (n["state"], n["last_error"]) for n in self.shoal.ok(*status).json["nodes"]}

        check({n: s for n, (s, _) in states().items()} == {"a": "live", "b": "live"}, "both nodes are live", states())
        self.shoal.refused(("cluster", "status", "--at", serve.address), 1)
        self.shoal.ok("cluster", "revoke", self.pool, "b")
        check(wait(lambda: states().get("b", ("lost",))[0] == "lost"), "a revoked node is lost to its coordinator", states())
        check(states()["a"][0] == "live", "and the other stays", states())
        check(wait(lambda: os.path.exists(os.path.join(self.path("a"), "revoked.pem"))), "the other node has the list")
        self.shoal.ok("cluster", "issue", self.pool, "second", "--role", "coordinator", "--out", self.path("second"))
        run = (*LINK, self.container, "--nodes", self.nodes["a"].address, "--tls", self.path("second"))
        self.shoal.ok(*run)
        self.shoal.ok("cluster", "revoke", self.pool, "second")
        check(wait(lambda: self.shoal.run(*run).status == 1), "a revoked coordinator is refused by nodes")
        check(self.nodes["a"].logs("coordinator second is revoked"), "with the reason in the node's log", self.nodes["a"].log)
        serve.end()

    def keys(self):
        keys = self.path("keys.json")
        self.shoal.refused(("serve", self.container, "--keys", keys), 1, "keys.json")
        key = self.shoal.ok("keys", "add", "laptop", "--keys", keys, "--json").json["key"]
        with open(keys) as file:
            check(key.startswith("shoal_") and key not in file.read(), "a key is not in its file")
        check([k["name"] for k in self.shoal.ok("keys", "list", "--keys", keys, "--json").json["keys"]] == ["laptop"], "keys list")
        self.shoal.refused(("serve", self.container, "--keys", keys, "--listen", "0.0.0.0:0", "--insecure"), 2, "needs --tls")
        self.shoal.ok("keys", "revoke", "laptop", "--keys", keys)
        self.shoal.refused(("keys", "revoke", "laptop", "--keys", keys), 1, "no key named laptop")


def main():
    with contextlib.ExitStack() as stack:
        work = stack.enter_context(tempfile.TemporaryDirectory())
        Tls(*sys.argv[1:4], work, stack).run()
    finish()


main()
