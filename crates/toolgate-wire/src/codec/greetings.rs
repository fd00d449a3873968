//! The greetings heard last, so that one that is said again is not read again.
//!
//! Where there is no handshake a client introduces itself with every request,
//! in the same words each time. They are compared byte by byte with words that
//! were read before; equal words mean equal things, so nothing can be mistaken
//! and nothing has to be forgotten.
//!
//! Nobody waits here: a place that somebody else is looking at is passed by,
//! and the greeting read as if it were new. What is kept is bounded: a few
//! places, short greetings only, and no part of the message they came in.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::greeting::{Said, read_date};
use crate::index::{Index, MetaKeys};
use crate::json::{View, trusted_view};
use crate::meta::{Client, key};
use crate::{Edition, Fault};

/// How many different greetings are remembered.
const N_PLACES: usize = 16;

/// How many of them are recognized while a message is checked. Each is compared
/// with what comes, so these are few.
const N_WHOLES: usize = 4;

/// How many must have come in vain before one of those is replaced: where there
/// are many more clients than places, keeping the next one would only cost.
const PATIENCE: usize = 64;

/// The longest greeting that is remembered, in bytes.
const LONGEST: usize = 1024;

/// Clients that introduced themselves lately.
///
/// ```
/// # use toolgate_wire::codec::{Greetings, Said};
/// # use toolgate_wire::{Edition, Raw};
/// let params = Raw::from(serde_json::json!({ "_meta": {
///     "io.modelcontextprotocol/protocolVersion": Edition::NEWEST.date(),
///     "io.modelcontextprotocol/clientCapabilities": {},
/// } }));
/// let greetings = Greetings::default();
/// let (version, client) = greetings.meet(&Said::of(Some(&params)).unwrap()).unwrap();
/// assert_eq!((&*version, client.edition), (Edition::NEWEST.date(), Edition::NEWEST));
/// let (_, again) = greetings.meet(&Said::of(Some(&params)).unwrap()).unwrap();
/// assert!(std::sync::Arc::ptr_eq(&client, &again));
/// ```
#[derive(Debug, Default)]
pub struct Greetings {
    places: [Mutex<Option<Known>>; N_PLACES],
    wholes: Mutex<Wholes>,
}

/// Those whose `_meta` says nothing else, for [`read_knowing`](crate::read_knowing).
#[derive(Debug, Default)]
struct Wholes {
    kept: [Option<Whole>; N_WHOLES],
    /// How many were looked for since one was replaced.
    n_missed: usize,
    oldest: usize,
}

/// An object that was checked, and where its members are.
#[derive(Debug)]
struct Whole {
    text: Box<[u8]>,
    max_depth: usize,
    version: Range<usize>,
    capabilities: Range<usize>,
    client_info: Option<Range<usize>>,
    client: Arc<Client>,
}

/// One greeting, as it was said and as it was understood.
#[derive(Debug)]
struct Known {
    words: Box<[u8]>,
    /// Where the capabilities begin in `words`, and where the client does.
    cuts: [usize; 2],
    client: Arc<Client>,
}

impl Greetings {
    /// What a request says of its sender: the edition as it spelled it, and the
    /// rest. The edition of the client is the one it names if that needs no
    /// handshake, and the newest otherwise: whether it is served is for others
    /// to judge.
    ///
    /// # Errors
    /// As [`Said::greeting`].
    pub fn meet<'a>(&self, said: &Said<'a>) -> Result<(Cow<'a, str>, Arc<Client>), Fault> {
        let Some(words) = said.words() else {
            return read(said);
        };
        let recalled = said.index().and_then(Index::client);
        if let (Some(client), Some(version)) = (recalled, read_date(words.version)) {
            return Ok((version, Arc::clone(client)));
        }
        let Ok(mut place) = self.places[words.place()].try_lock() else {
            return read(said);
        };
        if let Some(known) = &*place
            && words.are(known)
            && let Some(version) = read_date(words.version)
        {
            self.keep_whole(said, &words, &known.client);
            return Ok((version, Arc::clone(&known.client)));
        }
        let (version, client) = read(said)?;
        if let Some(known) = words.keep(&client) {
            *place = Some(known);
        }
        Ok((version, client))
    }
}

