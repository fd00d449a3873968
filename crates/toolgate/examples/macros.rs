//! Functions and methods as tools, resources and prompts. Use this unless names are only known at run time.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use toolgate::prelude::*;

/// What is known of a note
#[derive(Clone, Serialize, JsonSchema)]
struct Note {
    text: String,
    words: usize,
}

/// Count the words of a text
#[tool(read_only, closed_world)]
fn count(
    /// What to count in
    #[arg(min_len = 1)]
    text: String,
) -> usize {
    text.split_whitespace().count()
}

/// The caller, as far as it was proven
// `inline`: it is too short to be worth a thread of the blocking pool.
#[tool(read_only, inline)]
fn whoami(who: Principal, headers: Headers) -> String {
    format!("{} with {} headers", who.id().unwrap_or("nobody in particular"), headers.len())
}

struct Notes(Mutex<BTreeMap<usize, Note>>);

impl Notes {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<usize, Note>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[server(instructions = "A notebook: `add` writes, `notes://{id}` reads")]
impl Notes {
    /// Add a note
    #[tool]
    async fn add(&self, #[arg(max_len = 1000)] text: String, cx: Ctx) -> Note {
        let note = Note { words: count(text.clone()), text };
        self.with(|notes| notes.insert(notes.len(), note.clone()));
        cx.notify().resource_updated("notes://all");
        note
    }

    /// The newest notes
    #[tool(read_only)]
    fn newest(
        &self,
        /// How many
        #[arg(default = 3, range = 1..=50)]
        limit: usize,
    ) -> Vec<Note> {
        self.with(|notes| notes.values().rev().take(limit).cloned().collect())
    }

    /// All notes
    #[resource("notes://all")]
    fn all(&self) -> Vec<Note> {
        self.with(|notes| notes.values().cloned().collect())
    }

    /// One note
    #[template("notes://{id}")]
    async fn one(&self, id: usize) -> Option<String> {
        self.with(|notes| notes.get(&id).map(|note| note.text.clone()))
    }

    /// Summarize one note
    #[prompt]
    async fn summarize(
        &self,
        id: usize,
        #[arg(default = "short")] style: String,
    ) -> Result<String, HandlerError> {
        let text = self.one(id).await.ok_or(HandlerError::new("there is no such note"))?;
        Ok(format!("Summarize in {style} style:\n{text}"))
    }

    #[complete(one.id, summarize.id)]
    fn ids(&self, prefix: String) -> Vec<String> {
        let ids = self.with(|notes| notes.keys().map(usize::to_string).collect::<Vec<_>>());
        ids.into_iter().filter(|id| id.starts_with(&prefix)).collect()
    }
}

toolgate::main!(Server::new("notes", env!("CARGO_PKG_VERSION")).add(Notes(Mutex::default())).collect());
