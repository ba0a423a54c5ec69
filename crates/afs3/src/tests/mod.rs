//! Tests: golden bytes of every structure, call and answer, round trips, and bytes that are wrong.

mod bos;
mod callbacks;
mod cellserv;
mod directory;
mod dump;
mod errors;
mod files;
mod fixtures;
mod locations;
mod messages;
mod openafs;
mod protection;
mod rights;
mod statistics;
mod structs;
mod ubik;
mod volumes;
mod xdr;
