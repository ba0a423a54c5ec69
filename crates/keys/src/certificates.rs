//! The form of a cell's certificates: what they say, how long they are valid, and what is read from
//! them. No files.
//!
//! There are two kinds. An *authority* may sign others; its common name has the cell's name. The
//! certificate of a *server* has the server's host names and addresses, and a name that all servers
//! of a cell have ([`CELL_SERVER`]). Clients trust it by its signature. Other servers know the
//! server by the key in it, which the cell database lists.

use std::time::{Duration, SystemTime};

use aws_lc_rs::rand::fill;
use fabric::tls::pki_types::CertificateDer;
use fabric::tls::pki_types::pem::PemObject;
use fabric::tls::{CELL_SERVER, print_of};
use guard::CertifiedServer;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
    SerialNumber,
};
use types::{KeyPrint, hex};
use x509_parser::certificate::X509Certificate;
use x509_parser::time::ASN1Time;

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
/// An authority lasts as long as a cell.
const AUTHORITY_LIFE: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
/// The lifetime of a server's certificate.
pub(crate) const SERVER_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
/// A server's certificate is replaced when it ends sooner than that, or when half of its life is
/// over.
pub const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);
/// The lifetime of a certificate that is signed for another server. Clients that reach no other
/// server of the cell accept it until then, whatever happened to it meanwhile.
pub const JOINED_LIFE: Duration = Duration::from_secs(14 * 24 * 3600);

/// The common name of each server's certificate and signing request.
pub(crate) const SERVER_NAME: &str = "Rialto server";

/// The common name of a cell's authority.
fn authority_name(cell: &str) -> String {
    format!("Rialto cell {cell}")
}

/// An authority of the cell.
pub(crate) fn authority_params(
    cell: &str,
    now: SystemTime,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, authority_name(cell));
    // Each successor has a name of its own: with equal names a chain would have two paths.
    let serial = serial();
    let number = hex(&serial.to_bytes()[..4]);
    params.distinguished_name.push(DnType::OrganizationalUnitName, number);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.not_before, params.not_after) = span(now, AUTHORITY_LIFE);
    params.serial_number = Some(serial);
    Ok(params)
}

/// A server's certificate with these host names and addresses.
pub(crate) fn server_params(
    names: &[String],
    now: SystemTime,
) -> Result<CertificateParams, rcgen::Error> {
    let all = std::iter::once(CELL_SERVER.to_owned()).chain(names.iter().cloned());
    let mut params = CertificateParams::new(all.collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, SERVER_NAME);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    (params.not_before, params.not_after) = span(now, SERVER_LIFE);
    params.serial_number = Some(serial());
    Ok(params)
}

/// As [`server_params`], of a server that does not sign itself: the certificate names the cell, the
/// server and its roles, for people. The list of keys in the cell database decides.
pub(crate) fn joined_params(
    cell: &str,
    server: &CertifiedServer,
    life: Duration,
    now: SystemTime,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = server_params(&server.hosts, now)?;
    (params.not_before, params.not_after) = span(now, life);
    params.distinguished_name.push(DnType::OrganizationName, authority_name(cell));
    params.distinguished_name.push(DnType::OrganizationalUnitName, server.roles.to_string());
    params.distinguished_name.push(DnType::CommonName, server.name.clone());
    Ok(params)
}

/// Begins a day before, for clocks that are behind.
fn span(now: SystemTime, life: Duration) -> (time::OffsetDateTime, time::OffsetDateTime) {
    ((now - DAY).into(), (now + life).into())
}

fn serial() -> SerialNumber {
    let mut bytes = [0; 16];
    fill(&mut bytes).expect("the system has random numbers");
    // Positive, and of full length.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&bytes)
}

/// The certificates of a text (PEM).
pub(crate) fn certificates(text: &str) -> impl Iterator<Item = CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(text.as_bytes()).filter_map(Result::ok)
}

/// The first of them.
pub(crate) fn first_certificate(text: &str) -> Option<CertificateDer<'static>> {
    certificates(text).next()
}

fn parsed(certificate: &[u8]) -> Option<X509Certificate<'_>> {
    x509_parser::parse_x509_certificate(certificate).ok().map(|(_, parsed)| parsed)
}

/// Has the authority signed the certificate? Not if one of them cannot be read.
pub(crate) fn is_signed_by(certificate: &[u8], authority: &[u8]) -> bool {
    parsed(certificate).zip(parsed(authority)).is_some_and(|(certificate, authority)| {
        certificate.verify_signature(Some(authority.public_key())).is_ok()
    })
}

/// Has the authority `older` signed the authority `newer`?
pub fn succeeds(newer: &[u8], older: &[u8]) -> bool {
    let is_authority = |one| parsed(one).is_some_and(|one| one.is_ca());
    is_authority(newer) && is_authority(older) && is_signed_by(newer, older)
}

/// The key that a certificate is for; `None`: it cannot be read.
pub(crate) fn key_in(certificate: &[u8]) -> Option<KeyPrint> {
    Some(print_of(parsed(certificate)?.public_key().raw))
}

/// The begin and the end of a certificate; `None`: it cannot be read.
pub(crate) fn validity(certificate: &[u8]) -> Option<(SystemTime, SystemTime)> {
    let time = |time: ASN1Time| {
        let seconds = u64::try_from(time.timestamp()).unwrap_or(0);
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    };
    let parsed = parsed(certificate)?;
    Some((time(parsed.validity().not_before), time(parsed.validity().not_after)))
}

/// The roles that a certificate of [`joined_params`] says; `None`: it says none.
pub(crate) fn roles_in(certificate: &[u8]) -> Option<String> {
    let parsed = parsed(certificate)?;
    let roles = parsed.subject().iter_organizational_unit().next()?;
    roles.as_str().ok().map(str::to_owned)
}

/// Is it an authority of this cell?
pub(crate) fn is_of_cell(authority: &[u8], cell: &str) -> bool {
    let wanted = authority_name(cell);
    parsed(authority).is_some_and(|parsed| {
        parsed.subject().iter_common_name().any(|name| name.as_str() == Ok(&wanted))
    })
}
