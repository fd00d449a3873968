//! Lists as bytes, kept for the next client that asks.
//!
//! A list is the same for everybody until it changes, and writing it out is the larger part of answering.
//! What was written last is kept, per edition, with the very things it was written from: as long as a page
//! holds the same ones, its bytes are right, so there is nothing to invalidate.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use toolgate_wire::model::{Outcome, Page, Prompt, Resource, ResourceTemplate, Tool};
use toolgate_wire::{Edition, codec};

use super::Face;

/// The lists written last.
#[derive(Debug, Default)]
pub(super) struct Lists {
    tools: Kept<Tool>,
    resources: Kept<Resource>,
    templates: Kept<ResourceTemplate>,
    prompts: Kept<Prompt>,
}

/// One slot for each edition.
type Kept<T> = [ArcSwapOption<Written<T>>; Edition::ALL.len()];

#[derive(Debug)]
struct Written<T> {
    page: Page<T>,
    /// Who said so: some editions sign their lists.
    face: Arc<Face>,
    /// With the brace that ends the message around it.
    bytes: Bytes,
}

impl Lists {
    /// A list as it ends a message, written now or remembered. None for what is no list, or no whole one.
    pub(super) fn recall(&self, edition: Edition, outcome: &Outcome, face: &Arc<Face>) -> Option<Bytes> {
        match outcome {
            Outcome::Tools(page) => recall(&self.tools, edition, outcome, page, face),
            Outcome::Resources(page) => recall(&self.resources, edition, outcome, page, face),
            Outcome::Templates(page) => recall(&self.templates, edition, outcome, page, face),
            Outcome::Prompts(page) => recall(&self.prompts, edition, outcome, page, face),
            _ => None,
        }
    }
}

fn recall<T>(
    kept: &Kept<T>,
    edition: Edition,
    outcome: &Outcome,
    page: &Page<T>,
    face: &Arc<Face>,
) -> Option<Bytes> {
    if page.next.is_some() {
        // Its cursor is sealed anew each time: no two of these are the same.
        return None;
    }
    let slot = &kept[edition as usize];
    if let Some(written) = slot.load().as_ref()
        && is_same(&written.page, page)
        && Arc::ptr_eq(&written.face, face)
    {
        return Some(written.bytes.clone());
    }
    let mut bytes = Vec::new();
    codec::write_signed_outcome(&mut bytes, outcome, &face.signatures[edition as usize]);
    bytes.push(b'}');
    let bytes = Bytes::from(bytes);
    let page = Page { items: page.items.clone(), next: page.next.clone(), cache: page.cache };
    slot.store(Some(Arc::new(Written { page, face: Arc::clone(face), bytes: bytes.clone() })));
    Some(bytes)
}

/// The very same things: a slot keeps them alive, so no other thing can have taken their place in memory.
fn is_same<T>(one: &Page<T>, other: &Page<T>) -> bool {
    one.items.len() == other.items.len()
        && one.next == other.next
        && one.cache == other.cache
        && one.items.iter().zip(&other.items).all(|(one, other)| Arc::ptr_eq(one, other))
}
