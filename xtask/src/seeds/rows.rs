//! Parses files of rows: an id and a command per line, `left: ID reason` for deferred ids, and comments.

use std::collections::BTreeMap;

/// A command that must succeed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) command: String,
}

/// The rows, and the deferred ids with their reasons.
pub(super) type Rows = (Vec<Row>, BTreeMap<String, String>);

pub(super) fn read(text: &str) -> Result<Rows, String> {
    let (mut rows, mut left) = (Vec::new(), BTreeMap::new());
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let is_left = line.strip_prefix("left:");
        let (id, rest) = is_left.unwrap_or(line).trim().split_once(' ').unwrap_or_default();
        let rest = rest.trim();
        if id.is_empty() || rest.is_empty() {
            return Err(format!("line {}: neither a row nor a comment", number + 1));
        }
        match is_left {
            Some(_) => drop(left.insert(id.to_owned(), rest.to_owned())),
            None => rows.push(Row { id: id.to_owned(), command: rest.to_owned() }),
        }
    }
    Ok((rows, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_comments_and_deferred_ids() {
        let text = "# why\n\nS1-001  m $BX ping | jq -e .result\nleft: S1-243 later\n";
        let (rows, left) = read(text).unwrap();
        assert_eq!(rows, [Row { id: "S1-001".into(), command: "m $BX ping | jq -e .result".into() }]);
        assert_eq!(left["S1-243"], "later");
        assert!(read("S1-001\n").is_err());
    }
}
