//! Every variable that something here reads: the one place that has their names, defaults and meanings.

use Reader::{
    Command, Conduit, Every, Firehose, Interface, Nobody, Provider, Seastar, Simulation, Verbs,
};

/// Which part reads a variable, and so where it has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reader {
    /// The command `portolan`.
    Command,
    /// Every program, and the command.
    Every,
    /// Programs on the verbs fabric.
    Verbs,
    /// Programs on the SeaStar model.
    Seastar,
    /// The process that holds a simulation, which writes the files of traces.
    Simulation,
    /// C programs of the Portals interface.
    Interface,
    /// GASNet programs.
    Conduit,
    /// GASNet programs whose memory is pinned as it is used.
    Firehose,
    /// The libfabric provider.
    Provider,
    /// Nobody: it is accepted, and changes nothing.
    Nobody,
}

impl Reader {
    /// All, in the order of reports.
    pub const ALL: [Self; 10] = [
        Command, Every, Verbs, Seastar, Simulation, Interface, Conduit, Firehose, Provider, Nobody,
    ];

    /// Who reads, in words.
    pub fn words(self) -> &'static str {
        match self {
            Command => "the command portolan",
            Every => "every program",
            Verbs => "programs on the verbs fabric",
            Seastar => "programs on the SeaStar model",
            Simulation => "the simulation of the SeaStar model",
            Interface => "C programs of the Portals interface",
            Conduit => "GASNet programs",
            Firehose => "GASNet programs without pinned segments",
            Provider => "the libfabric provider",
            Nobody => "nobody",
        }
    }
}

/// A variable of users.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What counts where it is not set.
    pub default: &'static str,
    /// What it says, and the values that it may have.
    pub meaning: &'static str,
    /// Who reads it.
    pub reader: Reader,
}

