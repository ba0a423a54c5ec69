//! Codes.

use crate::errors::*;

/// Numbers and names, as the documents list them.
fn check(table: &ErrorTable, prefix: &str, listed: &str) {
    let words: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(words.len(), 2 * table.names.len());
    for pair in words.chunks(2) {
        let number: usize = pair[0].parse().unwrap();
        let name = format!("{prefix}{}", pair[1]);
        assert_eq!(table.names[number], name);
        assert_eq!(code_name(table.base + number as i32), Some(&name[..]));
    }
}

#[test]
fn tables_have_their_names_in_order() {
    check(
        &VL,
        "VL_",
        "0 IDEXIST 1 IO 2 NAMEEXIST 3 CREATEFAIL 4 NOENT 5 EMPTY 6 ENTDELETED 7 BADNAME \
         8 BADINDEX 9 BADVOLTYPE 10 BADSERVER 11 BADPARTITION 12 REPSFULL 13 NOREPSERVER \
         14 DUPREPSERVER 15 RWNOTFOUND 16 BADREFCOUNT 17 SIZEEXCEEDED 18 BADENTRY \
         19 BADVOLIDBUMP 20 IDALREADYHASHED 21 ENTRYLOCKED 22 BADVOLOPER 23 BADRELLOCKTYPE \
         24 RERELEASE 25 BADSERVERFLAG 26 PERM 27 NOMEM 28 BADVERSION 29 INDEXERANGE \
         30 MULTIPADDR 31 BADMASK 32 DBBAD",
    );
    check(
        &PT,
        "PR",
        "0 EXIST 1 IDEXIST 2 NOIDS 3 DBFAIL 4 NOENT 5 PERM 6 NOTGROUP 7 NOTUSER 8 BADNAM 9 BADARG \
         10 NOMORE 11 DBBAD 12 GROUPEMPTY 13 INCONSISTENT 14 DBADDR 15 TOOMANY 16 NOMEM \
         17 INTERNAL 18 NAMETOOLONG",
    );
    check(
        &VOLS,
        "VOLSER",
        "0 TRELE_ERROR 1 NO_OP 2 READ_DUMPERROR 3 DUMPERROR 4 ATTACH_ERROR 5 ILLEGAL_PARTITION \
         6 DETACH_ERROR 7 BAD_ACCESS 8 VLDB_ERROR 9 BADNAME 10 VOLMOVED 11 BADOP 12 BADRELEASE \
         13 VOLBUSY 14 NO_MEMORY 15 NOVOL 16 MULTIRWVOL 17 FAILEDOP",
    );
    check(
        &BZ,
        "BZ",
        "0 NOTACTIVE 1 NOENT 2 BUSY 3 EXISTS 4 NOCREATE 5 DOM 6 ACCESS 7 SYNTAX 8 IO 9 NET \
         10 BADTYPE 11 KEYINUSE 12 ENCREQ",
    );
    check(
        &U,
        "U",
        "0 NOQUORUM 1 NOTSYNC 2 NHOSTS 3 IOERROR 4 INTERNAL 5 SYNC 6 NOENT 7 BADLOCK 8 BADLOG \
         9 BADHOST 10 BADTYPE 11 TWOENDS 12 DONE 13 NOSERVERS 14 EOF 15 LOGIO 16 BADFAM \
         17 BADCELL 18 BADSECGRP 19 BADGROUP 20 BADUUID 21 NOMEM 22 NOTMEMBER 23 NBINDINGS \
         24 BADPRINNAME 25 PIPE 26 DEADLOCK 27 EXCEPTION 28 TPQFAIL 29 SKEWED 30 NOLOCK \
         31 NOACCESS 32 NOSPC 33 BADPATH 34 BADF 35 REINITIALIZE 36 MUTEXINIT 37 MUTEXDESTROY",
    );
    check(
        &RXK,
        "RXKAD",
        "0 INCONSISTENCY 1 PACKETSHORT 2 LEVELFAIL 3 TICKETLEN 4 OUTOFSEQUENCE 5 NOAUTH 6 BADKEY \
         7 BADTICKET 8 UNKNOWNKEY 9 EXPIRED 10 SEALEDINCON 11 DATALEN 12 ILLEGALLEVEL",
    );
    check(
        &RXGK,
        "RXGK_",
        "0 INCONSISTENCY 1 PACKETSHORT 2 BADCHALLENGE 3 BADETYPE 4 BADLEVEL 5 BADKEYNO 6 EXPIRED \
         7 NOTAUTH 8 BAD_TOKEN 9 SEALED_INCON 10 DATA_LEN 11 BAD_QOP",
    );
    check(
        &VICE,
        "V",
        "0 SALVAGE 1 NOVNODE 2 NOVOL 3 VOLEXISTS 4 NOSERVICE 5 OFFLINE 6 ONLINE 7 DISKFULL \
         8 OVERQUOTA 9 BUSY 10 MOVED 11 IO 12 SALVAGING",
    );
}

