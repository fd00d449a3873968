//! Arguments as the texts that PostgreSQL reads.

use serde_json::Value;
use sqlx::TypeInfo as _;
use sqlx::postgres::{PgTypeInfo, PgTypeKind};

use super::super::value::from_base64;

/// What a parameter takes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Plain,
    Document,
    Bytes,
    List(Box<Slot>),
}

impl Slot {
    pub(super) fn of(kind: &PgTypeInfo) -> Slot {
        match kind.kind() {
            PgTypeKind::Array(element) => return Slot::List(Box::new(Slot::of(element))),
            PgTypeKind::Domain(inner) => return Slot::of(inner),
            _ => {}
        }
        match kind.name() {
            "JSON" | "JSONB" => Slot::Document,
            "BYTEA" => Slot::Bytes,
            _ => Slot::Plain,
        }
    }

    /// `None` is NULL.
    pub(super) fn write(&self, value: &Value) -> Result<Option<String>, String> {
        Ok(Some(match (self, value) {
            (_, Value::Null) => return Ok(None),
            (Slot::Document, value) => value.to_string(),
            (Slot::Bytes, Value::String(text)) => {
                let bytes = from_base64(text).ok_or("bytes are given in base64")?;
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("\\x{digits}")
            }
            (Slot::List(slot), Value::Array(items)) => slot.list(items)?,
            (_, Value::String(text)) => text.clone(),
            (_, value) => value.to_string(),
        }))
    }

    fn list(&self, items: &[Value]) -> Result<String, String> {
        let items = items.iter().map(|item| match item {
            Value::Array(items) if *self != Slot::Document => self.list(items),
            item => Ok(self.write(item)?.map_or_else(|| "NULL".to_owned(), |text| quote(&text))),
        });
        let items = items.collect::<Result<Vec<_>, String>>()?;
        Ok(format!("{{{}}}", items.join(",")))
    }
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_cannot_be_broken_out_of() {
        let list = Slot::List(Box::new(Slot::Plain));
        let written =
            list.write(&json!(["a", "b\"},{\"", "c\\", null, "NULL", "", 5, [true]])).unwrap().unwrap();
        assert_eq!(written, r#"{"a","b\"},{\"","c\\",NULL,"NULL","","5",{"true"}}"#);
        let documents = Slot::List(Box::new(Slot::Document));
        assert_eq!(documents.write(&json!([{"a": "x"}])).unwrap().unwrap(), r#"{"{\"a\":\"x\"}"}"#);
        assert_eq!(Slot::Bytes.write(&json!("AP8=")).unwrap().unwrap(), "\\x00ff");
        assert!(Slot::Bytes.write(&json!("no base64!")).is_err());
    }
}
