//! Kerberos 5 tickets, whole or only their encrypted part.
//!
//! Source: RFC 4120, sections 5.3 and 5.2.9; OpenAFS `src/rxkad/ticket5.c` for the names.

use zeroize::Zeroizing;

use super::asn1::{
    Elements, put_application, put_bits, put_field, put_int, put_octets, put_sequence, put_text,
    put_time,
};
use super::code;
use super::derive::session_key_from_krb5;
use super::kerberos::{self, DES_CBC_CRC, TICKET_USAGE};
use super::keys::RxkadKeys;
use super::open_ticket::OpenTicket;

const TICKET: u32 = 1;
const ENC_TICKET_PART: u32 = 3;
/// Ticket flags, bit 0 highest: 7 is "invalid", 12 "transited policy checked".
const FLAG_INVALID: u32 = 1 << (31 - 7);
const FLAG_TRANSITED_CHECKED: u32 = 1 << (31 - 12);
const NAME_PRINCIPAL: u32 = 1;
/// Encryption types whose keys are in the file of DES keys.
const DES_TYPES: [i64; 3] = [1, 2, 3];

/// Services whose Kerberos 4 names differ, and have only a host's first label.
const HOST_SERVICES: [(&str, &str); 6] = [
    ("host", "rcmd"),
    ("ftp", "ftp"),
    ("pop", "pop"),
    ("imap", "imap"),
    ("http", "http"),
    ("sample", "sample"),
];

/// Opens a whole ticket.
pub(super) fn open_ticket(ticket: &[u8], keys: &RxkadKeys) -> Result<OpenTicket, i32> {
    let part = || {
        let mut fields = Elements::of_application(TICKET, ticket)?;
        fields.int(0).filter(|version| *version == 5)?;
        fields.field(1)?;
        fields.field(2)?;
        fields.field(3)
    };
    open_part(part().ok_or(code::BAD_TICKET)?, keys)
}

/// Opens the encrypted part of a ticket.
pub(super) fn open_part(part: &[u8], keys: &RxkadKeys) -> Result<OpenTicket, i32> {
    let fields = || {
        let mut fields = Elements::of_sequence(part)?;
        Some((fields.int(0)?, fields.int(1).unwrap_or(0) as u32, fields.octets(2)?))
    };
    let (kind, kvno, cipher) = fields().ok_or(code::BAD_TICKET)?;
    let des;
    let key = if DES_TYPES.contains(&kind) {
        des = keys.des(kvno).ok_or(code::UNKNOWN_KEY)?;
        &des[..]
    } else {
        let kind = i32::try_from(kind).map_err(|_| code::BAD_TICKET)?;
        keys.krb5(kvno, kind).ok_or(code::UNKNOWN_KEY)?
    };
    let plain = kerberos::decrypt(kind as i32, key, TICKET_USAGE, cipher);
    let plain = Zeroizing::new(plain.ok_or(code::BAD_TICKET)?);
    read_part(&plain)
}

fn read_part(plain: &[u8]) -> Result<OpenTicket, i32> {
    let fields = || {
        let mut fields = Elements::of_application(ENC_TICKET_PART, plain)?;
        let flags = fields.bits(0)?;
        let mut key = Elements::of_sequence(fields.field(1)?)?;
        let (key_type, key) = (i32::try_from(key.int(0)?).ok()?, key.octets(1)?);
        let cell = fields.text(2)?;
        let mut name = Elements::of_sequence(fields.field(3)?)?;
        name.int(0)?;
        let name = Elements::of_sequence(name.field(1)?)?.texts()?;
        fields.field(4)?;
        let authenticated = fields.time(5)?;
        let start = fields.time(6).unwrap_or(authenticated);
        Some((flags, (key_type, key), cell, name, start, fields.time(7)?))
    };
    let (flags, (key_type, key), cell, name, start, end) = fields().ok_or(code::BAD_TICKET)?;
    if flags & FLAG_INVALID != 0 {
        return Err(code::NO_AUTH);
    }
    let session_key = session_key_from_krb5(key_type, key).ok_or(code::BAD_KEY)?;
    let (name, instance) = version_4_name(&name).ok_or(code::BAD_TICKET)?;
    let session_key = Zeroizing::new(session_key);
    Ok(OpenTicket { name, instance, cell: cell.to_owned(), session_key, start, end })
}

/// The name and instance for a principal. A dot in the first part would be taken for the dot
/// between the two.
fn version_4_name(parts: &[&str]) -> Option<(String, String)> {
    let (name, instance) = match parts {
        [name] => (*name, ""),
        [name, instance] => (*name, *instance),
        _ => return None,
    };
    if name.contains('.') || name.is_empty() {
        return None;
    }
    let service = HOST_SERVICES.iter().find(|(service, _)| *service == name);
    Some(match service {
        Some((_, old)) if !instance.is_empty() => {
            let label = instance.split('.').next().unwrap_or_default();
            ((*old).to_owned(), label.to_owned())
        }
        _ => (name.to_owned(), instance.to_owned()),
    })
}

