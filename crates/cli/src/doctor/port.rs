//! Finds the listener on a TCP port of this machine, from `/proc/net/tcp`.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use super::Finding;

/// Whether `address` is free, or taken by the cell's `server` (its pid).
pub fn examine(address: SocketAddr, server: Option<i32>) -> Finding {
    const CHECK: &str = "port";
    if server.is_some_and(|pid| listener(address.port()) == Some(pid)) {
        return Finding::ok(CHECK, format!("our server listens on {address}"));
    }
    match TcpListener::bind(address) {
        Ok(_) if server.is_some() => Finding::fail(
            CHECK,
            format!("our server runs but does not listen on {address}"),
            "restart it with 'rialto down' and 'rialto up'; cell.toml may have changed since it \
                started",
        ),
        Ok(_) => Finding::ok(CHECK, format!("{address} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let holder =
                listener(address.port()).map_or_else(|| "another process".to_owned(), named);
            let mend = "stop that process, or change 'listen' in cell.toml ('rialto up --listen' \
                for a new cell)";
            Finding::fail(CHECK, format!("{address} is taken by {holder}"), mend)
        }
        Err(error) => {
            let mend = "change 'listen' in cell.toml to an address of this machine";
            Finding::fail(CHECK, format!("{address} cannot be used: {error}"), mend)
        }
    }
}

fn named(pid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} (pid {pid})", name.trim())
}

/// The process that listens on `port`, as far as this user may see.
fn listener(port: u16) -> Option<i32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let inodes: Vec<String> = tables
        .iter()
        .flat_map(|table| table.lines())
        .filter_map(|line| listening_inode(line, port))
        .collect();
    let sockets: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .find(|pid| owns(*pid, &sockets))
}

fn owns(pid: i32, sockets: &[String]) -> bool {
    let Ok(descriptors) = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd"))
    else {
        return false;
    };
    let targets = descriptors.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
    targets
        .into_iter()
        .any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
}

/// `sl local_address rem_address st ... inode ...`, addresses as `hex:hexport`, state 0A:
/// listening.
fn listening_inode(line: &str, port: u16) -> Option<String> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let local_port = u16::from_str_radix(fields.get(1)?.rsplit_once(':')?.1, 16).ok()?;
    (local_port == port && *fields.get(3)? == "0A")
        .then(|| fields.get(9).map(ToString::to_string))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn a_taken_port_is_told_with_its_holder() {
        let holder = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = holder.local_addr().unwrap();
        let me = i32::try_from(std::process::id()).unwrap();

        let finding = examine(address, None);
        assert_eq!(finding.level, Severity::Fail);
        assert!(finding.found.contains(&format!("pid {me}")), "{}", finding.found);
        assert_eq!(examine(address, Some(me)).level, Severity::Ok);

        drop(holder);
        assert_eq!(examine(address, None).level, Severity::Ok);
        assert_eq!(examine(address, Some(me)).level, Severity::Fail, "runs, but listens elsewhere");
    }
}
