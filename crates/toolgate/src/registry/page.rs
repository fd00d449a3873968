//! Pages of lists, with cursors that need no memory.
//!
//! A cursor is the key of the last thing on the page before, sealed: any node can go on from it, it
//! survives changes of the list, and a made-up one is noticed.

use toolgate_wire::Fault;
use toolgate_wire::model::{CacheHint, Page};

use super::{Keyed, Shelf};
use crate::seal::Seal;

/// What a list shows of a thing.
pub(crate) trait Listed: Keyed {
    type Item;

    fn item(&self) -> std::sync::Arc<Self::Item>;
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
    pub(crate) fn page<T: Listed>(
        &self,
        list: &str,
        shelf: &Shelf<T>,
        cursor: Option<&str>,
    ) -> Result<Page<T::Item>, Fault> {
        let rest = match cursor {
            None => shelf.as_slice(),
            Some(cursor) => self.after(list, shelf, cursor)?,
        };
        let shown = &rest[..rest.len().min(self.size)];
        let next = match shown.last() {
            Some(last) if shown.len() < rest.len() => {
                Some(self.seal.seal(list.as_bytes(), last.key().as_bytes()))
            }
            _ => None,
        };
        Ok(Page { items: shown.iter().map(|entry| entry.item()).collect(), next, cache: self.cache })
    }

    fn after<'a, T: Listed>(
        &self,
        list: &str,
        shelf: &'a Shelf<T>,
        cursor: &str,
    ) -> Result<&'a [std::sync::Arc<T>], Fault> {
        let key = self.seal.open(list.as_bytes(), cursor).map_err(|_| unknown())?;
        let key = String::from_utf8(key).map_err(|_| unknown())?;
        // The thing itself may be gone since; then so is the place, and the client starts again.
        let place = shelf.place(&key).ok_or_else(unknown)?;
        Ok(&shelf.as_slice()[place + 1..])
    }
}

fn unknown() -> Fault {
    Fault::params("unknown cursor; start again without one")
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

    impl Listed for Thing {
        type Item = String;

        fn item(&self) -> Arc<String> {
            Arc::new(self.0.clone())
        }
    }

    fn shelf(count: usize) -> Shelf<Thing> {
        let mut shelf = Shelf::default();
        for number in 0..count {
            shelf.put(Thing(format!("thing {number}")));
        }
        shelf
    }

    fn pager(size: usize) -> Pager {
        Pager { size, cache: CacheHint::default(), seal: Seal::random() }
    }

    proptest! {
        #[test]
        fn all_pages_together_are_the_list(count in 0_usize..60, size in 1_usize..20) {
            let (shelf, pager) = (shelf(count), pager(size));
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let page = pager.page("things", &shelf, cursor.as_deref()).unwrap();
                prop_assert!(page.items.len() <= size);
                seen.extend(page.items.iter().map(|item| item.to_string()));
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            let all: Vec<_> = shelf.iter().map(|thing| thing.0.clone()).collect();
            prop_assert_eq!(seen, all);
        }

        #[test]
        fn a_made_up_cursor_is_noticed(cursor in ".{0,80}") {
            prop_assert!(pager(1).page("things", &shelf(3), Some(&cursor)).is_err());
        }
    }

    #[test]
    fn a_cursor_is_good_for_its_own_list_only() {
        let pager = pager(1);
        let next = pager.page("things", &shelf(3), None).unwrap().next;
        assert!(pager.page("things", &shelf(3), next.as_deref()).is_ok());
        assert!(pager.page("others", &shelf(3), next.as_deref()).is_err());
    }
}
