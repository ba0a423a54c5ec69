//! The address of a server: `unix:/run/rialto.sock` or `tcp:host:7010`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// One address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A Unix stream socket on this machine.
    Unix(PathBuf),
    /// Host (name or address) and port, as `host:port`; IPv6 addresses in brackets.
    Tcp(String),
}

/// Text that is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a server's address: write unix:/path/of/socket or tcp:host:port")]
pub struct EndpointError {
    /// The rejected text.
    pub text: String,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    /// Parses the output of [`fmt::Display`]; a bare absolute path is a Unix socket.
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let refused = || EndpointError { text: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(refused()) } else { Ok(Endpoint::Unix(path.into())) };
        }
        if text.starts_with('/') {
            return Ok(Endpoint::Unix(text.into()));
        }
        let address = text.strip_prefix("tcp:").ok_or_else(refused)?;
        match address.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Endpoint::Tcp(address.to_owned()))
            }
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for text in ["unix:/run/x", "tcp:localhost:7010", "tcp:[::1]:80", "tcp:127.0.0.1:0"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert_eq!("/run/x".parse(), Ok(Endpoint::Unix("/run/x".into())));
        for text in ["", "unix:", "tcp:", "tcp:host", "tcp::1", "tcp:host:70000", "host:1", "run/x"]
        {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
