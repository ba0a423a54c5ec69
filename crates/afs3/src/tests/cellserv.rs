//! Files of cells.

use proptest::prelude::*;

use crate::cellserv::*;

const TEXT: &str = "\
>example.org\t#Example
192.0.2.1\t#db1.example.org
[192.0.2.2]\t#db2.example.org
>dns.example linked.example
";

fn cells() -> Vec<CellHosts> {
    let host = |address: [u8; 4], name: &str, is_clone| CellHost {
        address: address.into(),
        name: name.to_owned(),
        is_clone,
    };
    vec![
        CellHosts {
            name: "example.org".into(),
            linked: None,
            comment: "Example".into(),
            hosts: vec![
                host([192, 0, 2, 1], "db1.example.org", false),
                host([192, 0, 2, 2], "db2.example.org", true),
            ],
        },
        CellHosts {
            name: "dns.example".into(),
            linked: Some("linked.example".into()),
            comment: String::new(),
            hosts: vec![],
        },
    ]
}

#[test]
fn cells_and_their_hosts_have_their_text() {
    assert_eq!(parse_cell_serv_db(TEXT), Ok(cells()));
    assert_eq!(print_cell_serv_db(&cells()), TEXT);
}

#[test]
fn blanks_and_empty_lines_do_not_count() {
    let loose = "\n> example.org   #  Example\n  192.0.2.1 # db1.example.org  \n\n \
        [ 192.0.2.2 ] #db2.example.org\n>dns.example linked.example\n";
    assert_eq!(parse_cell_serv_db(loose), Ok(cells()));
    assert_eq!(parse_cell_serv_db(""), Ok(vec![]));
}

#[test]
fn lines_with_faults_are_named() {
    use CellFileError::*;
    let refused = |text: &str| parse_cell_serv_db(text).unwrap_err();
    assert_eq!(refused("192.0.2.1 #a\n"), NoCell(1));
    assert_eq!(refused(">a\n192.0.2.1\n"), BadLine(2));
    assert_eq!(refused(">a\n192.0.2.1 #\n"), BadLine(2));
    assert_eq!(refused(">a\n192.0.2 #a\n"), BadLine(2));
    assert_eq!(refused(">a\n[192.0.2.1 #a\n"), BadLine(2));
    assert_eq!(refused(">a\n192.0.2.1] #a\n"), BadLine(2));
    assert_eq!(refused(">\n"), BadName(1));
    assert_eq!(refused(">#a\n"), BadName(1));
    assert_eq!(refused(&format!(">{}\n", "a".repeat(64))), BadName(1));
    assert!(parse_cell_serv_db(&format!(">{}\n", "a".repeat(63))).is_ok());
    let many = |count| format!(">a\n{}", "192.0.2.1 #a\n".repeat(count));
    assert_eq!(refused(&many(9)), TooManyHosts(10));
    assert!(parse_cell_serv_db(&many(8)).is_ok());
}

#[test]
fn this_cell_is_the_first_word() {
    assert_eq!(parse_this_cell("  example.org \nrest"), Some("example.org"));
    assert_eq!(parse_this_cell(" \n"), None);
    assert_eq!(parse_this_cell(&"a".repeat(64)), None);
    assert_eq!(parse_this_cell(&"a".repeat(63)).map(str::len), Some(63));
}

proptest! {
    #[test]
    fn random_text_is_harmless(text in "[>#\\[\\]a0-9. \n]{0,80}") {
        if let Ok(cells) = parse_cell_serv_db(&text) {
            prop_assert_eq!(parse_cell_serv_db(&print_cell_serv_db(&cells)), Ok(cells));
        }
    }
}
