"""A client of a conformance case, which fails as the run's config says."""

import os
import time

import torch
from conformance import case

from fgl.federation import client_app
from fgl.federation.packed import pack, unpack


def nan(message):
    next(iter(message["model"].values())).view(-1)[0] = torch.nan


def key(message):
    message["one more"] = torch.ones(())


def shape(message):
    message["model"] = {name: value[None] for name, value in message["model"].items()}


CHANGES = {"nan": nan, "key": key, "shape": shape}


def faulty(message, context, call_next):
    """A mod: it fails in one round of one client."""
    how, note = context.run_config, message.content.config_records["note"]
    where = int(note["client"]), int(note["round"])
    fault = how["fault"] if where == (how["fault-client"], how["fault-round"]) else ""
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
