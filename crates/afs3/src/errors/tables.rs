//! The tables of codes.

use super::ErrorTable;

/// A com_err table: its constants, by number from the base on.
macro_rules! error_table {
    ($(
        $(#[$doc:meta])* $table:ident = $base:literal { $($name:ident)* }
    )*) => {
        $(
            $(#[$doc])*
            pub const $table: ErrorTable =
                ErrorTable { base: $base, names: &[$( stringify!($name) ),*] };
            error_table!(@from $base, $($name)*);
        )*

        /// All tables that are written out here.
        pub const ALL_TABLES: &[ErrorTable] = &[$( $table ),*];
    };
    (@from $code:expr, ) => {};
    (@from $code:expr, $name:ident $($rest:ident)*) => {
        #[doc = concat!("Code ", stringify!($name), " of its table.")]
        pub const $name: i32 = $code;
        error_table!(@from $code + 1, $($rest)*);
    };
}

/// Codes that are in no table.
macro_rules! single_codes {
    ($( $(#[$doc:meta])* $name:ident = $code:literal; )*) => {
        $( $(#[$doc])* pub const $name: i32 = $code; )*

        /// All codes that are in no table.
        pub const SINGLE_CODES: &[(i32, &str)] = &[$( ($code, stringify!($name)) ),*];
    };
}

single_codes! {
    /// Rx: the peer is silent.
    RX_CALL_DEAD = -1;
    /// Rx: the operation is not possible now.
    RX_INVALID_OPERATION = -2;
    /// Rx: the call took too long.
    RX_CALL_TIMEOUT = -3;
    /// Rx: the stream ended too early.
    RX_EOF = -4;
    /// Rx: the peer broke the protocol.
    RX_PROTOCOL_ERROR = -5;
    /// Rx: the peer ended the call without a reason.
    RX_USER_ABORT = -6;
    /// Rx: the port is taken.
    RX_ADDRINUSE = -7;
    /// Rx: a packet is too large.
    RX_MSGSIZE = -8;
    /// The server starts, and serves later. Rx calls it `RX_RESTARTING`.
    VRESTARTING = -100;
    /// The client could not encode the arguments.
    RXGEN_CC_MARSHAL = -450;
    /// The client could not decode the results.
    RXGEN_CC_UNMARSHAL = -451;
    /// The server could not encode the results.
    RXGEN_SS_MARSHAL = -452;
    /// The server could not decode the arguments.
    RXGEN_SS_UNMARSHAL = -453;
    /// A call could not be decoded.
    RXGEN_DECODE = -454;
    /// The service has no such procedure. Clients then use an older one.
    RXGEN_OPCODE = -455;
    /// The server could not free arguments.
    RXGEN_SS_XDRFREE = -456;
    /// The client could not free results.
    RXGEN_CC_XDRFREE = -457;
    /// File service: access is restricted.
    VRESTRICTED = 120;
    /// Client: the connection is bad.
    VICECONNBAD = 1234;
    /// Client: the token is bad.
    VICETOKENDEAD = 1235;
}

error_table! {
    /// The file service.
    VICE = 101 {
        VSALVAGE VNOVNODE VNOVOL VVOLEXISTS VNOSERVICE VOFFLINE VONLINE VDISKFULL VOVERQUOTA VBUSY
        VMOVED VIO VSALVAGING
    }

    /// Ubik.
    U = 5376 {
        UNOQUORUM UNOTSYNC UNHOSTS UIOERROR UINTERNAL USYNC UNOENT UBADLOCK UBADLOG UBADHOST
        UBADTYPE UTWOENDS UDONE UNOSERVERS UEOF ULOGIO UBADFAM UBADCELL UBADSECGRP UBADGROUP
        UBADUUID UNOMEM UNOTMEMBER UNBINDINGS UBADPRINNAME UPIPE UDEADLOCK UEXCEPTION UTPQFAIL
        USKEWED UNOLOCK UNOACCESS UNOSPC UBADPATH UBADF UREINITIALIZE UMUTEXINIT UMUTEXDESTROY
    }

    /// The bos service.
    BZ = 39424 {
        BZNOTACTIVE BZNOENT BZBUSY BZEXISTS BZNOCREATE BZDOM BZACCESS BZSYNTAX BZIO BZNET BZBADTYPE
        BZKEYINUSE BZENCREQ
    }

    /// The protection service.
    PT = 267264 {
        PREXIST PRIDEXIST PRNOIDS PRDBFAIL PRNOENT PRPERM PRNOTGROUP PRNOTUSER PRBADNAM PRBADARG
        PRNOMORE PRDBBAD PRGROUPEMPTY PRINCONSISTENT PRDBADDR PRTOOMANY PRNOMEM PRINTERNAL
        PRNAMETOOLONG
    }

    /// The location service.
    VL = 363520 {
        VL_IDEXIST VL_IO VL_NAMEEXIST VL_CREATEFAIL VL_NOENT VL_EMPTY VL_ENTDELETED VL_BADNAME
        VL_BADINDEX VL_BADVOLTYPE VL_BADSERVER VL_BADPARTITION VL_REPSFULL VL_NOREPSERVER
        VL_DUPREPSERVER VL_RWNOTFOUND VL_BADREFCOUNT VL_SIZEEXCEEDED VL_BADENTRY VL_BADVOLIDBUMP
        VL_IDALREADYHASHED VL_ENTRYLOCKED VL_BADVOLOPER VL_BADRELLOCKTYPE VL_RERELEASE
        VL_BADSERVERFLAG VL_PERM VL_NOMEM VL_BADVERSION VL_INDEXERANGE VL_MULTIPADDR VL_BADMASK
        VL_DBBAD
    }

    /// rxkad, Kerberos in Rx.
    RXK = 19270400 {
        RXKADINCONSISTENCY RXKADPACKETSHORT RXKADLEVELFAIL RXKADTICKETLEN RXKADOUTOFSEQUENCE
        RXKADNOAUTH RXKADBADKEY RXKADBADTICKET RXKADUNKNOWNKEY RXKADEXPIRED RXKADSEALEDINCON
        RXKADDATALEN RXKADILLEGALLEVEL
    }

    /// rxgk, GSS in Rx.
    RXGK = 1233242880 {
        RXGK_INCONSISTENCY RXGK_PACKETSHORT RXGK_BADCHALLENGE RXGK_BADETYPE RXGK_BADLEVEL
        RXGK_BADKEYNO RXGK_EXPIRED RXGK_NOTAUTH RXGK_BAD_TOKEN RXGK_SEALED_INCON RXGK_DATA_LEN
        RXGK_BAD_QOP
    }

    /// The volume service.
    VOLS = 1492325120 {
        VOLSERTRELE_ERROR VOLSERNO_OP VOLSERREAD_DUMPERROR VOLSERDUMPERROR VOLSERATTACH_ERROR
        VOLSERILLEGAL_PARTITION VOLSERDETACH_ERROR VOLSERBAD_ACCESS VOLSERVLDB_ERROR VOLSERBADNAME
        VOLSERVOLMOVED VOLSERBADOP VOLSERBADRELEASE VOLSERVOLBUSY VOLSERNO_MEMORY VOLSERNOVOL
        VOLSERMULTIRWVOL VOLSERFAILEDOP
    }
}
