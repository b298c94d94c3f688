#!/usr/bin/env python3
"""Writes split_pattern.json: where the reference tokenizer's regular expression cuts text.

The judge is the pattern in tests/reference/tiktoken_reference.py, matched by the third-party `regex`
module.  Two parts:

texts    random texts over an alphabet that has every class of character and every contraction, as
         [text, "lengths of the pieces in characters"].
classes  for every code point that Unicode 14 assigns, how the probes below are cut when the code point
         stands for X.  Neighbours that are cut alike are one entry: [first, last, "cuts of each probe"],
         where cuts are the lengths of the pieces.  Code points that were assigned later, or have changed
         their category since (U+0295), are left out: `regex` and ICU need not know the same Unicode.

Run it from the repository's root: python3 tests/data/make_split_pattern.py
"""

import json
import os
import random
import sys
import unicodedata

import regex

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "reference"))
from tiktoken_reference import split_pieces  # noqa: E402

PROBES = ["XXa", "AXa", " XA", "1X1", "X\n", "!X ", "'X", "XBX"]
ALPHABET = (
    list("abzABZ'\"!?.,-_()019 \t\r\n\v\f\x00\x1b\x1c\x1f\x7f")
    + ["'s", "'S", "'t", "'re", "'RE", "'vE", "'m", "'ll", "'Ll", "'d", "'\u017f", "'r", "'l", "  ", "\r\n", "\n\n"]
    + list("éßÀǅʰªºµŒдЖΩω\u0301\u0e33\u0e01\uac01漢字々〇⺀ひカﾊー㊀")
    + list("٣४½Ⅷⅷ①²𝟘\u00a0\u2003\u3000\u2028\u2029\x85\u200b\u200d\ufeff")
    + list("€😀\U0001f3fd𝐀𝐚𐐀𐐨\U00020000\ue000\ufffd\u0903\u20dd")
)


def cuts(text):
    return " ".join(str(len(piece)) for piece in split_pieces(text))


def texts():
    rng = random.Random(20260101)
    out = []
    for i in range(600):
        # Few different symbols in a text make long runs likely.
        symbols = rng.sample(ALPHABET, rng.choice([2, 3, 5, 12]))
        text = "".join(rng.choice(symbols) for _ in range(rng.randint(1, 30)))
        out.append([text, cuts(text)])
    return out


def classes():
    out = []
    for c in range(0x110000):
        x = chr(c)
        category = unicodedata.category(x)
        if category in ("Cn", "Cs") or not regex.match(r"\p{%s}" % category, x):
            continue
        signature = ",".join(cuts(p.replace("X", x)) for p in PROBES)
        if out and out[-1][1] == c - 1 and out[-1][2] == signature:
            out[-1][1] = c
        else:
            out.append([c, c, signature])
    return out


def main():
    lines = lambda rows: ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    with open(os.path.join(HERE, "split_pattern.json"), "w", encoding="ascii") as f:
        f.write('{"texts": [\n%s\n],\n' % lines(texts()))
        f.write('"probes": %s,\n' % json.dumps(PROBES))
        f.write('"classes": [\n%s\n]}\n' % lines(classes()))


if __name__ == "__main__":
    main()
