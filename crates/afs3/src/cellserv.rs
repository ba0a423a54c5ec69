//! The files that tell a client its cell and the cells' database servers: `ThisCell` and
//! `CellServDB`.
//!
//! Source: OpenAFS `src/auth/cellconfig.c`, `doc/man-pages/pod5/CellServDB.pod`.

use std::net::Ipv4Addr;

/// Most database servers of a cell.
pub const HOSTS_MAX: usize = 8;
/// Most bytes of a cell's name.
pub const CELL_NAME_BYTES_MAX: usize = 63;

/// A database server of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellHost {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its name.
    pub name: String,
    /// It has a copy of the databases and no vote: its address is in brackets.
    pub is_clone: bool,
}

/// A cell. One without hosts is looked up in the DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellHosts {
    /// The cell's name.
    pub name: String,
    /// A second name of the line: the cell that is asked besides.
    pub linked: Option<String>,
    /// The text behind `#`.
    pub comment: String,
    /// Its database servers.
    pub hosts: Vec<CellHost>,
}

/// The reason why a file of cells is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CellFileError {
    /// A line without the form of a cell or a host.
    #[error("line {0} is neither a cell nor a host")]
    BadLine(usize),
    /// A host before the first cell.
    #[error("line {0} has a host before the first cell")]
    NoCell(usize),
    /// More hosts than a cell has.
    #[error("line {0} has one host more than the {HOSTS_MAX} of a cell")]
    TooManyHosts(usize),
    /// A cell's name that is empty or too long.
    #[error("line {0} has a bad cell name")]
    BadName(usize),
}

/// The cell's name in `ThisCell`: the first word.
pub fn parse_this_cell(text: &str) -> Option<&str> {
    text.split_whitespace().next().filter(|name| name.len() <= CELL_NAME_BYTES_MAX)
}

/// The cells of a `CellServDB`, in its order. Empty lines are ignored.
///
/// # Errors
/// [`CellFileError`].
pub fn parse_cell_serv_db(text: &str) -> Result<Vec<CellHosts>, CellFileError> {
    let mut cells: Vec<CellHosts> = Vec::new();
    for (no, line) in text.lines().enumerate().map(|(no, line)| (no + 1, line.trim())) {
        if line.is_empty() {
            continue;
        }
        match (line.strip_prefix('>'), cells.last_mut()) {
            (Some(cell), _) => cells.push(cell_line(cell).ok_or(CellFileError::BadName(no))?),
            (None, Some(cell)) => {
                let host = host_line(line).ok_or(CellFileError::BadLine(no))?;
                if cell.hosts.len() == HOSTS_MAX {
                    return Err(CellFileError::TooManyHosts(no));
                }
                cell.hosts.push(host);
            }
            (None, None) => return Err(CellFileError::NoCell(no)),
        }
    }
    Ok(cells)
}

fn cell_line(line: &str) -> Option<CellHosts> {
    let (names, comment) = line.split_once('#').unwrap_or((line, ""));
    let mut names = names.split_whitespace().map(str::to_owned);
    let name = names.next().filter(|name| name.len() <= CELL_NAME_BYTES_MAX)?;
    let linked = names.next();
    Some(CellHosts { name, linked, comment: comment.trim().to_owned(), hosts: Vec::new() })
}

fn host_line(line: &str) -> Option<CellHost> {
    let (address, name) = line.split_once('#')?;
    let (address, name) = (address.trim(), name.trim());
    let inside = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host = CellHost {
        address: inside.unwrap_or(address).trim().parse().ok()?,
        name: name.to_owned(),
        is_clone: inside.is_some(),
    };
    (!name.is_empty()).then_some(host)
}

/// The cells as a `CellServDB`.
pub fn print_cell_serv_db(cells: &[CellHosts]) -> String {
    let mut text = String::new();
    for cell in cells {
        text.push('>');
        text.push_str(&cell.name);
        if let Some(linked) = &cell.linked {
            text.push(' ');
            text.push_str(linked);
        }
        if !cell.comment.is_empty() {
            text.push_str("\t#");
            text.push_str(&cell.comment);
        }
        text.push('\n');
        for host in &cell.hosts {
            let (open, close) = if host.is_clone { ("[", "]") } else { ("", "") };
            text.push_str(&format!("{open}{}{close}\t#{}\n", host.address, host.name));
        }
    }
    text
}
