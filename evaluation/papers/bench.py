# SPDX-License-Identifier: MIT
"""
From a configuration of data/paper.tsv to a command of gannet bench, and from its result to the
metrics of the list. What the papers leave out has the papers' default, not the command's.
"""

CALLS = {"server_threads": "--threads", "client_machines": "--machines",
         "clients_per_machine": "--clients", "mode": "--mode", "batch": "--batch",
         "limit_us": "--limit-us", "alpha_pct": "--alpha", "fetch_size": "--fetch-bytes",
         "retries": "--retries"}

# Keys that each layer knows, and the options that they are. None: servers_of() or requests_of()
# reads the key.
OPTIONS = {
    "rpc": {**CALLS, "req": "--req", "resp": "--resp", "work_us": "--work-us", "route": "--route"},
    "kv": {**CALLS, "key": "--key", "value": "--value", "get_pct": "--get", "dist": "--dist",
           "fill_pct": "--fill-pct", "table": None, "procs": None, "qps_per_thread": None},
    "msg": {"topology": "--topology", "nodes": "--nodes", "threads": "--threads",
            "resp_threads": "--resp-threads", "qps_per_resp_thread": "--resp-conns",
            "pending": "--pending", "key": "--request", "value": "--value",
            "protocol": "--protocol"},
    "fabric": {"op": "--op", "dir": "--topology", "topology": "--topology", "size": "--size",
               "key": "--lead", "value": "--size", "client_machines": "--machines",
               "clients_per_machine": "--clients", "server_threads": "--threads",
               "nodes": "--nodes", "threads": "--threads", "window": "--window",
               "window_machine": "--window-machine", "shared_by": "--shared-by",
               "reads_per_request": "--requests", "region": "--region", "inline": "--inline",
               **dict.fromkeys(("protocol", "transport", "signaled", "pending", "opt", "vms",
                                "qps_per_thread", "procs", "resp_threads",
                                "qps_per_resp_thread"))},
    "io": {"op": "--op", "client_machines": "--machines", "block": "--block",
           "threads": "--threads", "depth": "--depth", "qps": "--channels",
           "batching": "--batching", "mr": "--mr", "poll": "--poll", "adjacent": "--adjacent",
           **dict.fromkeys(("admission", "window_mb", "workload", "max_retry"))},
    "dgram": {"threads": "--threads", "coroutines": "--workers", "req": "--req", "resp": "--resp",
              **dict.fromkeys(("nodes", "vms", "opts", "off"))},
}
DEFAULTS = {"rpc": {"req": "0", "resp": "0"}, "kv": {}, "msg": {"nodes": "2", "pending": "1"},
            "fabric": {}, "io": {"op": "WRITE", "admission": "off"}, "dgram": {}}
NEEDED = {"rpc": ("mode",), "kv": ("mode",), "msg": ("topology", "protocol"), "fabric": (), "io": (),
          "dgram": ("nodes",)}
BYPASS_FILL_PCT = "75"
# Values that the command calls otherwise; a key here has no others.
VALUES = {"topology": {"m1": "M:1", "1m": "1:M", "mm": "M:M"},
          "dist": {"uniform": "uniform", "zipf99": "zipf:0.99"},
          "procs": {"each": "each"}, "table": {"cuckoo3": "cuckoo3"}, "transport": {"UD": "UD"},
          "op": {"READ": "read", "WRITE": "write", "FAA": "faa", "SEND": "ud-send"},
          "dir": {"in": "in", "out": "out"}, "inline": {"yes": "yes", "no": "no"},
          "region": {"cache": "256K", "dram": "256M"},
          "opt": dict.fromkeys(("none", "inline", "unsignaled", "both")),
          "admission": {"on": None, "off": "none"},
          "poll": {**{poll: poll for poll in ("adaptive", "busy", "event", "event-batch",
                                              "naive-hybrid")}, "scq1": "shared"},
          "workload": {"small": 1, "medium": 32, "large": 64},
          "opts": {"all": None, "none": "all"}}
CORES = {"cx3-fdr": "8", "connect-ib": "14"}  # FaSST's machines: threads=all
OPT_SIGNAL_EVERY = 16
UNSIGNALED = 64  # one of so many is signaled nevertheless
# RDMAbox: 7 threads have 7 MB in flight (P60b), so each has 8 blocks of 128 KiB.
IO_DEPTH = "8"
# … which are the 32 pages of a block request, each with an SGE of its own (RDMAbox IV.A).
IO_SGES = "32"
# RDMAbox III.B does not say how long requests are. 120 empty polls take 2.4 us, which is longer than
# a WRITE of 512 bytes takes. VALUES has the requests of a cluster: one; as many as busy polling
# needs for its highest rate; and the number between.
IO_WORKLOAD_BLOCK = "512"
IO_ADJACENT = "50"  # P61, P62: "block I/O to partly adjacent addresses"
# FaSST: "using 6 nodes would restrict max non-coalesced batch size to 6", so a coroutine's batch has one
# request for each other machine, and no coroutine has more than 16 messages outstanding.
DGRAM_BATCH_MAX = 16
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


