//! Formats arguments as the text that PostgreSQL parses.

use serde_json::Value;
use sqlx::TypeInfo as _;
use sqlx::postgres::{PgTypeInfo, PgTypeKind};

use super::super::value::from_base64;

/// The text format of a parameter.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParameterFormat {
    Text,
    Json,
    Bytes,
    Array(Box<ParameterFormat>),
}

impl ParameterFormat {
    pub(super) fn from_type(kind: &PgTypeInfo) -> ParameterFormat {
        match kind.kind() {
            PgTypeKind::Array(element) => {
                return ParameterFormat::Array(Box::new(ParameterFormat::from_type(element)));
            }
            PgTypeKind::Domain(inner) => return ParameterFormat::from_type(inner),
            _ => {}
        }
        match kind.name() {
            "JSON" | "JSONB" => ParameterFormat::Json,
            "BYTEA" => ParameterFormat::Bytes,
            _ => ParameterFormat::Text,
        }
    }

    /// Formats a value. `None` is NULL.
    pub(super) fn encode(&self, value: &Value) -> Result<Option<String>, String> {
        Ok(Some(match (self, value) {
            (_, Value::Null) => return Ok(None),
            (ParameterFormat::Json, value) => value.to_string(),
            (ParameterFormat::Bytes, Value::String(text)) => {
                let bytes = from_base64(text).ok_or("bytes must be base64")?;
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("\\x{digits}")
            }
            (ParameterFormat::Array(format), Value::Array(items)) => format.encode_array(items)?,
            (_, Value::String(text)) => text.clone(),
            (_, value) => value.to_string(),
        }))
    }

    fn encode_array(&self, items: &[Value]) -> Result<String, String> {
        let items = items.iter().map(|item| match item {
            Value::Array(items) if *self != ParameterFormat::Json => self.encode_array(items),
            item => Ok(self.encode(item)?.map_or_else(|| "NULL".to_owned(), |text| quote_array_item(&text))),
        });
        let items = items.collect::<Result<Vec<_>, String>>()?;
        Ok(format!("{{{}}}", items.join(",")))
    }
}

fn quote_array_item(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn array_items_are_escaped() {
        let list = ParameterFormat::Array(Box::new(ParameterFormat::Text));
        let encoded =
            list.encode(&json!(["a", "b\"},{\"", "c\\", null, "NULL", "", 5, [true]])).unwrap().unwrap();
        assert_eq!(encoded, r#"{"a","b\"},{\"","c\\",NULL,"NULL","","5",{"true"}}"#);
        let documents = ParameterFormat::Array(Box::new(ParameterFormat::Json));
        assert_eq!(documents.encode(&json!([{"a": "x"}])).unwrap().unwrap(), r#"{"{\"a\":\"x\"}"}"#);
        assert_eq!(ParameterFormat::Bytes.encode(&json!("AP8=")).unwrap().unwrap(), "\\x00ff");
        assert!(ParameterFormat::Bytes.encode(&json!("no base64!")).is_err());
    }
}
