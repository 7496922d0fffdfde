"""A client of a conformance case, which fails as the run's config says."""

import os
import time

import torch
from conformance import case

from fgl.federation import client_app
from fgl.federation.executors.remote.wire import pack, unpack


def nan(message):
    next(iter(message["model"].values())).view(-1)[0] = torch.nan


def missing_key(message):
    del message["num_examples"]


def extra_key(message):
    message["one more"] = torch.ones(())


def shape(message):
    message["model"] = {name: value[None] for name, value in message["model"].items()}


CHANGES = {"nan": nan, "missing-key": missing_key, "extra-key": extra_key, "shape": shape}


def faulty(message, context, call_next):
    """A mod: one client fails in round 1 in the first way that the config names, and so on."""
    how, note = context.run_config, message.content.config_records["note"]
    faults = dict(enumerate(how["faults"].split(), 1))
    mine = int(note["client"]) == how["fault-client"]
    fault = faults.get(int(note["round"]), "") if mine else ""
    if fault == "raises":
        raise RuntimeError("no memory")
    if fault == "dies":
        os._exit(1)
    reply = call_next(message, context)
    if fault == "late":
        time.sleep(how["timeout"] + 5)
    if fault in CHANGES:
        array = reply.content.array_records["message"]["packed"]
        sent = unpack(array.data)
        CHANGES[fault](sent)
        array.data = pack(sent)
    return reply


def build(context):
    torch.set_num_threads(1)
    client = context.node_config["partition-id"]
    method, task = case(context.run_config["method"], context.run_config["task"])
    return method, task.clients[client], client


app = client_app(build, mods=[faulty])
