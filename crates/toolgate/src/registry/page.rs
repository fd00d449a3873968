//! Pages of lists, with cursors that need no memory.
//!
//! A cursor is the key of the last thing on the page before, sealed: any node can go on from it, it
//! survives changes of the list, and a made-up one is noticed.

use toolgate_wire::model::{CacheHint, CacheScope, Page};
use toolgate_wire::{ProtocolError, ProtocolErrorKind};

use super::{Keyed, OrderedMap, View};
use crate::seal::Seal;

/// What a list shows of a thing.
pub(crate) trait ListEntry: Keyed {
    type Item;

    fn item(&self) -> std::sync::Arc<Self::Item>;

    fn is_visible(&self, view: View<'_>) -> bool;
}

/// Cuts lists into pages.
#[derive(Clone)]
pub(crate) struct Pager {
    pub(crate) size: usize,
    pub(crate) cache: CacheHint,
    pub(crate) seal: Seal,
}

impl std::fmt::Debug for Pager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pager").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Pager {
    /// The page of `shelf` that `cursor` names; `list` keeps the cursors of different lists apart.
    pub(crate) fn page<T: ListEntry>(
        &self,
        list: &str,
        shelf: &OrderedMap<T>,
        cursor: Option<&str>,
        view: View<'_>,
    ) -> Result<Page<T::Item>, ProtocolError> {
        let rest = match cursor {
            None => shelf.as_slice(),
            Some(cursor) => {
                let key = self.decode_cursor(list, cursor)?;
                // The thing itself may be gone since; then so is the place, and the client starts again.
                let place = shelf.index_of(&key).ok_or_else(unknown_cursor)?;
                &shelf.as_slice()[place + 1..]
            }
        };
        if view.is_unrestricted() {
            let shown = &rest[..rest.len().min(self.size)];
            let next = shown
                .last()
                .filter(|_| shown.len() < rest.len())
                .map(|last| self.encode_cursor(list, last.key()));
            let items = shown.iter().map(|entry| entry.item()).collect();
            return Ok(Page { items, next_cursor: next, cache: self.cache });
        }
        let (mut items, mut last, mut next) = (Vec::new(), None, None);
        for entry in rest.iter().filter(|entry| entry.is_visible(view)) {
            if items.len() == self.size {
                next = last.map(|last| self.encode_cursor(list, last));
                break;
            }
            items.push(entry.item());
            last = Some(entry.key());
        }
        // What one caller sees is not what the next one does.
        let cache = CacheHint { scope: CacheScope::Private, ..self.cache };
        Ok(Page { items, next_cursor: next, cache })
    }

    /// A cursor to what follows a thing.
    fn encode_cursor(&self, list: &str, key: &str) -> String {
        self.seal.seal(list.as_bytes(), key.as_bytes())
    }

    /// The key that a cursor was made of.
    fn decode_cursor(&self, list: &str, cursor: &str) -> Result<String, ProtocolError> {
        let key = self.seal.open(list.as_bytes(), cursor).map_err(|_| unknown_cursor())?;
        String::from_utf8(key).map_err(|_| unknown_cursor())
    }
}

fn unknown_cursor() -> ProtocolError {
    ProtocolError::new(ProtocolErrorKind::InvalidCursor, "unknown cursor; start again without one")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug)]
    struct Thing(String);

    impl Keyed for Thing {
        fn key(&self) -> &str {
            &self.0
        }
    }

    impl ListEntry for Thing {
        type Item = String;

        fn item(&self) -> Arc<String> {
            Arc::new(self.0.clone())
        }

        fn is_visible(&self, view: View<'_>) -> bool {
            view.shows_tool(&self.0)
        }
    }

    fn entries(count: usize) -> OrderedMap<Thing> {
        let mut shelf = OrderedMap::default();
        for number in 0..count {
            shelf.insert(Thing(format!("thing {number}")));
        }
        shelf
    }

    const UNRESTRICTED: View<'_> = View([None, None]);

    fn page(
        pager: &Pager,
        list: &str,
        shelf: &OrderedMap<Thing>,
        cursor: Option<&str>,
    ) -> Result<Page<String>, ProtocolError> {
        pager.page(list, shelf, cursor, UNRESTRICTED)
    }

    fn pager(size: usize) -> Pager {
        Pager { size, cache: CacheHint::default(), seal: Seal::random() }
    }

    proptest! {
        #[test]
        fn all_pages_together_are_the_list(count in 0_usize..60, size in 1_usize..20) {
            let (shelf, pager) = (entries(count), pager(size));
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let page = page(&pager, "things", &shelf, cursor.as_deref()).unwrap();
                prop_assert!(page.items.len() <= size);
                seen.extend(page.items.iter().map(|item| item.to_string()));
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            let all: Vec<_> = shelf.iter().map(|thing| thing.0.clone()).collect();
            prop_assert_eq!(seen, all);
        }

        #[test]
        fn a_made_up_cursor_is_noticed(cursor in ".{0,80}") {
            prop_assert!(page(&pager(1), "things", &entries(3), Some(&cursor)).is_err());
        }
    }

    #[test]
    fn a_cursor_is_good_for_its_own_list_only() {
        let pager = pager(1);
        let next = page(&pager, "things", &entries(3), None).unwrap().next_cursor;
        assert!(page(&pager, "things", &entries(3), next.as_deref()).is_ok());
        assert!(page(&pager, "others", &entries(3), next.as_deref()).is_err());
    }

    #[test]
    fn pages_of_a_part_hold_that_part_only() {
        let profile = crate::profile::Profile::new("odd").include_tools(["*1", "*3", "*5"]);
        let (shelf, pager) = (entries(7), pager(2));
        let list = |cursor: Option<&str>| {
            pager.page("things", &shelf, cursor, View([None, Some(&profile)])).unwrap()
        };
        let first = list(None);
        let second = list(first.next_cursor.as_deref());
        let texts = |page: &Page<String>| page.items.iter().map(|item| item.to_string()).collect::<Vec<_>>();
        assert_eq!(texts(&first), ["thing 1", "thing 3"]);
        assert_eq!((texts(&second), second.next_cursor), (vec!["thing 5".to_owned()], None));
    }
}
