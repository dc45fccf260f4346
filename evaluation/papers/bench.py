# SPDX-License-Identifier: MIT
"""
From a configuration of data/paper.tsv to a command of gannet bench, and from its result to the
metrics of the list. What the papers leave out has the papers' default, not the command's.
"""

CALLS = {"server_threads": "--threads", "client_machines": "--machines",
         "clients_per_machine": "--clients", "mode": "--mode", "batch": "--batch",
         "limit_us": "--limit-us", "alpha_pct": "--alpha", "fetch_size": "--fetch-bytes",
         "retries": "--retries"}

# Keys that each layer knows, and the options that they are. None: servers_of() reads the key.
OPTIONS = {
    "rpc": {**CALLS, "req": "--req", "resp": "--resp", "work_us": "--work-us", "route": "--route"},
    "kv": {**CALLS, "key": "--key", "value": "--value", "get_pct": "--get", "dist": "--dist",
           "fill_pct": "--fill-pct", "table": None, "procs": None, "qps_per_thread": None},
    "msg": {"topology": "--topology", "nodes": "--nodes", "threads": "--threads",
            "resp_threads": "--resp-threads", "qps_per_resp_thread": "--resp-conns",
            "pending": "--pending", "key": "--request", "value": "--value",
            "protocol": "--protocol"},
}
DEFAULTS = {"rpc": {"req": "0", "resp": "0"}, "kv": {}, "msg": {"nodes": "2", "pending": "1"}}
NEEDED = {"rpc": ("mode",), "kv": ("mode",), "msg": ("topology", "protocol")}
BYPASS_FILL_PCT = "75"
# Values that the command calls otherwise; a key here has no others.
VALUES = {"topology": {"m1": "M:1", "1m": "1:M", "mm": "M:M"},
          "dist": {"uniform": "uniform", "zipf99": "zipf:0.99"},
          "procs": {"each": "each"}, "table": {"cuckoo3": "cuckoo3"}}
# What the papers set by hand, and the library's own preset finds by itself.
PAPER_ONLY = ("fetch_size", "retries")
# The list's metrics that the command calls otherwise.
METRICS = {"fetches": "fetches_per_call", "round_trips": "round_trips_per_call",
           "batch": "batch_chosen"}


class BadConfig(Exception):
    """A configuration that its layer cannot run: why."""


def check(layer, config):
    for key, value in config.items():
        if key not in OPTIONS[layer]:
            raise BadConfig(f"key '{key}' is not known to the layer {layer}")
        if value not in VALUES.get(key, [value]):
            raise BadConfig(f"{key}={value} is not {' or '.join(VALUES[key])}")
    for key in NEEDED[layer]:
        if key not in config:
            raise BadConfig(f"{key} is missing")
    if "table" in config and config["mode"] != "bypass":
        raise BadConfig("table is of mode=bypass")


def servers_of(config):
    """kv: how many servers there are, and which of them a client talks to."""
    options = ["--procs-each"] if "procs" in config else []
    if "qps_per_thread" not in config:
        return options + ["--servers", "split"] * bool(options)
    threads, machines, clients = (int(config.get(key, 1)) for key in (
        "server_threads", "client_machines", "clients_per_machine"))
    if int(config["qps_per_thread"]) * threads != machines * clients:
        raise BadConfig(f"qps_per_thread={config['qps_per_thread']}: {threads} server threads "
                        f"have {machines * clients} clients")
    return options + ["--servers", "fixed"]


def options_of(layer, preset, config):
    """Options of gannet bench LAYER for a configuration, a dict."""
    check(layer, config)
    config = {**DEFAULTS[layer], **config}
    if config.get("mode") == "bypass":
        config.setdefault("fill_pct", BYPASS_FILL_PCT)
    options = servers_of(config) if layer == "kv" else []
    for key, value in config.items():
        if OPTIONS[layer][key] and (preset == "paper" or key not in PAPER_ONLY):
            options += [OPTIONS[layer][key], VALUES.get(key, {}).get(value, value)]
    return options


def command_of(run, card, config):
    """A run's command, but for its seed and effort. card: the profile or file to simulate."""
    return ["bench", run.layer, "--provider", "sim", "--json", "--profile", card,
            "--preset", run.preset, *options_of(run.layer, run.preset, config)]


def metrics_of(result):
    """The numbers of a result, by the names of the list."""
    numbers = {name: value for name, value in result.items()
               if isinstance(value, (int, float)) and not isinstance(value, bool)}
    return {**numbers, **{ours: result.get(theirs) for ours, theirs in METRICS.items()}}
