//! The generic command and the statistics of file servers.

use super::{AfsFid, FetchStatus};
use crate::xdr::{Chars, FixedOpaque, xdr_struct};

xdr_struct! {
    /// The arguments of the generic command. The command decides their meaning; servers without
    /// AFS/OSD refuse all commands.
    pub struct FsCommandInputs {
        command: i32,
        fid: AfsFid,
        longs: [i64; 3],
        words: [u32; 200],
        text: Chars<256>,
    }

    /// The results of the generic command.
    pub struct FsCommandOutputs {
        code: i32,
        status: FetchStatus,
        longs: [i64; 3],
        words: [u32; 200],
        text: Chars<256>,
    }

    /// A partition in the statistics.
    pub struct ViceDisk { blocks_available: i32, total_blocks: i32, name: FixedOpaque<32> }

    /// A file server's statistics in their old form.
    pub struct ViceStatistics {
        current_message_number: u32,
        oldest_message_number: u32,
        current_time: u32,
        boot_time: u32,
        start_time: u32,
        current_connections: i32,
        total_vice_calls: u32,
        total_fetches: u32,
        fetch_datas: u32,
        fetched_bytes: u32,
        fetch_data_rate: i32,
        total_stores: u32,
        store_datas: u32,
        stored_bytes: u32,
        store_data_rate: i32,
        rpc_bytes_sent: u32,
        rpc_bytes_received: u32,
        rpc_packets_sent: u32,
        rpc_packets_received: u32,
        rpc_packets_lost: u32,
        rpc_bogus_packets: u32,
        system_cpu: i32,
        user_cpu: i32,
        nice_cpu: i32,
        idle_cpu: i32,
        total_io: i32,
        active_vm: i32,
        total_vm: i32,
        ethernet_errors: i32,
        ethernet_writes: i32,
        ethernet_interrupts: i32,
        ethernet_good_reads: i32,
        ethernet_bytes_written: i32,
        ethernet_bytes_read: i32,
        process_size: i32,
        workstations: i32,
        active_workstations: i32,
        spares: [i32; 8],
        disk1: ViceDisk,
        disk2: ViceDisk,
        disk3: ViceDisk,
        disk4: ViceDisk,
        disk5: ViceDisk,
        disk6: ViceDisk,
        disk7: ViceDisk,
        disk8: ViceDisk,
        disk9: ViceDisk,
        disk10: ViceDisk,
    }
}
