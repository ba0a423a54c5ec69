//! The names of all spans, fields and waits.

/// The target of all spans, for filters such as `RIALTO_LOG=rialto::request=debug`.
pub const TARGET: &str = "rialto::request";

/// One request of the kernel to a mount.
pub const MOUNT_REQUEST: &str = "mount_request";
/// One call of a client to a server, from its submission to its answer.
pub const CLIENT_CALL: &str = "client_call";
/// One call that a server executes.
pub const SERVER_CALL: &str = "server_call";
/// One batch of changes that a partition's engine writes.
pub const STORE_WRITE: &str = "store_write";

/// Each span with its meaning.
pub const SPANS: [(&str, &str); 4] = [
    (MOUNT_REQUEST, "one request of the kernel to a mount"),
    (CLIENT_CALL, "one call of a client to a server, from its submission to its answer"),
    (SERVER_CALL, "one call that a server executes"),
    (STORE_WRITE, "one batch of changes that a partition's engine writes"),
];

/// The fields of the spans of requests, each with its meaning.
pub const FIELDS: [(&str, &str); 5] = [
    ("op", "the operation: the call's name, or the kernel's opcode"),
    ("fid", "the file that the request is about, if any"),
    ("volume", "the number of its volume"),
    ("session", "the number of the session; in a mount the process that asks"),
    ("id", "the number of the request within the layer"),
];

/// A duration that is worth knowing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// A request of the kernel, from its arrival in the mount to the reply.
    MountRequest,
    /// A call of a client, from its submission to its answer.
    ClientCall,
    /// A call at the server that waits for a thread of a pool.
    ServerQueue,
    /// A call at the server, while a thread executes it.
    ServerCall,
    /// A change at the server that waits until all clients have acknowledged its breaks.
    BreakAcknowledged,
    /// A sync of a partition's engine or bodies to disk.
    StoreSync,
}

impl Wait {
    /// Every wait.
    pub const ALL: [Wait; 6] = [
        Wait::MountRequest,
        Wait::ClientCall,
        Wait::ServerQueue,
        Wait::ServerCall,
        Wait::BreakAcknowledged,
        Wait::StoreSync,
    ];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Wait::MountRequest => "mount_request",
            Wait::ClientCall => "client_call",
            Wait::ServerQueue => "server_queue",
            Wait::ServerCall => "server_call",
            Wait::BreakAcknowledged => "break_acknowledged",
            Wait::StoreSync => "store_sync",
        }
    }

    /// The meaning, for people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Wait::MountRequest => {
                "a request of the kernel, from its arrival in the mount to the reply"
            }
            Wait::ClientCall => "a call of a client, from its submission to its answer",
            Wait::ServerQueue => "a call at the server that waits for a thread of a pool",
            Wait::ServerCall => "a call at the server, while a thread executes it",
            Wait::BreakAcknowledged => {
                "a change at the server that waits until all clients have acknowledged its breaks"
            }
            Wait::StoreSync => "a sync of a partition's engine or bodies to disk",
        }
    }
}
