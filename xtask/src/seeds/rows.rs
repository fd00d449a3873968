//! Reads files of rows: an id and a command in each line, `tasks: ID command`, `left: ID reason`, and comments.

use std::collections::BTreeMap;

/// A command that must succeed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) command: String,
}

/// The rows, and what is left for later.
pub(super) type Rows = (Vec<Row>, BTreeMap<String, String>);

/// `tasks`: whether rows are run that need them; otherwise they are left for later.
pub(super) fn read(text: &str, tasks: bool) -> Result<Rows, String> {
    let (mut rows, mut left) = (Vec::new(), BTreeMap::new());
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let is_left = line.strip_prefix("left:");
        let needs_tasks = line.strip_prefix("tasks:");
        let (id, rest) = is_left.or(needs_tasks).unwrap_or(line).trim().split_once(' ').unwrap_or_default();
        let rest = rest.trim();
        if id.is_empty() || rest.is_empty() {
            return Err(format!("line {}: neither a row nor a comment", number + 1));
        }
        match is_left {
            Some(_) => drop(left.insert(id.to_owned(), rest.to_owned())),
            None if needs_tasks.is_some() && !tasks => {
                drop(left.insert(id.to_owned(), "waiting for tasks".to_owned()));
            }
            None => rows.push(Row { id: id.to_owned(), command: rest.to_owned() }),
        }
    }
    Ok((rows, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_comments_and_what_is_left() {
        let text = "# why\n\nS1-001  m $BX ping | jq -e .result\nleft: S1-243 later\n";
        let (rows, left) = read(text, true).unwrap();
        assert_eq!(rows, [Row { id: "S1-001".into(), command: "m $BX ping | jq -e .result".into() }]);
        assert_eq!(left["S1-243"], "later");
        assert!(read("S1-001\n", true).is_err());
        let of_tasks = |tasks| read("tasks: S2-51 m $ER tasks/list\n", tasks).unwrap();
        assert_eq!(of_tasks(true).0, [Row { id: "S2-51".into(), command: "m $ER tasks/list".into() }]);
        assert_eq!(of_tasks(false).1["S2-51"], "waiting for tasks");
    }
}
