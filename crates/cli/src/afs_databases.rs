//! The line `databases` of `[afs]` in `cell.toml`: the databases of OpenAFS that the cell follows.

use std::net::Ipv4Addr;

use local::cell::CellDir;

use crate::cell_file;

/// Writes the line, or removes it if there are none. All else stays as it is.
///
/// # Errors
/// That of the file; there is no part `[afs]`.
pub fn write(cell: &CellDir, databases: &[Ipv4Addr]) -> Result<(), String> {
    let before = cell_file::read(cell)?;
    let after = with_line(&before, databases).ok_or("cell.toml has no [afs]")?;
    cell_file::write(cell, &before, &after)
}

/// The text with this line alone; `None`: it has no part for it.
fn with_line(text: &str, databases: &[Ipv4Addr]) -> Option<String> {
    let (mut in_part, mut in_line, mut is_there) = (false, false, false);
    let mut kept = Vec::new();
    for line in text.lines() {
        // The list may take several lines.
        if in_line {
            in_line = !line.contains(']');
            continue;
        }
        if line.trim_start().starts_with('[') {
            in_part = line.trim() == "[afs]";
        }
        let key = line.split('=').next().unwrap_or_default().trim();
        if in_part && key == "databases" {
            in_line = !line.contains(']');
            continue;
        }
        kept.push(line.to_owned());
        if in_part && line.trim() == "[afs]" {
            is_there = true;
            if !databases.is_empty() {
                let all: Vec<_> = databases.iter().map(|at| format!("\"{at}\"")).collect();
                kept.push(format!("databases = [{}]", all.join(", ")));
            }
        }
    }
    is_there.then(|| kept.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_line_of_the_file_changes() {
        let plain = "# A cell.\nname = \"a\"\n\n[afs]\nlisten = \"192.0.2.1\"\n\n[limits]\n";
        let one = [Ipv4Addr::new(192, 0, 2, 2)];
        let with = with_line(plain, &one).unwrap();
        assert!(with.contains("[afs]\ndatabases = [\"192.0.2.2\"]\nlisten"), "{with}");
        assert_eq!(with_line(&with, &one).unwrap(), with);
        assert_eq!(with_line(&with, &[]).unwrap(), plain);
        let long = with.replace("[\"192.0.2.2\"]", "[\n  \"192.0.2.2\",\n]");
        assert_eq!(with_line(&long, &[]).unwrap(), plain);
        assert_eq!(with_line("name = \"a\"\n", &one), None);
    }
}
