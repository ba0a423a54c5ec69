//! The source follows its rules, and findings only become fewer.

use std::path::Path;

use tidy::{Ratchet, Tree};

#[test]
fn findings_are_those_of_the_ratchet() {
    // Of the run: the binary may have been built in another directory.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where the crate is");
    let root = Path::new(&here).join("../..");
    let tree = Tree::read(&root).unwrap();
    assert!(tree.rust.len() > 400, "the whole workspace is read");
    let ratchet = Ratchet::read(&root.join("crates/tidy/ratchet.toml")).unwrap();
    let changes: Vec<String> = ratchet.changes(&tree).iter().map(ToString::to_string).collect();
    assert!(changes.is_empty(), "{}", changes.join("\n"));
}
