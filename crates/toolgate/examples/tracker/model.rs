//! The data of the tracker: types whose schemas are announced to clients, and a store in memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use toolgate::prelude::*;

/// The state of an issue
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    #[default]
    Open,
    InProgress,
    Closed,
}

/// How soon an issue has to be solved
#[derive(Clone, Copy, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Priority {
    Low,
    #[default]
    Normal,
    High,
}

/// A change of an issue
#[derive(Clone, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Change {
    Opened,
    Assigned { from: Option<String>, to: Option<String> },
    Labelled { added: Vec<String>, removed: Vec<String> },
    Closed { resolution: Option<String> },
}

/// An issue. Options without a value are sent as `null`, which the announced schema allows.
#[derive(Clone, Serialize, JsonSchema)]
#[serde(rename_all(serialize = "camelCase"))]
pub(crate) struct Issue {
    pub(crate) id: u64,
    pub(crate) title: String,
    pub(crate) body: Option<String>,
    pub(crate) status: Status,
    pub(crate) priority: Priority,
    pub(crate) assigned_to: Option<String>,
    pub(crate) labels: Vec<String>,
    /// A date such as 2026-12-31
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_date: Option<String>,
    pub(crate) history: Vec<Change>,
}

/// A comment on an issue
#[derive(Clone, Serialize, JsonSchema)]
pub(crate) struct Comment {
    pub(crate) number: u32,
    pub(crate) author: Option<String>,
    pub(crate) text: String,
}

/// Part of a list
#[derive(Serialize, JsonSchema)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) total: u64,
    /// The offset of the next page
    pub(crate) next: Option<u64>,
}

/// Numbers about all issues
#[derive(Serialize, JsonSchema)]
pub(crate) struct Totals {
    pub(crate) by_status: BTreeMap<Status, u64>,
    /// The lowest and the highest id
    pub(crate) ids: Option<(u64, u64)>,
}

/// All issues and their comments.
#[derive(Default)]
pub(crate) struct Tracker(Mutex<Data>);

#[derive(Default)]
pub(crate) struct Data {
    pub(crate) issues: BTreeMap<u64, Issue>,
    pub(crate) comments: BTreeMap<u64, Vec<Comment>>,
    last_id: u64,
}

impl Tracker {
    /// Locks the data. Never hold the guard across an `await`.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Data> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, id: u64) -> Result<Issue, HandlerError> {
        self.update(id, |issue| issue.clone())
    }

    /// Changes an issue and returns what `change` returns.
    pub(crate) fn update<T>(&self, id: u64, change: impl FnOnce(&mut Issue) -> T) -> Result<T, HandlerError> {
        let mut data = self.lock();
        let issue = data.issues.get_mut(&id);
        issue
            .map(change)
            .ok_or_else(|| HandlerError::new(format!("there is no issue {id}; see `list_issues`")))
    }
}

impl Data {
    pub(crate) fn open(&mut self, title: String) -> &mut Issue {
        self.last_id += 1;
        let id = self.last_id;
        self.issues.entry(id).or_insert(Issue {
            id,
            title,
            body: None,
            status: Status::Open,
            priority: Priority::Normal,
            assigned_to: None,
            labels: Vec::new(),
            due_date: None,
            history: vec![Change::Opened],
        })
    }
}
