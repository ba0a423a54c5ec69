//! Checks the source of the workspace itself.
//!
//! Model: [`Tree::read`] reads every file of the repository once. A *rule* is a function from the
//! tree to a list of [`TidyFinding`]s. `ratchet.toml` has the permitted number of findings for each
//! rule and crate. The test `tests/tidy.rs` compares; a number that fell must be lowered in the
//! file, so that it never rises again. [`figures()`] counts the sizes for which the project has
//! goals.
//!
//! Rules read syntax and no types: `syn` parses each file, and imports are followed through the
//! `use` declarations and re-exports of one crate.

mod docs;
mod figures;
mod imports;
mod items;
mod ratchet;
mod text;
mod tree;

pub use figures::{Figure, figures};
pub use ratchet::{Change, Ratchet};
pub use tree::{FileKind, SourceFile, TextFile, Tree};

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TidyFinding {
    /// The crate, or the folder for files outside of crates: the unit of the ratchet's numbers.
    pub place: String,
    /// The file, from the root of the repository.
    pub path: String,
    /// Its line, from 1; 0: the whole file.
    pub line: usize,
    /// The violation, and the remedy where it is not obvious.
    pub what: String,
}

impl std::fmt::Display for TidyFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// A rule on the source.
#[derive(Clone, Copy, Debug)]
pub struct SourceRule {
    /// The name in `ratchet.toml`.
    pub name: &'static str,
    /// The requirement, in one sentence.
    pub asks: &'static str,
    /// Finds the violations.
    pub find: fn(&Tree) -> Vec<TidyFinding>,
}

/// All rules, in the order in which they are shown.
pub const RULES: &[SourceRule] = &[
    SourceRule { name: "width", asks: "no line is wider than 100 columns", find: text::width },
    SourceRule {
        name: "subject",
        asks: "a sentence of a comment does not begin with Who, What or Whoever as its subject",
        find: text::subject,
    },
    SourceRule {
        name: "person",
        asks: "comments and messages name software by its role: not nobody, somebody, he, him, his",
        find: text::person,
    },
    SourceRule {
        name: "ambient",
        asks: "sans-I/O crates are given the time and never ask a clock",
        find: text::ambient,
    },
    SourceRule {
        name: "type-name",
        asks: "a public type's name is used once in the workspace",
        find: items::type_names,
    },
    SourceRule { name: "methods", asks: "a type has at most 40 methods", find: items::methods },
    SourceRule {
        name: "errors-doc",
        asks: "a public function that returns Result documents its errors",
        find: items::errors_documented,
    },
    SourceRule {
        name: "test-name",
        asks: "the name of a test has at most 60 characters",
        find: items::test_names,
    },
    SourceRule {
        name: "left-out",
        asks: "a file of tests is a program of its own, or a module of tests/all.rs",
        find: items::left_out_tests,
    },
    SourceRule {
        name: "cycle",
        asks: "modules of a crate do not import each other in a circle",
        find: imports::cycles,
    },
    SourceRule {
        name: "layer",
        asks: "a module does not import a layer above its own (the crate's root lists its layers)",
        find: imports::upward,
    },
    SourceRule {
        name: "link",
        asks: "links of documents lead to files and headings",
        find: docs::links,
    },
    SourceRule {
        name: "path",
        asks: "files that documents name in code spans exist",
        find: docs::paths,
    },
    SourceRule {
        name: "named",
        asks: "a file that documents give as the place of a name has that name",
        find: docs::names,
    },
    SourceRule {
        name: "invariant",
        asks: "an invariant's number is defined once",
        find: docs::invariants,
    },
];
