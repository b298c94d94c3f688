#!/usr/bin/env python3
"""A node that lies is found by --audit, named and left alone, and no answer that it had a part in is given as right.

    audit_test.py SHOAL SHOAL_NODE LYING_NODE CONTAINER SOURCE_DIR
"""

import contextlib
import sys
import tempfile

import grpc

from inference_test import Server, Test
from shoal_program import Program, Shoal, check, finish

PROMPT = "1,77,301,5,1208,9,9,44"
TOKENS = 200
# One answer in 20 is wrong, and one in 20 looked at. The model has 7 layers of experts, so that a lie stays unseen for
# 200 tokens with a chance of (1 - 1/400)^1400 = 3 % (one of 60 layers: 10^-13). For 5 answers: 2 in 10^8.
ANSWERS = 5
GENERATE = ("--ids", PROMPT, "--max-tokens", TOKENS, "--ignore-eos", "--json")


class Pool:
    """A liar and an honest node, each with all experts."""

    def __init__(self, test, lying_program, period):
        self.liar = self.start(test, lying_program, test.container, "liar", period)
        honest = self.start(test, test.node_program, test.container, "--listen", "127.0.0.1:0", "--name", "honest", "--no-measure", "--json")
        self.nodes = f"{self.liar.address},{honest.address}"

    @staticmethod
    def start(test, *command):
        node = Program(*command)
        test.stack.callback(node.end)
        return node


def check_judged_by_the_coordinator(test, lying_program):
    pool = Pool(test, lying_program, 20)
    truth = test.truth
    lied = test.shoal.ok("run", test.container, *GENERATE, "--nodes", pool.nodes).json
    check(lied["ids"] != truth, "without an audit the lies change the answer")
    audited = test.shoal.run("run", test.container, *GENERATE, "--nodes", pool.nodes, "--audit", "100%")
    check(audited.status == 0 and audited.json["ids"] == truth, "all is audited: the answer of one machine", audited.error)
    check("audit: node liar" in audited.error and "by the coordinator" in audited.error, "all is audited: the node is named, with the evidence", audited.error)
    check("node honest" not in audited.error, "all is audited: nobody else is accused", audited.error)


def check_judged_by_nodes(test, lying_program):
    pool = Pool(test, lying_program, 20)
    command = ("run", test.container, *GENERATE, "--nodes", pool.nodes, "--pool-alone", "--audit")
    audited = test.shoal.run(*command, "100%")
    check(audited.status == 0 and audited.json["ids"] == test.truth, "two nodes: the answer of one machine", audited.error)
    check("audit: node liar" in audited.error and "when it was asked again" in audited.error and "node honest at" not in audited.error,
          "two nodes: who contradicts itself is named", audited.error)
    always = Pool(test, lying_program, 1)
    test.shoal.refused(["run", test.container, *GENERATE, "--nodes", always.nodes, "--pool-alone", "--audit", "100%"], 1,
                       "nobody can tell which", "in quarantine because of wrong results", "liar", "honest")


def status_of(test, server, name):
    status = test.shoal.ok("cluster", "status", "--at", server.program.address, "--interval", 10, "--json").json
    return next(node for node in status["nodes"] if node["name"] == name)


def check_service(test, lying_program):
    pool = Pool(test, lying_program, 20)
    server = Server(test, test.container, "--nodes", pool.nodes, "--audit", "5%")
    # What is right, from a server that asks nobody.
    truth = Server(test, test.container).generate(max_tokens=TOKENS, ignore_end_of_text=True).finish()
    outcomes = []
    while status_of(test, server, "liar")["state"] != "quarantined" and len(outcomes) < ANSWERS:
        call = server.generate(max_tokens=TOKENS, ignore_end_of_text=True).finish()
        outcomes.append(call)
    found = status_of(test, server, "liar")
    check(found["state"] == "quarantined", f"5 %: the liar is found within {len(outcomes)} answers", found)
    check("sums differ" in found["evidence"] and "by the coordinator" in found["evidence"], "5 %: the status has the evidence", found)
    check(0 < found["audits"] < found["requests"], "5 %: a part is audited", found)
    check(server.program.logs("audit: node liar"), "5 %: the log has it", server.program.log)
    last = outcomes[-1]
    if last.error is None:
        check(last.ids == truth.ids, "5 %: the answer in which it was found is right")
    else:
        test.check_error("5 %: the answer in which it was found is taken back", last.error, grpc.StatusCode.ABORTED, "ANSWER_RETRACTED")
    again = server.generate(max_tokens=TOKENS, ignore_end_of_text=True).finish()
    check(again.ids == truth.ids, "5 %: later answers are right", again.error)
    now = status_of(test, server, "liar")
    check(now["requests"] == found["requests"], "in quarantine a node is not asked", now)
    said = test.shoal.ok("cluster", "status", "--at", server.program.address).text
    check("quarantined" in said and "sums differ" in said, "people see it too", said)
    test.shoal.ok("cluster", "drain", "liar", "--undo", "--at", server.program.address)
    check(status_of(test, server, "liar")["state"] == "live", "its operator takes it back")


def check_usage(test):
    test.shoal.refused(["run", test.container, *GENERATE, "--audit", "5%"], 2, "--audit", "--nodes")
    for wrong in ("5", "0%", "101%", "nan%", "%", "five%"):
        test.shoal.refused(["run", test.container, *GENERATE, "--nodes", "127.0.0.1:1", "--audit", wrong], 2, f"--audit {wrong}", "like 5%")
    with contextlib.ExitStack() as stack:
        node = Program(test.node_program, test.container, "--listen", "127.0.0.1:0", "--name", "shelf", "--no-measure", "--json")
        stack.callback(node.end)
        test.shoal.refused(["run", test.container, *GENERATE, "--nodes", node.address, "--pool-alone", "--audit", "5%"], 1,
                           "node shelf alone holds", "--copies 2")


def main():
    shoal, node_program, lying_program, container, source = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
        test = Test(shoal, node_program, container, source, work, stack)
        test.truth = Shoal(shoal).ok("run", container, *GENERATE).json["ids"]
        check_usage(test)
        check_judged_by_the_coordinator(test, lying_program)
        check_judged_by_nodes(test, lying_program)
        check_service(test, lying_program)
    finish()


if __name__ == "__main__":
    main()