const fn of(
    reader: Reader,
    name: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Variable {
    Variable {
        name,
        default,
        meaning,
        reader,
    }
}

/// All variables, by reader and name.
pub const VARIABLES: &[Variable] = &[
    of(
        Command,
        "PORTOLAN_ADDRESS",
        "the one that ssh comes from",
        "address of this machine for the hosts of a job (--address)",
    ),
    of(
        Command,
        "PORTOLAN_GUEST",
        "not set",
        "is 1 in a guest of portolan guest, where tests take devices for their own",
    ),
    of(
        Command,
        "PORTOLAN_REMOTE",
        "the path of this portolan",
        "path of portolan on the hosts of a job (--remote)",
    ),
    of(
        Command,
        "PORTOLAN_RUN_OPTIONS",
        "none",
        "options that gasnetrun_portals gives portolan run",
    ),
    of(
        Command,
        "PORTOLAN_SSH",
        "ssh -x -o BatchMode=yes",
        "command that reaches a host of a job (--ssh)",
    ),
    of(
        Every,
        "PORTOLAN_DUMP_SEGMENTS",
        "no",
        "1: segments and rings are part of core dumps",
    ),
    of(
        Every,
        "PORTOLAN_FABRIC",
        "auto",
        "fabric: auto, shm, verbs or seastar (--fabric)",
    ),
    of(
        Every,
        "PORTOLAN_FABRIC_REASON",
        "not set",
        "why the fabric was taken; portolan run sets it",
    ),
    of(
        Every,
        "PORTOLAN_JOB_ID",
        "a name that no other job has",
        "name of the job; portolan trace sets it",
    ),
    of(
        Every,
        "PORTOLAN_LAUNCHER",
        "found out",
        "how the launcher is spoken to: pmi1, pmi2, pmix, or none for a job of one",
    ),
    of(
        Every,
        "PORTOLAN_LOG",
        "error",
        "events that are printed, such as debug or warn,fabric_verbs=trace",
    ),
    of(
        Every,
        "PORTOLAN_PROTO_INFO",
        "no",
        "1: rank 0 prints which protocol carries which operation",
    ),
    of(
        Every,
        "PORTOLAN_QUIET",
        "no",
        "1: no notes of which fabric was taken, and of what goes another way than usual",
    ),
    of(
        Every,
        "PORTOLAN_RANKS_PER_NODE",
        "1",
        "ranks that share a node, numbered within it (--ranks-per-node)",
    ),
    of(
        Every,
        "PORTOLAN_SPIN",
        "200 over verbs, 50 in memory",
        "microseconds that a wait polls before it sleeps",
    ),
    of(
        Verbs,
        "GASNET_SUPERNODE_MAXSIZE",
        "0",
        "ranks of a machine that share memory: 0 is all, 1 none (--no-shm)",
    ),
    of(
        Verbs,
        "PORTOLAN_CHANNEL",
        "rc",
        "how messages are carried: rc, ud or auto (--channel)",
    ),
    of(
        Verbs,
        "PORTOLAN_CHATTY",
        "32",
        "under auto, requests to a peer within a second that make it worth a connection",
    ),
    of(
        Verbs,
        "PORTOLAN_CONNECT",
        "words, on iWARP iwarp",
        "who makes connections: words, cm or iwarp",
    ),
    of(
        Verbs,
        "PORTOLAN_CONNECTIONS",
        "half of the device's queue pairs by the machine's processors",
        "under auto, the most connections of a rank",
    ),
    of(
        Verbs,
        "PORTOLAN_CONNECTION_STATS",
        "no",
        "1: a rank prints at its close how many frames came through rings",
    ),
    of(
        Verbs,
        "PORTOLAN_CONNECT_TIMEOUT",
        "10",
        "seconds after which a peer that does not answer is given up",
    ),
    of(
        Verbs,
        "PORTOLAN_DATAGRAM_STATS",
        "no",
        "1: a rank prints the counts of reliable datagrams at its close",
    ),
    of(
        Verbs,
        "PORTOLAN_DEVICE",
        "the first usable one",
        "RDMA device, such as rxe0 or mlx5_1:2 with a port (--device)",
    ),
    of(
        Verbs,
        "PORTOLAN_GID",
        "the one that reaches most peers",
        "address of the device's port, or its index (--gid)",
    ),
    of(
        Verbs,
        "PORTOLAN_MEMLOCK",
        "three quarters of ulimit -l",
        "memory that may be registered, such as 1G",
    ),
    of(
        Verbs,
        "PORTOLAN_PKEY_INDEX",
        "0",
        "index of the partition key",
    ),
    of(
        Verbs,
        "PORTOLAN_PROGRESS",
        "calls",
        "who makes progress while the program computes: thread or calls",
    ),
    of(
        Verbs,
        "PORTOLAN_RINGS",
        "8",
        "most peers whose short messages are written where this rank looks, 0 to 64",
    ),
    of(
        Verbs,
        "PORTOLAN_SHORT_GETS",
        "measured",
        "who reads what a short get is for: measured, adapter or am",
    ),
    of(
        Verbs,
        "PORTOLAN_SL",
        "0",
        "InfiniBand service level, 0 to 15",
    ),
    of(
        Verbs,
        "PORTOLAN_TRAFFIC_CLASS",
        "0",
        "traffic class of RoCE v2 packets, 0 to 255",
    ),
    of(
        Verbs,
        "PORTOLAN_WRITE_FROM",
        "2048",
        "bytes from which a put is written into its descriptor; 0 is never",
    ),
    of(
        Seastar,
        "PORTOLAN_EXE",
        "beside the program, one folder up, in PATH",
        "the portolan that holds the simulation",
    ),
    of(
        Seastar,
        "PORTOLAN_MACHINE",
        "xt4",
        "machine that is modelled, or its file (--machine)",
    ),
    of(
        Seastar,
        "PORTOLAN_MACHINE_SET",
        "none",
        "parameters of it that have another value, as host.trap=0.2,chip.tx_rate=2000 (--set)",
    ),
    of(
        Seastar,
        "PORTOLAN_MAP",
        "linear",
        "place of each rank on the grid: blocked:2, random:7 or a file (--map)",
    ),
    of(
        Seastar,
        "PORTOLAN_SEASTAR_FAULTS",
        "none",
        "file of what goes wrong (--faults)",
    ),
    of(
        Seastar,
        "PORTOLAN_SEASTAR_FAULT_SEED",
        "that of the file",
        "seed of what goes wrong at random, and rates (--fault-seed)",
    ),
    of(
        Seastar,
        "PORTOLAN_SEASTAR_MODE",
        "generic",
        "who matches: generic or accelerated (--mode)",
    ),
    of(
        Seastar,
        "PORTOLAN_SILENT_RANK",
        "60, of an open simulation 1",
        "seconds that a rank may run without a call before the others go on",
    ),
    of(
        Seastar,
        "PORTOLAN_SIMULATION",
        "none",
        "simulation that endpoints of no job join, as portolan simulate prints it",
    ),
    of(
        Seastar,
        "PORTOLAN_TOPOLOGY",
        "the smallest torus that holds the nodes",
        "grid of nodes, such as 4x4x2 (--topology)",
    ),
    of(
        Simulation,
        "PORTOLAN_TRACE",
        "none",
        "file of the timeline (trace --out)",
    ),
    of(
        Simulation,
        "PORTOLAN_TRACE_BIN",
        "1",
        "width of a bin of link loads in microseconds (trace --bin)",
    ),
    of(
        Simulation,
        "PORTOLAN_TRACE_COUNTERS",
        "none",
        "file of the registers of the NIC control blocks (trace --counters)",
    ),
    of(
        Simulation,
        "PORTOLAN_TRACE_ERRORS",
        "standard error",
        "file of what is not whole",
    ),
    of(
        Simulation,
        "PORTOLAN_TRACE_LINKS",
        "none",
        "file of what each link carried (trace --links)",
    ),
    of(
        Simulation,
        "PORTOLAN_TRACE_LINK_SERIES",
        "none",
        "file of what each link carried over time (trace --link-series)",
    ),
    of(
        Simulation,
        "PORTOLAN_TRACE_PACKETS",
        "1",
        "0: packets are not part of the timeline (trace --no-packets)",
    ),
    of(
        Simulation,
        "PORTOLAN_TRACE_PCAP",
        "none",
        "file of all packets (trace --pcap)",
    ),
    of(
        Simulation,
        "PORTOLAN_TRACE_SVG",
        "none",
        "file of the picture (trace --svg)",
    ),
    of(
        Simulation,
        "PORTOLAN_TRACE_TITLE",
        "none",
        "what the picture is headed, and the program of the timeline",
    ),
    of(
        Simulation,
        "PORTOLAN_TRACE_WINDOW",
        "the whole run",
        "part of the run that is drawn, FROM..TO in microseconds (trace --window)",
    ),
    of(
        Interface,
        "PORTOLAN_CRAY_GET_EVENTS",
        "no",
        "1: a get costs two operations, as on Cray's systems",
    ),
    of(
        Interface,
        "PORTOLAN_CRAY_START",
        "no",
        "1: PtlNIInit works without a PtlInit before it",
    ),
    of(
        Interface,
        "PORTOLAN_CRAY_UNLINK_EVENTS",
        "no",
        "1: automatic unlinks post no event, as on Cray's systems",
    ),
    of(
        Conduit,
        "GASNET_BACKTRACE",
        "no",
        "a rank that fails says where it is",
    ),
    of(
        Conduit,
        "GASNET_BACKTRACE_NODES",
        "all",
        "ranks that do, such as 0,2-4",
    ),
    of(
        Conduit,
        "GASNET_BACKTRACE_TYPE",
        "all",
        "ways to print a backtrace that a program of gasnet_tools.h takes",
    ),
    of(
        Conduit,
        "GASNET_EXITTIMEOUT",
        "from the number of ranks",
        "seconds that an exit waits for the other ranks",
    ),
    of(
        Conduit,
        "GASNET_EXITTIMEOUT_FACTOR",
        "0.25",
        "seconds that each rank adds to that time",
    ),
    of(
        Conduit,
        "GASNET_EXITTIMEOUT_MAX",
        "360",
        "longest such time, seconds",
    ),
    of(
        Conduit,
        "GASNET_EXITTIMEOUT_MIN",
        "5",
        "shortest such time, seconds",
    ),
    of(
        Conduit,
        "GASNET_FREEZE",
        "no",
        "ranks wait for a debugger when they have joined",
    ),
    of(
        Conduit,
        "GASNET_FREEZE_ON_ERROR",
        "no",
        "ranks wait for a debugger when they fail",
    ),
    of(
        Conduit,
        "GASNET_MAX_SEGSIZE",
        "a part of the memory",
        "largest segment, bytes or with K, M, G, T",
    ),
    of(
        Conduit,
        "GASNET_NO_CATCH_SIGNAL",
        "no",
        "signals are left alone",
    ),
    of(
        Conduit,
        "GASNET_PACKEDLONG_LIMIT",
        "2048",
        "longest payload of a Long request that travels with its header, bytes",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_AMRECV_SPACE",
        "from the number of ranks",
        "bytes for requests that come in, with flow control and without",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_AM_LIMIT",
        "8",
        "events of the queue of requests in one poll; 0 is no limit",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_BANKED_CREDITS",
        "from the number of ranks",
        "credits that a rank holds back to lend",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_CREDIT_STATS",
        "no",
        "file portals-credits.RANK: statistics of credits at the end",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_CRED_PER_NODE",
        "from the number of ranks",
        "credits that each rank starts with for each other",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_DYNAMIC_CREDITS",
        "as flow control",
        "credits move to the ranks that need them",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_EPOCH_DURATION",
        "1024",
        "requests received that make an epoch",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_FLOW_CONTROL",
        "yes",
        "requests need credits; without it an overflow is possible, and fatal",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_GET_BOUNCE_LIMIT",
        "2040",
        "largest get that is copied through a chunk, bytes",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_MAX_CRED_PER_NODE",
        "400",
        "most credits that a rank lends to any one other, those of the start included; at most 65535",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_MSG_LIMIT",
        "250",
        "send tickets, at least 12",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_NEAR",
        "yes",
        "active messages between ranks that share memory are frames",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_NUM_TMPMD",
        "1024",
        "temporary descriptors, 2 to 32768",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_PACKED_LONG",
        "yes",
        "a Long that fits a chunk is one message",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_PUTGET_BOUNCE_LIMIT",
        "2048",
        "largest transfer that is copied through a chunk, bytes",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_PUT_BOUNCE_LIMIT",
        "that of both",
        "largest put that is copied through a chunk, bytes",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_RPL_CHUNKS",
        "256",
        "chunks for replies",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_SAFE_LIMIT",
        "12",
        "events of the safe queue in one poll; 0 is no limit",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_SB_CHUNKS",
        "2048",
        "chunks for requests, at most 4096",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_STATS",
        "no",
        "file credits.RANK: a table of the credits at the start and for each epoch",
    ),
    of(
        Conduit,
        "GASNET_PORTAL_SYS_LIMIT",
        "0",
        "events of the system queue in one poll; 0 is no limit",
    ),
    of(Conduit, "GASNET_QUIET", "no", "warnings are left out"),
    of(
        Conduit,
        "GASNET_STATSFILE",
        "none",
        "file of statistics; % is the rank",
    ),
    of(
        Conduit,
        "GASNET_STATSMASK",
        "GPSWXBLAICDNH",
        "categories that are counted",
    ),
    of(
        Conduit,
        "GASNET_STATSNODES",
        "all",
        "ranks that write statistics, such as 0,2-4",
    ),
    of(
        Conduit,
        "GASNET_TMPDIR",
        "TMPDIR, else the working directory",
        "where files of statistics go",
    ),
    of(
        Conduit,
        "GASNET_TRACEFILE",
        "none",
        "file of the trace; % is the rank",
    ),
    of(
        Conduit,
        "GASNET_TRACEFLUSH",
        "no",
        "every line reaches its file at once",
    ),
    of(
        Conduit,
        "GASNET_TRACELOCAL",
        "yes",
        "lines for puts and gets of the own segment",
    ),
    of(
        Conduit,
        "GASNET_TRACEMASK",
        "GPSWXBLAICDNH",
        "categories that have lines",
    ),
    of(
        Conduit,
        "GASNET_TRACENODES",
        "all",
        "ranks that write traces, such as 0,2-4",
    ),
    of(
        Conduit,
        "GASNET_VERBOSEENV",
        "no",
        "rank 0 prints every variable of GASNet and what counts",
    ),
    of(
        Firehose,
        "GASNET_DISABLE_MUNMAP",
        "yes",
        "0: the allocator may give memory back while it is pinned",
    ),
    of(
        Firehose,
        "GASNET_FIREHOSE_M",
        "3/4 of what may be pinned",
        "memory that all peers together may hold of a rank",
    ),
    of(
        Firehose,
        "GASNET_FIREHOSE_MAXREGION_SIZE",
        "128K",
        "bytes of a unit of pinning",
    ),
    of(
        Firehose,
        "GASNET_FIREHOSE_MAXVICTIM_M",
        "1/4 of what may be pinned",
        "memory for own transfers and for units that nobody holds any more",
    ),
    of(
        Firehose,
        "GASNET_FIREHOSE_TIMEOUT",
        "none",
        "seconds that a peer may leave a request of pinning without an answer",
    ),
    of(
        Firehose,
        "GASNET_PHYSMEM_MAX",
        "the machine's memory or the control group's",
        "what counts as memory of the machine",
    ),
    of(
        Firehose,
        "GASNET_PHYSMEM_PINNABLE_RATIO",
        "0.7",
        "part of it that all ranks of a machine may pin",
    ),
    of(
        Firehose,
        "GASNET_RDMA_GETS",
        "yes",
        "no: the owner of memory sends what a get asks for",
    ),
    of(
        Firehose,
        "GASNET_USE_FIREHOSE",
        "yes",
        "no: local memory is pinned for each message",
    ),
    of(
        Provider,
        "FI_PORTOLAN_DEVICE",
        "PORTOLAN_DEVICE, or the first usable one",
        "RDMA device",
    ),
    of(
        Provider,
        "FI_PORTOLAN_FABRIC",
        "PORTOLAN_FABRIC, or shm",
        "fabric: shm, verbs or seastar",
    ),
    of(
        Nobody,
        "GASNET_PHYSMEM_NOPROBE",
        "–",
        "nothing is pinned to find out how much can be",
    ),
    of(
        Nobody,
        "GASNET_PORTAL_ACCEL",
        "–",
        "the mode is the fabric's: --mode accelerated",
    ),
    of(
        Nobody,
        "GASNET_PORTAL_DEBUG_NODE",
        "–",
        "there is no debug output to restrict to one rank",
    ),
];
