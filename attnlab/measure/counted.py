"""The process whose kernels ncu counts: `python -m attnlab.measure.counted '{"problem": …, "path": …, "device": …}'`.

Each operation of the path is called twice: once so that all is loaded and compiled, and once for the counters, with a kernel
that only waits behind it, so that whoever reads the list of kernels knows where one operation ends.
"""

from __future__ import annotations

import json
import sys

import torch

from attnlab.measure.anatomy import operations
from attnlab.measure.inputs import make_inputs
from attnlab.paths.base import load
from attnlab.problem import AttentionProblem


@torch.no_grad()
def main(asked: str) -> None:
    fields = json.loads(asked)
    device, problem = torch.device(fields["device"]), AttentionProblem.from_json(fields["problem"])
    torch.cuda.set_device(device)
    inputs, names = make_inputs(problem, device), []
    for operation in operations(load(fields["path"], device), problem, inputs):
        operation.call()
        torch.cuda.synchronize(device)
        torch.cuda.profiler.start()
        operation.call()
        torch.cuda._sleep(1)  # attnlab.measure.counters.DIVIDER
        torch.cuda.synchronize(device)
        torch.cuda.profiler.stop()
        names.append(operation.what)
    print(json.dumps({"operations": names}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
