//! TLS: noise at a server, and handshakes and records that were changed on their way.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fabric::tls::fuzzing::tls(bytes));