impl Greetings {
    /// The `_meta` at the beginning of `rest`, if it was met before: where its
    /// members are, how long it is, and who says it.
    pub(crate) fn recall<'a>(
        &self,
        rest: &'a [u8],
        max_depth: usize,
    ) -> Option<(MetaKeys<'a>, usize, Arc<Client>)> {
        let wholes = self.wholes.try_lock().ok()?;
        let same = |whole: &&Whole| whole.max_depth == max_depth && rest.starts_with(&whole.text);
        let whole = wholes.kept.iter().flatten().find(same)?;
        let view = |place: &Range<usize>| rest.get(place.clone()).map(trusted_view);
        let meta = MetaKeys {
            version: view(&whole.version),
            capabilities: view(&whole.capabilities),
            client: whole.client_info.as_ref().and_then(view),
            ..MetaKeys::default()
        };
        Some((meta, whole.text.len(), Arc::clone(&whole.client)))
    }

    /// Keeps a `_meta` that was checked as part of a message, if there is
    /// nothing in it but a greeting.
    fn keep_whole(&self, said: &Said<'_>, words: &Words<'_>, client: &Arc<Client>) {
        let (Some(index), Some(meta)) = (said.index(), said.whole()) else { return };
        let Some(whole) = Whole::of(meta, words, index.max_depth(), client) else { return };
        let Ok(mut wholes) = self.wholes.try_lock() else { return };
        wholes.n_missed += 1;
        let place = match wholes.kept.iter().position(Option::is_none) {
            Some(free) => free,
            None if wholes.n_missed < PATIENCE => return,
            None => wholes.oldest,
        };
        wholes.kept[place] = Some(whole());
        wholes.oldest = (place + 1) % N_WHOLES;
        wholes.n_missed = 0;
    }
}

impl Whole {
    /// None if there is more in it than a greeting, or white space. It is
    /// copied by whoever calls what is returned.
    fn of<'a>(
        meta: View<'a>,
        words: &Words<'a>,
        max_depth: usize,
        client: &'a Arc<Client>,
    ) -> Option<impl FnOnce() -> Whole> {
        let text = meta.as_bytes();
        // Quotes, colon and comma for each member; the last has a brace instead, and one opens.
        let n_bytes = |key: &str, value: View<'_>| key.len() + value.as_bytes().len() + 4;
        let n_client = words.client.map_or(0, |client| n_bytes(key::CLIENT, client));
        let greeting =
            n_bytes(key::VERSION, words.version) + n_bytes(key::CAPABILITIES, words.capabilities) + n_client;
        if greeting + 1 != text.len() || text.len() > LONGEST {
            return None;
        }
        let place = |value: View<'_>| place_in(text, value.as_bytes());
        let (version, capabilities) = (place(words.version)?, place(words.capabilities)?);
        let client_info = words.client.and_then(place);
        let client = Arc::clone(client);
        Some(move || Whole { text: text.into(), max_depth, version, capabilities, client_info, client })
    }
}

/// Where a part of a text is in it; none if it is part of another.
fn place_in(text: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let place = start..start.checked_add(part.len())?;
    std::ptr::eq(text.get(place.clone())?, part).then_some(place)
}

/// Without the text it came in: whoever keeps a client must not keep a message.
fn read<'a>(said: &Said<'a>) -> Result<(Cow<'a, str>, Arc<Client>), Fault> {
    let (version, capabilities, info) = said.clone().apart().greeting()?;
    let named = Edition::of(&version).filter(|edition| !edition.shakes_hands());
    let client = Client { edition: named.unwrap_or(Edition::NEWEST), capabilities, info };
    Ok((version.into(), Arc::new(client)))
}

/// A greeting as it is said.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) version: View<'a>,
    pub(super) capabilities: View<'a>,
    pub(super) client: Option<View<'a>>,
}

impl Words<'_> {
    fn parts(&self) -> [&[u8]; 3] {
        let client = self.client.as_ref().map_or(&[][..], View::as_bytes);
        [self.version.as_bytes(), self.capabilities.as_bytes(), client]
    }

    /// Not a hash that nobody can break: whoever meets another one in its
    /// place has only to be read again.
    fn place(&self) -> usize {
        let fold = |sum: usize, part: &[u8]| {
            let (words, rest) = part.as_chunks::<8>();
            let step =
                |sum: usize, word: usize| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize);
            let sum = words.iter().fold(sum, |sum, word| step(sum, u64::from_le_bytes(*word) as usize));
            step(sum, rest.len())
        };
        let sum = self.parts().into_iter().fold(0, fold);
        (sum >> (usize::BITS - 8)) % N_PLACES
    }

    fn are(&self, known: &Known) -> bool {
        let [version, capabilities, client] = self.parts();
        let [first, second] = known.cuts;
        known.words.get(..first) == Some(version)
            && known.words.get(first..second) == Some(capabilities)
            && known.words.get(second..) == Some(client)
    }

    fn keep(&self, client: &Arc<Client>) -> Option<Known> {
        let words = self.parts().concat();
        if words.len() > LONGEST {
            return None;
        }
        let first = self.version.as_bytes().len();
        let second = first + self.capabilities.as_bytes().len();
        Some(Known { words: words.into(), cuts: [first, second], client: Arc::clone(client) })
    }
}
