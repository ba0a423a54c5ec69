//! Rules on lines of text: width, plain English, forbidden calls.
//!
//! Model: a comment is a run of lines that begin with the same of `//`, `///` and `//!`. Words in
//! backticks are code and are not judged. Tables and links of documents may be wide.

use crate::{FileKind, TidyFinding, Tree};

/// Most columns of a line.
pub(crate) const WIDTH: usize = 100;
/// Words with which no sentence of a comment begins, as its subject.
const FREE_RELATIVES: [&str; 7] =
    ["Who", "Whoever", "Whom", "What", "Whatever", "Whose", "Whichever"];
/// Words that no comment uses for software.
const PERSONS: [&str; 8] =
    ["nobody", "somebody", "anybody", "he", "him", "his", "himself", "everybody"];
/// Crates without clocks and threads: their callers pass the time.
const SANS_IO: [&str; 6] = ["dafs", "guard", "lease", "model", "types", "vice"];
const CLOCKS: [&str; 4] = ["Instant::now(", "SystemTime::now(", "thread::sleep(", "thread::spawn("];

pub(crate) fn width(tree: &Tree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for file in &tree.rust {
        let lines = file.text.lines().enumerate();
        found.extend(wide(&file.place, &file.path, lines));
    }
    for file in &tree.texts {
        if !file.path.ends_with(".md") && !file.path.ends_with(".sh") {
            continue;
        }
        let mut in_code = false;
        let lines = file.text.lines().enumerate().filter(|(_, line)| {
            let fence = line.trim_start().starts_with("```");
            in_code ^= fence;
            let is_document = file.path.ends_with(".md");
            !is_document || !in_code && !fence && !line.starts_with('|') && !line.contains("](")
        });
        found.extend(wide(place_of(&file.path), &file.path, lines));
    }
    found
}

fn place_of(path: &str) -> &str {
    path.split_once('/').map_or("root", |(first, _)| first)
}

fn wide<'t>(
    place: &str,
    path: &str,
    lines: impl Iterator<Item = (usize, &'t str)>,
) -> Vec<TidyFinding> {
    let too_wide = lines.filter(|(_, line)| line.chars().count() > WIDTH);
    let finding = |(no, line): (usize, &str)| TidyFinding {
        place: place.to_owned(),
        path: path.to_owned(),
        line: no + 1,
        what: format!("{} columns; {WIDTH} are allowed", line.chars().count()),
    };
    too_wide.map(finding).collect()
}

/// The text of a comment line.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    ["//!", "///", "//"].iter().find_map(|start| line.strip_prefix(start)).map(str::trim_start)
}

/// A sentence of a comment: its first line, from 1, and its words without code.
fn sentences(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (no, line) in text.lines().enumerate() {
        let Some(words) = comment(line).filter(|words| !words.is_empty()) else {
            is_open = false;
            continue;
        };
        let mut in_code = false;
        for word in words.split_whitespace() {
            let ticks = word.matches('`').count();
            let shown = if in_code || ticks > 0 { "`code`" } else { word };
            in_code ^= ticks % 2 == 1;
            match found.last_mut().filter(|_| is_open) {
                Some((_, sentence)) => {
                    sentence.push(' ');
                    sentence.push_str(shown);
                }
                None => found.push((no + 1, shown.to_owned())),
            }
            is_open = !word.ends_with(['.', '!', '?', ':']);
        }
    }
    found
}

pub(crate) fn subject(tree: &Tree) -> Vec<TidyFinding> {
    in_comments(tree, |sentence| {
        let first = sentence.split_whitespace().next()?;
        // A question may begin with these words.
        let asks = sentence.ends_with('?');
        let begins = FREE_RELATIVES.contains(&first.trim_matches(|c: char| !c.is_alphabetic()));
        (begins && !asks).then(|| format!("a sentence begins with '{first}': name the actor"))
    })
}

pub(crate) fn person(tree: &Tree) -> Vec<TidyFinding> {
    in_comments(tree, |sentence| {
        let is_person = |word: &str| {
            let bare = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '*' && c != '_');
            PERSONS.contains(&bare.to_lowercase().as_str())
        };
        let word = sentence.split_whitespace().find(|word| is_person(word))?;
        Some(format!("'{word}' in a comment: name the actor by its role"))
    })
}

fn in_comments(tree: &Tree, judge: impl Fn(&str) -> Option<String>) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for file in &tree.rust {
        for (line, sentence) in sentences(&file.text) {
            if let Some(what) = judge(&sentence) {
                let (place, path) = (file.place.clone(), file.path.clone());
                found.push(TidyFinding { place, path, line, what });
            }
        }
    }
    found
}

pub(crate) fn ambient(tree: &Tree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    let sans_io = tree.rust.iter().filter(|file| SANS_IO.contains(&file.place.as_str()));
    for file in sans_io.filter(|file| file.kind == FileKind::Source) {
        for (no, line) in file.text.lines().enumerate() {
            if file.is_test_line(no + 1) || comment(line).is_some() {
                continue;
            }
            if let Some(call) = CLOCKS.iter().find(|call| line.contains(**call)) {
                found.push(TidyFinding {
                    place: file.place.clone(),
                    path: file.path.clone(),
                    line: no + 1,
                    what: format!("{call}…) in a crate that is given the time and has no threads"),
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
    fn sentences_are_cut_at_their_ends_and_leave_code_out() {
        let text =
            "/// One `who goes` here.\n/// Who goes there\n/// again.\nfn main() {}\n// What?";
        let told: Vec<(usize, String)> = sentences(text);
        assert_eq!(
            told,
            [
                (1, "One `code` `code` here.".to_owned()),
                (2, "Who goes there again.".to_owned()),
                (5, "What?".to_owned()),
            ]
        );
    }
}
