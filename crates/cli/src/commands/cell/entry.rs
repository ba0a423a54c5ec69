//! One line of an export: a kind, a name, and fields, as text or as JSON.
//!
//! Text is `KIND NAME FIELD=VALUE ...`, fields sorted; a name or value that is empty or has other
//! characters than those of most names is written as a JSON string. So the order of lines and
//! fields is always the same, and each line is read back as it was.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// See the head of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExportLine {
    pub kind: String,
    pub name: String,
    pub fields: BTreeMap<String, String>,
}

impl ExportLine {
    /// An entry without fields.
    pub fn new(kind: &str, name: impl Into<String>) -> ExportLine {
        ExportLine { kind: kind.to_owned(), name: name.into(), fields: BTreeMap::new() }
    }

    /// Adds a field.
    pub fn with(mut self, field: &str, value: &(impl ToString + ?Sized)) -> ExportLine {
        self.fields.insert(field.to_owned(), value.to_string());
        self
    }

    /// Adds a field that may be missing.
    pub fn with_some(self, field: &str, value: Option<impl ToString>) -> ExportLine {
        match value {
            Some(value) => self.with(field, &value),
            None => self,
        }
    }

    /// A field's value.
    pub fn field(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }

    /// The line of text.
    pub fn text(&self) -> String {
        let fields = self.fields.iter().map(|(field, value)| format!(" {field}={}", word(value)));
        format!("{} {}{}", self.kind, word(&self.name), fields.collect::<String>())
    }

    /// One JSON object.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("kind".to_owned(), json!(self.kind));
        object.insert("name".to_owned(), json!(self.name));
        object.extend(self.fields.iter().map(|(field, value)| (field.clone(), json!(value))));
        Value::Object(object)
    }

    /// Reads a line; `None`: it is empty or a remark.
    ///
    /// # Errors
    /// The reason why it is no line of an export.
    pub fn read(line: &str) -> Result<Option<ExportLine>, String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        if line.starts_with('{') {
            return read_json(line).map(Some);
        }
        let (kind, rest) = line.split_once(' ').ok_or("it has no name")?;
        let (name, mut rest) = take_word(rest.trim_start())?;
        let mut entry = ExportLine::new(kind, name);
        while !rest.is_empty() {
            let (field, value) = rest.split_once('=').ok_or("a field has no value")?;
            let (value, behind) = take_word(value)?;
            if entry.fields.insert(field.trim().to_owned(), value).is_some() {
                return Err(format!("{} is there twice", field.trim()));
            }
            rest = behind;
        }
        Ok(Some(entry))
    }
}

fn read_json(line: &str) -> Result<ExportLine, String> {
    let object: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| error.to_string())?;
    let mut entry = ExportLine::default();
    for (field, value) in object {
        let value = match value {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Bool(bool) => bool.to_string(),
            _ => return Err(format!("{field} is no text")),
        };
        match field.as_str() {
            "kind" => entry.kind = value,
            "name" => entry.name = value,
            _ => drop(entry.fields.insert(field, value)),
        }
    }
    if entry.kind.is_empty() { Err("it has no kind".to_owned()) } else { Ok(entry) }
}

fn is_plain(letter: char) -> bool {
    letter.is_alphanumeric() || "-_.:/@,*+".contains(letter)
}

fn word(text: &str) -> String {
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    json!(text).to_string()
}

/// The first word, and what follows it.
fn take_word(text: &str) -> Result<(String, &str), String> {
    if text.starts_with('"') {
        let mut words = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let first = words.next().ok_or("a word has no end")?.map_err(|error| error.to_string())?;
        let rest = text.get(words.byte_offset()..).unwrap_or_default();
        return Ok((first, rest.trim_start()));
    }
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    if word.is_empty() || !word.chars().all(is_plain) {
        return Err(format!("{word:?} is to be written as a JSON string"));
    }
    Ok((word.to_owned(), rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back_as_it_was() {
        let odd = ["", " ", "a b", "x=y", "\"", "\\", "é", "line\nbreak", "{", "#", "-----"];
        for name in odd.into_iter().chain(["joe", "10.1.0.0/16", "joe:friends", "a@B.C"]) {
            for value in odd {
                let entry = ExportLine::new("user", name).with("id", &7).with("why", value);
                let text = entry.text();
                assert!(!text.contains('\n'), "{text}");
                assert_eq!(ExportLine::read(&text), Ok(Some(entry.clone())), "{text}");
                assert_eq!(ExportLine::read(&entry.json().to_string()), Ok(Some(entry)));
            }
        }
        assert_eq!(ExportLine::new("user", "joe").with("uid", &1).text(), "user joe uid=1");
        assert_eq!(ExportLine::read("  # a remark"), Ok(None));
        let number = ExportLine::read("{\"kind\":\"user\",\"name\":\"joe\",\"uid\":1}");
        assert_eq!(number, Ok(Some(ExportLine::new("user", "joe").with("uid", &1))));
        for bad in ["user", "user joe uid", "user \"joe", "user joe uid=1 uid=1", "{}", "user a\"b"]
        {
            assert!(ExportLine::read(bad).is_err(), "{bad}");
        }
    }
}
