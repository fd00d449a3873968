//! Lists as bytes, kept for the next client that asks.
//!
//! A list is the same for everybody until it changes, and writing it out is the larger part of answering.
//! What was written last is kept, per edition, with the very things it was written from: as long as a page
//! holds the same ones, its bytes are right, so there is nothing to invalidate.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use toolgate_wire::model::{Outcome, Page};
use toolgate_wire::{ProtocolVersion, codec};

use super::ServerInfo;

/// The lists written last.
#[derive(Debug, Default)]
pub(super) struct ListCache {
    tools: VersionSlots,
    resources: VersionSlots,
    templates: VersionSlots,
    prompts: VersionSlots,
}

/// One slot for each edition.
type VersionSlots = [ArcSwapOption<CachedList>; ProtocolVersion::ALL.len()];

#[derive(Debug)]
struct CachedList {
    list: Outcome,
    /// Who said so: some editions sign their lists.
    server_info: Arc<ServerInfo>,
    /// With the brace that ends the message around it.
    bytes: Bytes,
}

impl ListCache {
    /// A list as it ends a message, written now or remembered. None for what is no list, or no whole one.
    pub(super) fn get_or_encode(
        &self,
        edition: ProtocolVersion,
        outcome: &Outcome,
        face: &Arc<ServerInfo>,
    ) -> Option<Bytes> {
        let (kept, next) = match outcome {
            Outcome::Tools(page) => (&self.tools, &page.next_cursor),
            Outcome::Resources(page) => (&self.resources, &page.next_cursor),
            Outcome::Templates(page) => (&self.templates, &page.next_cursor),
            Outcome::Prompts(page) => (&self.prompts, &page.next_cursor),
            _ => return None,
        };
        if next.is_some() {
            // Its cursor is sealed anew each time: no two of these are the same.
            return None;
        }
        let slot = &kept[edition as usize];
        if let Some(written) = slot.load().as_ref()
            && is_same(&written.list, outcome)
            && Arc::ptr_eq(&written.server_info, face)
        {
            return Some(written.bytes.clone());
        }
        let mut bytes = Vec::new();
        codec::write_outcome_from(&mut bytes, outcome, &face.encoded_info[edition as usize]);
        bytes.push(b'}');
        let bytes = Bytes::from(bytes);
        let written =
            CachedList { list: outcome.clone(), server_info: Arc::clone(face), bytes: bytes.clone() };
        slot.store(Some(Arc::new(written)));
        Some(bytes)
    }
}

/// The very same things: a slot keeps them alive, so no other thing can have taken their place in memory.
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
