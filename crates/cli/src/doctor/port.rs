//! Finds the listener on a TCP port of this machine, from `/proc/net/tcp`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;

use super::Finding;

/// The listener on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    Process(i32),
    /// A process of this uid. Only root may look at the server's descriptors, whose memory is
    /// protected.
    ProcessOf(u32),
}

/// Whether `address` is free, or taken by the cell's `server` (its pid), which runs as `owner`.
pub fn examine(address: SocketAddr, server: Option<i32>, owner: u32) -> Finding {
    const CHECK: &str = "port";
    let listener = listener(address);
    let is_ours = |pid| match listener {
        Some(Listener::Process(found)) => found == pid,
        Some(Listener::ProcessOf(uid)) => uid == owner,
        None => false,
    };
    if server.is_some_and(is_ours) {
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
            let holder = listener.map_or_else(|| "another process".to_owned(), named);
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

fn named(listener: Listener) -> String {
    let pid = match listener {
        Listener::Process(pid) => pid,
        Listener::ProcessOf(uid) => return format!("a process of the user with uid {uid}"),
    };
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} (pid {pid})", name.trim())
}

/// The process whose listening excludes another one on `address`, as far as this user may see.
fn listener(address: SocketAddr) -> Option<Listener> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let found: Vec<(u32, String)> = tables
        .iter()
        .flat_map(|table| table.lines())
        .filter_map(|line| listening(line, address))
        .collect();
    let sockets: Vec<String> = found.iter().map(|(_, inode)| format!("socket:[{inode}]")).collect();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let process = processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .find(|pid| owns(*pid, &sockets));
    let unseen = || found.first().map(|(uid, _)| Listener::ProcessOf(*uid));
    process.map(Listener::Process).or_else(unseen)
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

/// An address in the kernel's words of 32 bits, in the machine's order.
fn parse_ip(hex: &str) -> Option<IpAddr> {
    let words = hex.as_bytes().chunks(8).map(|word| {
        let word = std::str::from_utf8(word).ok()?;
        u32::from_str_radix(word, 16).ok().map(u32::to_ne_bytes)
    });
    let bytes = words.collect::<Option<Vec<_>>>()?.concat();
    let v4 = <[u8; 4]>::try_from(&bytes[..]).map(|bytes| Ipv4Addr::from(bytes).into());
    v4.or_else(|_| <[u8; 16]>::try_from(&bytes[..]).map(|bytes| Ipv6Addr::from(bytes).into())).ok()
}

/// Whether sockets on both addresses cannot have one port.
fn is_same_place(one: IpAddr, other: IpAddr) -> bool {
    let (one, other) = (one.to_canonical(), other.to_canonical());
    one == other || one.is_unspecified() || other.is_unspecified()
}

/// The uid and the inode of a listening socket: `sl local_address rem_address st tx_queue:rx_queue
/// tr:tm->when retrnsmt uid timeout inode ...`, addresses as `hex:hexport`, state 0A: listening.
fn listening(line: &str, address: SocketAddr) -> Option<(u32, String)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (ip, port) = fields.get(1)?.rsplit_once(':')?;
    let is_here = u16::from_str_radix(port, 16).ok()? == address.port()
        && is_same_place(parse_ip(ip)?, address.ip());
    let is_listening = is_here && *fields.get(3)? == "0A";
    is_listening.then_some((fields.get(7)?.parse().ok()?, (*fields.get(9)?).to_owned()))
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
        let owner = rustix::process::geteuid().as_raw();

        let finding = examine(address, None, owner);
        assert_eq!(finding.level, Severity::Fail);
        assert!(finding.found.contains(&format!("pid {me}")), "{}", finding.found);
        assert_eq!(examine(address, Some(me), owner).level, Severity::Ok);

        drop(holder);
        assert_eq!(examine(address, None, owner).level, Severity::Ok);
        assert_eq!(
            examine(address, Some(me), owner).level,
            Severity::Fail,
            "runs, but listens elsewhere"
        );
    }

    #[test]
    fn a_listener_that_may_not_be_looked_at_is_known_by_its_user() {
        let line = "   0: 0100007F:1DC4 00000000:0000 0A 00000000:00000000 00:00000000 00000000   \
                    104        0 96012 1 0000000000000000 100 0 0 10 0";
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let found = Some((104, "96012".to_owned()));
        assert_eq!(listening(line, at("127.0.0.1:7620")), found);
        assert_eq!(listening(line, at("0.0.0.0:7620")), found);
        assert_eq!(listening(line, at("127.0.0.1:7621")), None);
        assert_eq!(listening(line, at("127.0.0.2:7620")), None, "another address has the port too");
        let everywhere = line.replace("0100007F", &"0".repeat(32));
        assert_eq!(listening(&everywhere, at("127.0.0.2:7620")), found);
        let other = line.replace(" 0A ", " 01 ");
        assert_eq!(listening(&other, at("127.0.0.1:7620")), None, "a connection");
        assert_eq!(named(Listener::ProcessOf(104)), "a process of the user with uid 104");
    }
}
