//! Use this when clients should read data by URI: documents, records, configuration. A resource has one URI, a template a
//! set of them; clients can subscribe to changes.
//!
//! `cargo run --example resources -- 127.0.0.1:8080`

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate::{Context, Json, Server, State};

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<BTreeMap<String, String>>>);

impl Notes {
    fn ids(&self, prefix: &str) -> Vec<String> {
        let all: Vec<String> = self.with(|notes| notes.keys().cloned().collect());
        all.into_iter().filter(|id| id.starts_with(prefix)).collect()
    }

    fn with<R>(&self, read: impl FnOnce(&mut BTreeMap<String, String>) -> R) -> R {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// The variables of the template, by name.
#[derive(Deserialize, JsonSchema)]
struct Which {
    id: String,
}

#[derive(Deserialize, JsonSchema)]
struct Write {
    /// Which note
    id: String,
    /// What it should say
    text: String,
}

async fn index(notes: State<Notes>) -> Json<Vec<String>> {
    Json(notes.ids(""))
}

/// `None` means that there is no such resource; the client gets the error of its protocol version.
async fn note(which: Which, notes: State<Notes>) -> Option<String> {
    notes.with(|notes| notes.get(&which.id).cloned())
}

async fn write(args: Write, notes: State<Notes>, cx: Context) -> &'static str {
    notes.with(|notes| notes.insert(args.id.clone(), args.text));
    // Subscribers are notified once, however often the resource changes before they read it.
    cx.notify().resource_updated(&format!("notes://note/{}", args.id));
    cx.notify().resource_updated("notes://index");
    "written"
}

#[tokio::main]
async fn main() -> Result<(), toolgate::Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let notes = Notes::default();
    notes.with(|notes| notes.insert("today".into(), "Water the plants.".into()));
    Server::new("notes", "1.0.0")
        .state(notes.clone())
        .resource("notes://index", index)
        .describe("The ids of all notes")
        .template("notes://note/{id}", note)
        .name("note")
        .describe("One note")
        .mime("text/plain")
        .complete("id", move |prefix, _| {
            let ids = notes.ids(&prefix);
            async move { ids }
        })
        .tool("write", write)
        .describe("Writes a note")
        .listen(address)
        .await
}