def signal_every(config):
    """fabric: of how many requests one is signaled."""
    signaled = config.get("signaled", "yes")
    if config.get("opt") in ("unsignaled", "both"):
        return OPT_SIGNAL_EVERY
    if signaled in ("yes", "no"):
        return UNSIGNALED if signaled == "no" else 1
    if not signaled.startswith("1/") or not signaled[2:].isdecimal():
        raise BadConfig(f"signaled={signaled} is not yes, no or 1/N")
    return int(signaled[2:])


def requests_of(config, profile):
    """fabric: what a request is, and a configuration without the keys that said so."""
    config = dict(config)
    if "protocol" in config:  # S003's protocol READ is plain READs
        config.setdefault("op", config.pop("protocol"))
    if config.get("op") not in VALUES["op"]:
        raise BadConfig(f"op={config.get('op', '')} is not {' or '.join(VALUES['op'])}")
    if ("transport" in config) != (config["op"] == "SEND"):
        raise BadConfig("op=SEND and transport=UD go together")
    if ("value" in config) == ("size" in config) or ("value" in config) != ("key" in config):
        raise BadConfig("either size or key and value are needed")
    if ("dir" in config) == ("topology" in config):
        raise BadConfig("one of dir and topology is needed")
    if "opt" in config:
        config["inline"] = "yes" if config["opt"] in ("inline", "both") else "no"
    if config.get("threads") == "all":
        if profile not in CORES:
            raise BadConfig(f"threads=all is not known for profile {profile}")
        config["threads"] = CORES[profile]
    options, every = ["--procs-each"] * ("procs" in config), signal_every(config)
    if every > 1:
        window = {"pending", "window", "window_machine"} & set(config)
        options += ["--depth" if window else "--signal-every", str(every)]
    if "pending" in config:  # of each connection in the clusters of S003, of a thread in S002
        options += ["--window-qp" if "topology" in config else "--window", config["pending"]]
    if "qps_per_thread" in config or "vms" in config:
        whole = int(config["nodes"]) - 1 if config.get("topology") == "mm" else 1
        qps = int(config.get("qps_per_thread", whole)) * int(config.get("vms", 1))
        options += ["--qps", str(qps)]
    return options, config


def io_of(config, preset):
    """io: windows and clusters of requests, and a configuration without the keys that said so."""
    config = dict(config)
    workload, retry = config.pop("workload", None), config.pop("max_retry", None)
    window_mb = config.pop("window_mb", None)
    if config["admission"] == "on" and not window_mb:
        raise BadConfig("admission=on needs window_mb")
    window = VALUES["admission"][config["admission"]] or str(int(float(window_mb) * 1e6))
    options = ["--window", window]
    if workload:
        config.setdefault("block", IO_WORKLOAD_BLOCK)
        options += ["--burst", str(VALUES["workload"][workload])]
    else:
        config.setdefault("depth", IO_DEPTH)
        if preset == "paper" and "mr" not in config:
            options += ["--sges", IO_SGES]
    if retry and config.get("poll") == "adaptive":
        options += ["--max-retry", retry]
    if preset == "gannet":
        config.setdefault("adjacent", IO_ADJACENT)
    return options, config


def dgram_of(config):
    """dgram: the cluster and what is switched off, and a configuration without those keys."""
    config = dict(config)
    nodes, vms = int(config.pop("nodes")), int(config.pop("vms", 1))
    off = config.pop("off", None) or VALUES["opts"][config.pop("opts", "all")]
    config.pop("opts", None)
    # An emulated machine is a whole one here: its requests and answers are sent, too.
    options = ["--no-raw", "--nodes", str(nodes * vms),
               "--batch", str(min(nodes - 1, DGRAM_BATCH_MAX))]
    return options + (["--off", off.replace("+", ",")] if off else []), config


def options_of(layer, preset, config, profile=None):
    """Options of gannet bench LAYER for a configuration, a dict."""
    check(layer, config)
    config = {**DEFAULTS[layer], **config}
    if config.get("mode") == "bypass":
        config.setdefault("fill_pct", BYPASS_FILL_PCT)
    options = servers_of(config) if layer == "kv" else []
    if layer == "fabric":
        options, config = requests_of(config, profile)
    if layer == "io":
        options, config = io_of(config, preset)
    if layer == "dgram":
        options, config = dgram_of(config)
    for key, value in config.items():
        if OPTIONS[layer][key] and (preset == "paper" or key not in PAPER_ONLY):
            options += [OPTIONS[layer][key], VALUES.get(key, {}).get(value, value)]
    return options


def command_of(run, card, config):
    """A run's command, but for its seed and effort. card: the profile or file to simulate."""
    return ["bench", run.layer, "--provider", "sim", "--json", "--profile", card,
            *(["--preset", run.preset] if run.preset != "-" else []),
            *options_of(run.layer, run.preset, config, run.profile)]


def metrics_of(result):
    """The numbers of a result, by the names of the list."""
    numbers = {name: value for name, value in result.items()
               if isinstance(value, (int, float)) and not isinstance(value, bool)}
    return {**numbers, **{ours: result.get(theirs) for ours, theirs in METRICS.items()}}
