//! The bytes of Rx packets: the header, acknowledgements, jumbograms, version and debug packets.
//!
//! Nothing here keeps state. Everything that arrives is read by these functions, which return
//! `None` for bytes that are no packet.
//!
//! Source: OpenAFS `src/rx/rx.h`, `src/rx/rx_packet.h` (`struct rx_ackPacket`), `rx_packet.c`.

mod ack;
mod header;
mod jumbo;
mod version;

pub use ack::{AckPacket, AckReason, AckTrailers};
pub use header::{PacketHeader, PacketType, flags};
pub use jumbo::Subpackets;
pub use version::{VERSION_BYTES, version_text};
