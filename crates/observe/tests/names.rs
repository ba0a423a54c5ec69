//! The names in the code are those of `docs/spec/signals.md`.

use observe::names::{FIELDS, SPANS};
use observe::{TARGET, Wait};

/// The rows of the table under a heading: its first two columns.
fn table(document: &str, heading: &str) -> Vec<(String, String)> {
    let section = document.split("\n## ").find(|section| section.starts_with(heading));
    let rows = section.into_iter().flat_map(str::lines).filter(|line| line.starts_with("| `"));
    let cells = |row: &str| {
        let mut cells = row.split('|').skip(1).map(|cell| cell.trim().replace('`', ""));
        (cells.next().unwrap_or_default(), cells.next().unwrap_or_default())
    };
    rows.map(cells).collect()
}

fn owned(names: impl IntoIterator<Item = (&'static str, &'static str)>) -> Vec<(String, String)> {
    names.into_iter().map(|(name, meaning)| (name.to_owned(), meaning.to_owned())).collect()
}

#[test]
fn the_document_lists_every_name() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec/signals.md");
    let document = std::fs::read_to_string(path).unwrap();
    assert!(document.contains(TARGET));
    assert_eq!(table(&document, "Spans"), owned(SPANS));
    assert_eq!(table(&document, "Fields"), owned(FIELDS));
    let waits = Wait::ALL.map(|wait| (wait.name(), wait.meaning()));
    assert_eq!(table(&document, "Waits"), owned(waits));
}