#[test]
fn codes_have_their_numbers() {
    assert_eq!((VSALVAGE, VNOVNODE, VNOVOL, VBUSY, VMOVED), (101, 102, 103, 110, 111));
    assert_eq!((VSALVAGING, VRESTRICTED, VRESTARTING), (113, 120, -100));
    assert_eq!((VL_IDEXIST, VL_NOENT, VL_ENTRYLOCKED, VL_PERM), (363520, 363524, 363541, 363546));
    assert_eq!((PRNOENT, PRPERM), (267_268, 267_269));
    assert_eq!((UNOQUORUM, UNOTSYNC), (5376, 5377));
    assert_eq!((VOLSERBAD_ACCESS, VOLSERVOLBUSY), (1_492_325_127, 1_492_325_133));
    assert_eq!((BZNOTACTIVE, BZDOM), (39424, 39429));
    assert_eq!((RXKADINCONSISTENCY, RXKADEXPIRED), (19_270_400, 19_270_409));
    assert_eq!(RXGK_EXPIRED, 1_233_242_886);
    let rx = [
        RX_CALL_DEAD,
        RX_INVALID_OPERATION,
        RX_CALL_TIMEOUT,
        RX_EOF,
        RX_PROTOCOL_ERROR,
        RX_USER_ABORT,
        RX_ADDRINUSE,
        RX_MSGSIZE,
    ];
    assert_eq!(rx, [-1, -2, -3, -4, -5, -6, -7, -8]);
    let rxgen = [
        RXGEN_CC_MARSHAL,
        RXGEN_CC_UNMARSHAL,
        RXGEN_SS_MARSHAL,
        RXGEN_SS_UNMARSHAL,
        RXGEN_DECODE,
        RXGEN_OPCODE,
        RXGEN_SS_XDRFREE,
        RXGEN_CC_XDRFREE,
    ];
    assert_eq!(rxgen, [-450, -451, -452, -453, -454, -455, -456, -457]);
    assert_eq!((VICECONNBAD, VICETOKENDEAD), (1234, 1235));
}

#[test]
fn codes_without_table_have_names_too() {
    assert_eq!(code_name(-455), Some("RXGEN_OPCODE"));
    assert_eq!(code_name(-100), Some("VRESTARTING"));
    assert_eq!(code_name(2), None);
    assert_eq!(code_name(363_553), None);
    assert_eq!(code_name(i32::MIN), None);
}

/// Error numbers of Linux, and places in the table UAE.
const PLACES: [(i32, i32); 30] = [
    (1, 0),
    (2, 1),
    (11, 10),
    (13, 12),
    (17, 16),
    (22, 21),
    (30, 29),
    (36, 35),
    (39, 38),
    (40, 39),
    (42, 41),
    (57, 56),
    (59, 57),
    (75, 73),
    (84, 82),
    (88, 86),
    (90, 88),
    (95, 93),
    (98, 96),
    (100, 98),
    (104, 102),
    (105, 103),
    (107, 105),
    (110, 108),
    (111, 109),
    (113, 111),
    (116, 114),
    (122, 120),
    (123, 121),
    (124, 122),
];

#[test]
fn error_numbers_are_places_of_the_table_uae() {
    assert_eq!(UAE_BASE, 0x2f6_df00);
    for (errno, place) in PLACES {
        assert_eq!(uae_from_errno(errno), Some(49_733_376 + place), "{errno}");
        assert_eq!(errno_from_uae(49_733_376 + place), Some(errno), "{place}");
    }
    for errno in [0, -1, 41, 58, 125, 600, i32::MIN, i32::MAX] {
        assert_eq!(uae_from_errno(errno), None, "{errno}");
    }
    // UAEWOULDBLOCK has no number of its own on Linux.
    assert_eq!(errno_from_uae(49_733_376 + 40), Some(11));
    for code in [49_733_375, 49_733_376 + 123, 0, i32::MIN, i32::MAX] {
        assert_eq!(errno_from_uae(code), None, "{code}");
    }
    for errno in (1..=124).filter(|errno| ![41, 58].contains(errno)) {
        assert_eq!(uae_from_errno(errno).and_then(errno_from_uae), Some(errno));
    }
}

#[test]
fn codes_of_the_file_service_are_no_error_numbers() {
    for code in (101..=112).chain([0, 41, 58, 120, 125, -455, -1, 363_524, 5377]) {
        assert_eq!(on_wire(code), code);
    }
    assert_eq!(on_wire(2), 49_733_377);
    assert_eq!(on_wire(100), 49_733_376 + 98);
    // VSALVAGING looks like EHOSTUNREACH and is sent as such.
    assert_eq!(on_wire(113), 49_733_376 + 111);
    assert_eq!(on_wire(122), 49_733_376 + 120);
}
