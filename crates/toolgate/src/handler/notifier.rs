//! Change notifications, sent by handlers and by the program.

use std::sync::Arc;

use crate::subscriptions::{ChangeTopic, Subscriptions};

/// Sends change notifications to clients. Repeated changes before a client reacts are coalesced into one notification.
///
/// ```
/// # fn main() -> Result<(), toolgate::Error> {
/// let server = toolgate::Server::new("notes", "1.0.0").resource("notes://all", || async { "…" }).build()?;
/// // After the notes have changed; in a handler, `cx.notify()` returns the notifier.
/// server.notify().resource_updated("notes://all");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "list_changed")]
pub struct Notifier(pub(crate) Arc<Subscriptions>);

impl Notifier {
    /// Announces that the list of tools has changed.
    pub fn tools_changed(&self) {
        self.0.publish(&ChangeTopic::Tools);
    }

    /// Announces that the list of prompts has changed.
    pub fn prompts_changed(&self) {
        self.0.publish(&ChangeTopic::Prompts);
    }

    /// Announces that the list of resources or templates has changed.
    pub fn resources_changed(&self) {
        self.0.publish(&ChangeTopic::Resources);
    }

    /// Announces that the resource with this URI has changed.
    pub fn resource_updated(&self, uri: &str) {
        self.0.publish(&ChangeTopic::Resource(uri.into()));
    }
}
