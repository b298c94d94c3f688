#!/usr/bin/env python3
"""Continues a text, or answers a message, with a model that `shoal serve` has.

    client.py ADDRESS generate TEXT [MAX_TOKENS]
    client.py ADDRESS chat MESSAGE [MAX_TOKENS]

The generated modules come from the .proto files (README.md beside this file says how). The text goes to standard output, everything else
to standard error.
"""

import sys
import time

import grpc
from google.rpc import error_details_pb2, status_pb2
from shoal.v1 import inference_pb2 as shoal
from shoal.v1 import inference_pb2_grpc


def details(error):
    """ErrorInfo, BadRequest and RetryInfo of an error, by name; only those that it has."""
    found = {}
    for key, value in error.trailing_metadata():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo):
                    message = kind()
                    if detail.Unpack(message):
                        found[kind.__name__] = message
    return found


def show(events):
    for event in events:
        kind = event.WhichOneof("kind")
        if kind == "queued":
            print(f"waiting, place {event.queued.place}", file=sys.stderr)
        elif kind == "prefill":
            print(f"prompt: {event.prefill.done_tokens} of {event.prefill.total_tokens} tokens", file=sys.stderr)
        elif kind == "token":
            print(event.token.text, end="", flush=True)
        elif kind == "finished":
            done = event.finished
            print(f"\n{shoal.FinishReason.Name(done.reason)}: {done.prompt_tokens} tokens in, {done.generated_tokens} out, "
                  f"first after {done.times.first_token_ns / 1e6:.0f} ms", file=sys.stderr)
        # Any other kind is newer than this program, and can be left out.


def main():
    address, what, text = sys.argv[1:4]
    options = shoal.GenerationOptions(max_tokens=int(sys.argv[4]) if len(sys.argv) > 4 else 256)
    with grpc.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        for attempt in range(5):
            try:
                if what == "chat":
                    message = shoal.ChatMessage(role=shoal.CHAT_ROLE_USER, content=text)
                    show(stub.Chat(shoal.ChatRequest(messages=[message], options=options), timeout=600))
                else:
                    show(stub.Generate(shoal.GenerateRequest(text=text, options=options), timeout=600))
                return 0
            except grpc.RpcError as error:
                why = details(error)
                reason = why["ErrorInfo"].reason if "ErrorInfo" in why else error.code().name
                print(f"{reason}: {error.details()}", file=sys.stderr)
                if "RetryInfo" not in why:
                    return 1
                time.sleep(why["RetryInfo"].retry_delay.ToTimedelta().total_seconds())
    return 1


if __name__ == "__main__":
    sys.exit(main())
