//! Rules on documents: links, and the numbers of invariants.

use std::collections::{BTreeMap, BTreeSet};

use crate::{TextFile, TidyFinding, Tree};

fn documents(tree: &Tree) -> impl Iterator<Item = &TextFile> {
    tree.texts.iter().filter(|file| file.path.ends_with(".md"))
}

/// A heading as links write it: lower case, spaces as hyphens, without other marks.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

fn anchors(file: &TextFile) -> BTreeSet<String> {
    let headings = file.text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// `a/b/../c.md` without its dots.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The targets of `[text](target)` in a line.
fn targets(line: &str) -> Vec<&str> {
    let pieces = line.split("](").skip(1);
    pieces.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

pub(crate) fn links(tree: &Tree) -> Vec<TidyFinding> {
    let known: BTreeMap<&str, BTreeSet<String>> =
        documents(tree).map(|file| (file.path.as_str(), anchors(file))).collect();
    let mut found = Vec::new();
    for file in documents(tree) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (no, line) in file.text.lines().enumerate() {
            for target in targets(line) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (path, heading) = target.split_once('#').unwrap_or((target, ""));
                let path = if path.is_empty() {
                    file.path.clone()
                } else {
                    normal(&format!("{folder}/{path}"))
                };
                let leads = tree.paths.contains(&path)
                    && (heading.is_empty()
                        || known.get(path.as_str()).is_some_and(|all| all.contains(heading)));
                if !leads {
                    let place =
                        file.path.split_once('/').map_or("root", |(first, _)| first).to_owned();
                    let what = format!("the link {target} has no target");
                    found.push(TidyFinding { place, path: file.path.clone(), line: no + 1, what });
                }
            }
        }
    }
    found
}

/// Folders of the repository that documents name in code spans.
const FOLDERS: [&str; 6] = ["bench/", "crates/", "docs/", "fuzz/", "scripts/", "tests/"];

/// The code spans of a line that name a file or folder of the repository.
fn named_paths(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    spans.filter(move |span| {
        FOLDERS.iter().any(|folder| span.starts_with(folder)) && span.chars().all(is_plain)
    })
}

/// Files that documents name in code spans exist.
pub(crate) fn paths(tree: &Tree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for file in documents(tree) {
        for (no, line) in file.text.lines().enumerate() {
            for path in named_paths(line) {
                if !tree.paths.contains(path.trim_end_matches('/')) {
                    let place = file.path.split_once('/').map_or("root", |(first, _)| first);
                    found.push(TidyFinding {
                        place: place.to_owned(),
                        path: file.path.clone(),
                        line: no + 1,
                        what: format!("there is no {path}"),
                    });
                }
            }
        }
    }
    found
}

/// The names that a text places in files, as "`name` in `crates/a/b.rs`": the line of the name, the
/// name, and the file.
fn placed_names(text: &str) -> Vec<(usize, &str, &str)> {
    let pieces: Vec<&str> = text.split('`').collect();
    let mut found = Vec::new();
    let mut line = 1;
    for (no, piece) in pieces.iter().enumerate() {
        if let (1, [name, between, path, ..]) = (no % 2, &pieces[no..])
            && between.split_whitespace().eq(["in"])
            && path.starts_with("crates/")
            && path.ends_with(".rs")
        {
            found.push((line, *name, *path));
        }
        line += piece.matches('\n').count();
    }
    found
}

/// Functions and types that documents place in a file are named there.
pub(crate) fn names(tree: &Tree) -> Vec<TidyFinding> {
    let texts: BTreeMap<&str, &str> =
        tree.rust.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let mut found = Vec::new();
    for file in documents(tree) {
        for (line, name, path) in placed_names(&file.text) {
            let last = name.rsplit("::").next().unwrap_or(name).trim_end_matches("()");
            if !texts.get(path).is_some_and(|text| text.contains(last)) {
                let place = file.path.split_once('/').map_or("root", |(first, _)| first);
                let what = format!("{path} does not have {last}");
                found.push(TidyFinding {
                    place: place.to_owned(),
                    path: file.path.clone(),
                    line,
                    what,
                });
            }
        }
    }
    found
}

pub(crate) fn invariants(tree: &Tree) -> Vec<TidyFinding> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for file in documents(tree).filter(|file| file.path.ends_with("/invariants.md")) {
        for (no, line) in file.text.lines().enumerate() {
            let Some((id, _)) =
                line.strip_prefix("**").and_then(|rest| rest.split_once(['.', ' ']))
            else {
                continue;
            };
            let is_id = id.split_once('-').is_some_and(|(letters, number)| {
                letters.chars().all(|c| c.is_ascii_uppercase()) && number.parse::<u32>().is_ok()
            });
            if let (true, Some(line)) = (is_id, first.insert(id, no + 1)) {
                let what = format!("{id} is also defined in line {line}");
                found.push(TidyFinding {
                    place: "docs".to_owned(),
                    path: file.path.clone(),
                    line: no + 1,
                    what,
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_become_anchors_and_dots_leave_paths() {
        assert_eq!(anchor(" Mode bits, and `umask`"), "mode-bits-and-umask");
        assert_eq!(normal("docs/../README.md"), "README.md");
        let spans = "`crates/a/b.rs` and `crates/*/b.rs`, `vos`, `docs/a.md`";
        assert_eq!(named_paths(spans).collect::<Vec<_>>(), ["crates/a/b.rs", "docs/a.md"]);
        assert_eq!(
            placed_names("see\n`A::f` in\n`crates/a.rs`, `g` of `crates/b.rs`"),
            [(2, "A::f", "crates/a.rs")]
        );
        assert_eq!(targets("see [a](b.md) and [c](d.md#e)"), ["b.md", "d.md#e"]);
    }
}
