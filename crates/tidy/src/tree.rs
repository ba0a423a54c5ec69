//! The repository's files, read once.
//!
//! Model: a Rust file is *source* or *test*. Files below `tests`, `benches` and `examples` of a
//! crate, files of a module that is declared under `#[cfg(test)]`, and all of the crates that only
//! tests use are tests. In a source file the items under `#[cfg(test)]` are test lines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use syn::spanned::Spanned as _;

/// Crates that only tests use.
const TEST_CRATES: [&str; 5] = ["model", "powercut", "sim", "testkit", "tidy"];
/// Folders without source of the project.
const LEFT_OUT: [&str; 4] = [".git", "target", "corpus", "artifacts"];

/// The purpose of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Part of the product.
    Source,
    /// Part of the tests.
    Test,
}

/// A Rust file.
pub struct SourceFile {
    /// The path from the root of the repository.
    pub path: String,
    /// The crate's name, or the folder outside of `crates`.
    pub place: String,
    /// The kind of the file as a whole; `test_lines` has the exceptions.
    pub kind: FileKind,
    /// The contents.
    pub text: String,
    /// The parsed contents.
    pub syntax: syn::File,
    /// Lines, from 1, that are under `#[cfg(test)]` in a source file.
    pub test_lines: BTreeSet<usize>,
}

impl SourceFile {
    /// The path of its module in the crate: `a::b` for `src/a/b.rs` and `src/a/b/mod.rs`, empty for
    /// the root; `None`: not below `src`.
    pub fn module(&self) -> Option<Vec<String>> {
        let inside = self.path.split_once("/src/")?.1.strip_suffix(".rs")?;
        let mut parts: Vec<String> = inside.split('/').map(str::to_owned).collect();
        if matches!(parts.last().map(String::as_str), Some("mod"))
            || inside == "lib"
            || inside == "main"
        {
            parts.pop();
        }
        Some(parts)
    }

    /// Returns whether the line, from 1, is part of a test.
    pub fn is_test_line(&self, line: usize) -> bool {
        self.kind == FileKind::Test || self.test_lines.contains(&line)
    }
}

/// Another text file: a document or a script.
#[derive(Debug)]
pub struct TextFile {
    /// The path from the root of the repository.
    pub path: String,
    /// The contents.
    pub text: String,
}

/// The files of the repository.
pub struct Tree {
    /// Rust files, by path.
    pub rust: Vec<SourceFile>,
    /// Documents and scripts, by path.
    pub texts: Vec<TextFile>,
    /// All paths, from the root, directories too.
    pub paths: BTreeSet<String>,
}

impl Tree {
    /// Reads the repository at `root`.
    ///
    /// # Errors
    /// The file system's; `InvalidData` for a Rust file that does not parse.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree { rust: Vec::new(), texts: Vec::new(), paths: BTreeSet::new() };
        tree.read_dir(root, &PathBuf::new())?;
        tree.rust.sort_by(|one, other| one.path.cmp(&other.path));
        tree.texts.sort_by(|one, other| one.path.cmp(&other.path));
        tree.mark_test_modules();
        Ok(tree)
    }

    /// Files that go meanwhile, as those of tests that run beside, are not of the tree.
    fn read_dir(&mut self, root: &Path, below: &Path) -> io::Result<()> {
        let Some(entries) = still_there(fs::read_dir(root.join(below)))? else { return Ok(()) };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().into_string().unwrap_or_default();
            if LEFT_OUT.contains(&name.as_str()) {
                continue;
            }
            let path = below.join(&name);
            let shown = path.to_string_lossy().into_owned();
            self.paths.insert(shown.clone());
            if entry.file_type()?.is_dir() {
                self.read_dir(root, &path)?;
            } else if name.ends_with(".rs") {
                if let Some(text) = still_there(fs::read_to_string(entry.path()))? {
                    self.rust.push(parse(shown, text)?);
                }
            } else if [".md", ".sh", ".toml"].iter().any(|ending| name.ends_with(ending)) {
                let text = still_there(fs::read_to_string(entry.path()))?;
                self.texts.extend(text.map(|text| TextFile { path: shown, text }));
            }
        }
        Ok(())
    }

    /// Marks files of modules that are declared under `#[cfg(test)]` as tests.
    fn mark_test_modules(&mut self) {
        let mut roots = Vec::new();
        for file in &self.rust {
            let Some(module) = file.module() else { continue };
            for item in &file.syntax.items {
                if let syn::Item::Mod(one) = item
                    && one.content.is_none()
                    && is_test(&one.attrs)
                {
                    roots.push((
                        file.place.clone(),
                        [module.clone(), vec![one.ident.to_string()]].concat(),
                    ));
                }
            }
        }
        for file in &mut self.rust {
            let Some(module) = file.module() else { continue };
            if roots.iter().any(|(place, root)| *place == file.place && module.starts_with(root)) {
                file.kind = FileKind::Test;
            }
        }
    }
}

/// `None`: the file is not there any more.
fn still_there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse(path: String, text: String) -> io::Result<SourceFile> {
    let syntax = syn::parse_file(&text)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {error}")))?;
    let parts: Vec<&str> = path.split('/').collect();
    let place = match parts[..] {
        ["crates", name, ..] => name.to_owned(),
        [first, ..] => first.to_owned(),
        [] => String::new(),
    };
    let outside = parts.first() != Some(&"crates") || parts.get(2) != Some(&"src");
    let kind = if outside || TEST_CRATES.contains(&place.as_str()) {
        FileKind::Test
    } else {
        FileKind::Source
    };
    let mut test_lines = BTreeSet::new();
    for item in &syntax.items {
        if is_test(attrs(item)) {
            test_lines.extend(item.span().start().line..=item.span().end().line);
        }
    }
    Ok(SourceFile { path, place, kind, text, syntax, test_lines })
}

/// Returns whether the attributes contain `#[cfg(test)]`, alone or with other conditions.
pub(crate) fn is_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let syn::Meta::List(list) = &attr.meta else { return false };
        attr.path().is_ident("cfg")
            && list
                .tokens
                .to_string()
                .split(|c: char| !c.is_alphanumeric())
                .any(|word| word == "test")
    })
}

pub(crate) fn attrs(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(one) => &one.attrs,
        syn::Item::Enum(one) => &one.attrs,
        syn::Item::Fn(one) => &one.attrs,
        syn::Item::Impl(one) => &one.attrs,
        syn::Item::Macro(one) => &one.attrs,
        syn::Item::Mod(one) => &one.attrs,
        syn::Item::Static(one) => &one.attrs,
        syn::Item::Struct(one) => &one.attrs,
        syn::Item::Trait(one) => &one.attrs,
        syn::Item::Type(one) => &one.attrs,
        syn::Item::Use(one) => &one.attrs,
        _ => &[],
    }
}
