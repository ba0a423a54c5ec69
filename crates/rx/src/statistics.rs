//! Counters of an endpoint.

/// Numbers that kinds of packets may have.
pub const KINDS: usize = 14;

/// Counters since the start. All but the last four only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxStatistics {
    /// Datagrams that arrived.
    pub datagrams_received: u64,
    /// Datagrams that were sent.
    pub datagrams_sent: u64,
    /// Bytes that arrived.
    pub bytes_received: u64,
    /// Bytes that were sent.
    pub bytes_sent: u64,
    /// Packets that arrived, by the number of their kind.
    pub received_kinds: [u64; KINDS],
    /// Packets that were sent.
    pub sent_kinds: [u64; KINDS],
    /// Data packets sent for the first time.
    pub data_sent: u64,
    /// Data packets sent again.
    pub data_resent: u64,
    /// Resend timers that ended.
    pub timeouts: u64,
    /// Losses after which the congestion window was made smaller, without a timer.
    pub recoveries: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Acknowledgements received and believed.
    pub acks_received: u64,
    /// Round trips that were measured.
    pub round_trips: u64,
    /// Data packets that were here already.
    pub duplicates: u64,
    /// Datagrams that were no packet, or one that made no sense where it came.
    pub dropped_malformed: u64,
    /// Packets of no connection, channel or call, or of one from the past.
    pub dropped_stale: u64,
    /// Acknowledgements that were older than an earlier one, or of packets never sent.
    pub dropped_acks: u64,
    /// Packets with a wrong checksum or seal.
    pub dropped_seal: u64,
    /// Packets for which there was no room.
    pub dropped_full: u64,
    /// Answers that were not sent because they are larger than what the peer had sent.
    pub withheld: u64,
    /// Challenges sent.
    pub challenges_sent: u64,
    /// Challenges answered.
    pub responses_sent: u64,
    /// Responses that proved the caller.
    pub responses_good: u64,
    /// Responses that did not.
    pub responses_bad: u64,
    /// Probes of an address that were sent.
    pub probes_sent: u64,
    /// Connections without proof that were dropped for newer ones.
    pub unproved_dropped: u64,
    /// Calls of peers given to the application.
    pub calls_served: u64,
    /// Calls of peers answered with "busy".
    pub calls_refused: u64,
    /// Calls of this side.
    pub calls_made: u64,
    /// Connections now.
    pub connections: u64,
    /// Connections without proof now.
    pub unproved: u64,
    /// Calls that are not over now.
    pub calls: u64,
    /// Bytes that calls buffer now.
    pub buffered: u64,
}
