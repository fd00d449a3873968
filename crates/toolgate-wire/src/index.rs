//! Where the members of a request are, noted while its text is checked.
//!
//! Nearly every request is made of the same few parameters and says the same
//! few things in `_meta`. The scan passes all of them once; whoever reads the
//! request afterwards looks here instead of walking over the text again. Room
//! is fixed and holds no copy: an index costs no allocation.
//!
//! An index says where things are, never whether they are right.

use std::sync::Arc;

use crate::codec::Greetings;
use crate::json::{Key, Members, View};
use crate::meta::{Client, key};

/// Where the common parameters of one request are, and its `_meta`.
///
/// Made by [`read_noting`](crate::read_noting), used by
/// [`Said::noted`](crate::codec::Said::noted).
#[derive(Debug, Default)]
pub struct Index<'a> {
    /// The whole of the parameters.
    object: Option<View<'a>>,
    params: Params<'a>,
    /// How deep the text may be, as far as it was checked.
    max_depth: usize,
    /// Who greets, if it is somebody we know.
    client: Option<Arc<Client>>,
}

/// The common parameters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Params<'a> {
    values: [Option<View<'a>>; 8],
    meta: MetaKeys<'a>,
}

/// The keys of the protocol in `_meta`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MetaKeys<'a> {
    pub(crate) version: Option<View<'a>>,
    pub(crate) capabilities: Option<View<'a>>,
    pub(crate) client: Option<View<'a>>,
    pub(crate) progress: Option<View<'a>>,
    pub(crate) level: Option<View<'a>>,
}

impl<'a> Index<'a> {
    pub(crate) fn note(&mut self, params: View<'a>) {
        self.object = Some(params);
    }

    /// What was noted of these parameters; none if they are not the very ones
    /// that were read.
    pub(crate) fn of(&self, params: View<'_>) -> Option<&Params<'a>> {
        let same = |noted: View<'_>| std::ptr::eq(noted.as_bytes(), params.as_bytes());
        self.object.is_some_and(same).then_some(&self.params)
    }

    /// How deep the text may be, as far as it was checked.
    pub(crate) fn max_depth(&self) -> usize {
        self.max_depth
    }

    /// Who greets, if that was known.
    pub(crate) fn client(&self) -> Option<&Arc<Client>> {
        self.client.as_ref()
    }
}

/// Notes parameters, and looks up greetings that were heard before.
pub(crate) struct Noting<'a, 'i> {
    pub(crate) index: &'i mut Index<'a>,
    pub(crate) greetings: Option<&'i Greetings>,
}

impl<'a> Params<'a> {
    /// Walks over parameters that nobody noted.
    pub(crate) fn walk(object: View<'a>) -> Self {
        let mut params = Self::default();
        for (key, value) in object.pairs() {
            if let Some(place) = Key::of(key).find(Self::place_of) {
                params.note(place, value);
            }
        }
        for (key, value) in params.values[META].into_iter().flat_map(|meta| meta.pairs()) {
            if let Some(place) = params.meta.place(Key::of(key)) {
                params.meta.note(place, value);
            }
        }
        params
    }

    #[inline(always)]
    fn note(&mut self, place: usize, value: View<'a>) {
        if let Some(slot) = self.values.get_mut(place) {
            *slot = Some(value);
        }
    }

    /// The place of a parameter, if it is a common one.
    #[inline(always)]
    pub(crate) fn place_of(name: &[u8]) -> Option<usize> {
        Some(match name {
            b"_meta" => META,
            b"name" => 1,
            b"arguments" => 2,
            b"uri" => 3,
            b"cursor" => 4,
            b"inputResponses" => 5,
            b"requestState" => 6,
            b"task" => 7,
            _ => return None,
        })
    }

    /// The value at a place that [`Params::place_of`] gave.
    #[inline(always)]
    pub(crate) fn at(&self, place: usize) -> Option<View<'a>> {
        self.values.get(place).copied().flatten()
    }

    /// What `_meta` says, if it is an object.
    #[inline]
    pub(crate) fn meta(&self) -> Option<&MetaKeys<'a>> {
        let meta = self.values[META]?;
        meta.is_object().then_some(&self.meta)
    }
}

const META: usize = 0;

/// What most keys of the protocol begin with: compared once.
const PREFIX: &[u8] = b"io.modelcontextprotocol/";

/// The rest of such a key.
const fn ours(key: &str) -> &[u8] {
    key.as_bytes().split_at(PREFIX.len()).1
}

impl<'a> Members<'a> for Noting<'a, '_> {
    type Within = MetaKeys<'a>;

    #[inline(always)]
    fn place(&self, key: Key<'a>) -> Option<usize> {
        key.find(Params::place_of)
    }

    #[inline(always)]
    fn within(&mut self, place: usize) -> Option<&mut MetaKeys<'a>> {
        (place == META).then_some(&mut self.index.params.meta)
    }

    #[inline(always)]
    fn note(&mut self, place: usize, value: View<'a>) {
        self.index.params.note(place, value);
    }

    fn known(&mut self, place: usize, rest: &'a [u8], max_depth: usize) -> Option<usize> {
        if place != META {
            return None;
        }
        self.index.max_depth = max_depth;
        let (meta, n_bytes, client) = self.greetings?.recall(rest, max_depth)?;
        self.index.params.meta = meta;
        self.index.client = Some(client);
        Some(n_bytes)
    }
}

impl<'a> Members<'a> for MetaKeys<'a> {
    type Within = ();

    #[inline(always)]
    fn place(&self, key: Key<'a>) -> Option<usize> {
        const VERSION: &[u8] = ours(key::VERSION);
        const CAPABILITIES: &[u8] = ours(key::CAPABILITIES);
        const CLIENT: &[u8] = ours(key::CLIENT);
        const LEVEL: &[u8] = ours(key::LOG_LEVEL);
        const PROGRESS: &[u8] = key::PROGRESS.as_bytes();
        key.find(
            #[inline(always)]
            |name| match name.strip_prefix(PREFIX) {
                Some(VERSION) => Some(0),
                Some(CAPABILITIES) => Some(1),
                Some(CLIENT) => Some(2),
                None if name == PROGRESS => Some(3),
                Some(LEVEL) => Some(4),
                _ => None,
            },
        )
    }

    fn within(&mut self, _: usize) -> Option<&mut ()> {
        None
    }

    #[inline(always)]
    fn note(&mut self, place: usize, value: View<'a>) {
        let slot = match place {
            0 => &mut self.version,
            1 => &mut self.capabilities,
            2 => &mut self.client,
            3 => &mut self.progress,
            _ => &mut self.level,
        };
        *slot = Some(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_the_protocol_begin_alike() {
        for key in [key::VERSION, key::CAPABILITIES, key::CLIENT, key::LOG_LEVEL] {
            assert!(key.as_bytes().starts_with(PREFIX), "{key}");
        }
    }
}
