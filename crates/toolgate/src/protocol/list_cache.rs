//! Cache of encoded lists (`tools/list` and the others).
//!
//! A list is the same for all clients until it changes, and encoding it is most of the work of its response. The last encoding
//! is kept per protocol version, together with the items it was made from: as long as a page has the same items, the bytes are
//! valid, so no invalidation is needed.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use toolgate_wire::model::{Outcome, Page};
use toolgate_wire::{ProtocolVersion, codec};

use super::ServerInfo;

/// The last encoding of each list.
#[derive(Debug, Default)]
pub(super) struct ListCache {
    tools: VersionSlots,
    resources: VersionSlots,
    templates: VersionSlots,
    prompts: VersionSlots,
}

/// One slot for each protocol version.
type VersionSlots = [ArcSwapOption<CachedList>; ProtocolVersion::ALL.len()];

#[derive(Debug)]
struct CachedList {
    list: Outcome,
    /// Some protocol versions put the server info into their lists.
    server_info: Arc<ServerInfo>,
    /// The encoded list, with the closing brace of the message.
    bytes: Bytes,
}

impl ListCache {
    /// Returns a list as the end of a message, from the cache or encoded now. Returns `None` if the outcome is not a list, or only
    /// a part of one.
    pub(super) fn get_or_encode(
        &self,
        version: ProtocolVersion,
        outcome: &Outcome,
        server_info: &Arc<ServerInfo>,
    ) -> Option<Bytes> {
        let (slots, next_cursor) = match outcome {
            Outcome::Tools(page) => (&self.tools, &page.next_cursor),
            Outcome::Resources(page) => (&self.resources, &page.next_cursor),
            Outcome::Templates(page) => (&self.templates, &page.next_cursor),
            Outcome::Prompts(page) => (&self.prompts, &page.next_cursor),
            _ => return None,
        };
        if next_cursor.is_some() {
            // The cursor is sealed with a new nonce each time, so no two of these are equal.
            return None;
        }
        let slot = &slots[version as usize];
        if let Some(cached) = slot.load().as_ref()
            && is_same(&cached.list, outcome)
            && Arc::ptr_eq(&cached.server_info, server_info)
        {
            return Some(cached.bytes.clone());
        }
        let mut bytes = Vec::new();
        codec::write_outcome_from(&mut bytes, outcome, &server_info.encoded_info[version as usize]);
        bytes.push(b'}');
        let bytes = Bytes::from(bytes);
        let cached =
            CachedList { list: outcome.clone(), server_info: Arc::clone(server_info), bytes: bytes.clone() };
        slot.store(Some(Arc::new(cached)));
        Some(bytes)
    }
}

/// Whether two lists have the same items, compared by address. A slot keeps its items alive, so an address cannot have been
/// reused.
fn is_same(one: &Outcome, other: &Outcome) -> bool {
    fn is_same_page<T>(one: &Page<T>, other: &Page<T>) -> bool {
        one.items.len() == other.items.len()
            && one.next_cursor == other.next_cursor
            && one.cache == other.cache
            && one.items.iter().zip(&other.items).all(|(one, other)| Arc::ptr_eq(one, other))
    }
    match (one, other) {
        (Outcome::Tools(one), Outcome::Tools(other)) => is_same_page(one, other),
        (Outcome::Resources(one), Outcome::Resources(other)) => is_same_page(one, other),
        (Outcome::Templates(one), Outcome::Templates(other)) => is_same_page(one, other),
        (Outcome::Prompts(one), Outcome::Prompts(other)) => is_same_page(one, other),
        _ => false,
    }
}
