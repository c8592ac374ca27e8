"""A program that serves a model of llama.cpp on 127.0.0.1 until its standard input ends.

Reads one line of JSON (`file`, `name`, `key`, `threads`, `context`), writes the server's address. The key keeps other
users of the machine out. It ends with the host even where that is killed, which closes the pipe.
"""

from __future__ import annotations

import json
import sys

import xllamacpp


def main() -> None:
    """Serve."""
    wanted = json.loads(sys.stdin.readline())
    params = xllamacpp.CommonParams()
    params.model.path = wanted["file"]
    params.model_alias = {wanted["name"]}
    params.api_keys = [wanted["key"]]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = wanted["context"]
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = wanted["threads"]
    params.warmup = params.ui = False
    params.verbosity = -1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