/// A principal's ticket as a server prints it.
pub(super) struct NewTicket<'a> {
    pub(super) name: &'a str,
    pub(super) realm: &'a str,
    pub(super) session_key: [u8; 8],
    pub(super) start: u32,
    pub(super) end: u32,
}

/// The encrypted part of a ticket; `None` if there is no encryption with this key.
pub(super) fn seal_part(
    ticket: &NewTicket<'_>,
    (kvno, kind, key): (u32, i32, &[u8]),
    confounder: [u8; 16],
) -> Option<Vec<u8>> {
    let session = [
        put_field(0, &put_int(DES_CBC_CRC as u32)),
        put_field(1, &put_octets(&ticket.session_key)),
    ];
    let name = [
        put_field(0, &put_int(NAME_PRINCIPAL)),
        put_field(1, &put_sequence(&[put_text(ticket.name)])),
    ];
    let transited = [put_field(0, &put_int(0)), put_field(1, &put_octets(&[]))];
    let plain = put_application(
        ENC_TICKET_PART,
        &put_sequence(&[
            put_field(0, &put_bits(FLAG_TRANSITED_CHECKED)),
            put_field(1, &put_sequence(&session)),
            put_field(2, &put_text(ticket.realm)),
            put_field(3, &put_sequence(&name)),
            put_field(4, &put_sequence(&transited)),
            put_field(5, &put_time(ticket.start)),
            put_field(7, &put_time(ticket.end)),
        ]),
    );
    let plain = Zeroizing::new(plain);
    let cipher = kerberos::encrypt(kind, key, TICKET_USAGE, confounder, &plain)?;
    Some(put_sequence(&[
        put_field(0, &put_int(kind as u32)),
        put_field(1, &put_int(kvno)),
        put_field(2, &put_octets(&cipher)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> RxkadKeys {
        let mut keys = RxkadKeys::new();
        keys.add_krb5(7, 18, &[5; 32]);
        keys
    }

    fn part() -> Vec<u8> {
        let ticket = NewTicket {
            name: "joe",
            realm: "EXAMPLE.COM",
            session_key: [3; 8],
            start: 1_000_000_000,
            end: 0x7fff_ffff,
        };
        seal_part(&ticket, (7, 18, &[5; 32]), [1; 16]).unwrap()
    }

    #[test]
    fn a_sealed_part_opens_alone_and_in_a_ticket() {
        let opened = open_part(&part(), &keys()).unwrap();
        assert_eq!((&*opened.name, &*opened.instance, &*opened.cell), ("joe", "", "EXAMPLE.COM"));
        assert_eq!(*opened.session_key, [3; 8]);
        assert_eq!((opened.start, opened.end), (1_000_000_000, 0x7fff_ffff));
        let server = [
            put_field(0, &put_int(1)),
            put_field(1, &put_sequence(&[put_text("afs"), put_text("example.com")])),
        ];
        let ticket = put_application(
            TICKET,
            &put_sequence(&[
                put_field(0, &put_int(5)),
                put_field(1, &put_text("EXAMPLE.COM")),
                put_field(2, &put_sequence(&server)),
                put_field(3, &part()),
            ]),
        );
        assert_eq!(open_ticket(&ticket, &keys()), Ok(opened));
        for len in 0..ticket.len() {
            assert_eq!(open_ticket(&ticket[..len], &keys()), Err(code::BAD_TICKET), "{len}");
        }
    }

    #[test]
    fn a_part_with_another_key_is_refused() {
        let mut other = RxkadKeys::new();
        other.add_krb5(8, 18, &[5; 32]);
        assert_eq!(open_part(&part(), &other), Err(code::UNKNOWN_KEY));
        other.add_krb5(7, 18, &[6; 32]);
        assert_eq!(open_part(&part(), &other), Err(code::BAD_TICKET));
    }

    #[test]
    fn names_are_those_of_version_4() {
        let name = |parts: &[&str]| version_4_name(parts).map(|(a, b)| format!("{a}.{b}"));
        assert_eq!(name(&["joe"]).unwrap(), "joe.");
        assert_eq!(name(&["joe", "admin"]).unwrap(), "joe.admin");
        assert_eq!(name(&["host", "a.example.com"]).unwrap(), "rcmd.a");
        assert_eq!(name(&["j.oe"]), None);
        assert_eq!(name(&["a", "b", "c"]), None);
        assert_eq!(name(&[]), None);
    }
}
