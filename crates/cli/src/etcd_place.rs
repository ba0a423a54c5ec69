//! Says in `cell.toml` that etcd has the cell's database, and how etcd is reached.

use std::path::PathBuf;

use celldb::EtcdConfig;
use clap::Args;
use local::cell::CellDir;

use crate::cell_file;

/// How etcd is reached, as options of a command.
#[derive(Args, Debug, Default)]
pub struct EtcdOptions {
    /// The members of the etcd that has, or shall have, the cell's database. Where this server has
    /// it, it is moved there.
    #[arg(long = "etcd", value_name = "HOST:PORT", value_delimiter = ',')]
    pub endpoints: Vec<String>,
    /// The certificates of the authority that signed etcd's, in PEM.
    #[arg(long = "etcd-cacert", value_name = "FILE", requires = "endpoints")]
    pub cacert: Option<PathBuf>,
    /// This server's certificate for etcd, in PEM.
    #[arg(long = "etcd-cert", value_name = "FILE", requires = "endpoints")]
    pub cert: Option<PathBuf>,
    /// Its private key, in PEM.
    #[arg(long = "etcd-key", value_name = "FILE", requires = "endpoints")]
    pub key: Option<PathBuf>,
    /// The user in etcd, where it has users.
    #[arg(long = "etcd-user", value_name = "NAME", requires = "endpoints")]
    pub user: Option<String>,
    /// The file with that user's password.
    #[arg(long = "etcd-password-file", value_name = "FILE", requires = "endpoints")]
    pub password_file: Option<PathBuf>,
}

impl EtcdOptions {
    /// The same as it stands in `cell.toml`, with whole paths.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn config(&self) -> Result<EtcdConfig, String> {
        let file = |path: &Option<PathBuf>| {
            let absolute = path.as_ref().map(std::path::absolute);
            absolute.transpose().map_err(|error| error.to_string())
        };
        let etcd = EtcdConfig {
            endpoints: self.endpoints.clone(),
            ca: file(&self.cacert)?,
            cert: file(&self.cert)?,
            key: file(&self.key)?,
            user: self.user.clone(),
            password_file: file(&self.password_file)?,
        };
        etcd.check().map(|()| etcd)
    }
}

/// Writes the part `etcd` of `cell.toml`, or removes it. With it no line `database` is left, and
/// all else stays as it is.
///
/// # Errors
/// That of the file.
pub fn write_config(cell: &CellDir, etcd: Option<&EtcdConfig>) -> Result<(), String> {
    let before = cell_file::read(cell)?;
    let part = etcd.map(|etcd| toml::to_string(etcd).map_err(|error| error.to_string()));
    let after = with_part(&before, part.transpose()?.as_deref());
    cell_file::write(cell, &before, &after)
}

/// The text with this part `etcd` alone.
fn with_part(text: &str, part: Option<&str>) -> String {
    let (mut ours, mut in_parts) = (false, false);
    let mut kept: Vec<&str> = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with('[') {
            in_parts = true;
            ours = line.trim().starts_with("[etcd]");
        }
        let key = line.split('=').next().unwrap_or_default().trim();
        let names_server = !in_parts && key == "database" && part.is_some();
        if !ours && !names_server {
            kept.push(line);
        }
    }
    while kept.last().is_some_and(|line| line.trim().is_empty()) {
        kept.pop();
    }
    let mut after = kept.join("\n");
    after.push('\n');
    if let Some(part) = part {
        after.push_str("\n[etcd]\n");
        after.push_str(part);
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_part_of_the_file_changes() {
        let plain = "# A cell.\nname = \"a\"\n\n[limits]\nlog_mib = 3\n";
        let part = "endpoints = [\"127.0.0.1:2379\"]\n";
        let with = with_part(plain, Some(part));
        assert_eq!(with, format!("{plain}\n[etcd]\n{part}"));
        assert_eq!(with_part(&with, Some(part)), with);
        assert_eq!(with_part(&with, None), plain);
        let joined = "name = \"a\"\n database=\"h:1\"\n[limits]\ndatabase = 1\n";
        let expected = format!("name = \"a\"\n[limits]\ndatabase = 1\n\n[etcd]\n{part}");
        assert_eq!(with_part(joined, Some(part)), expected, "nothing else names a database");
        assert_eq!(with_part(joined, None), joined);
        let before = format!("name = \"a\"\n[etcd]\nuser = \"u\"\n{part}\n[limits]\nlog_mib = 3\n");
        assert_eq!(with_part(&before, None), "name = \"a\"\n[limits]\nlog_mib = 3\n");
    }
}
