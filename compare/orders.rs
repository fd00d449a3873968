//! The orders of the desk. Both Rust servers include this file; it knows nothing of MCP.

use std::sync::{Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Open,
    Shipped,
    Cancelled,
}

#[derive(Clone, Serialize, JsonSchema)]
pub struct Order {
    pub id: u32,
    pub customer: String,
    pub cents: u32,
    pub status: Status,
    /// What the customer asked for, or why the order was cancelled
    pub note: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub struct Page {
    pub orders: Vec<Order>,
    pub total: usize,
    /// Where the next page begins; none after the last one
    pub next_offset: Option<usize>,
}

pub struct Orders(Mutex<Vec<Order>>);

impl Orders {
    pub fn sample() -> Self {
        let customers = ["Ada", "Grace", "Linus", "Margaret"];
        let order = |id: u32| Order {
            id,
            customer: customers[id as usize % customers.len()].to_owned(),
            cents: id * 250,
            status: if id.is_multiple_of(3) { Status::Shipped } else { Status::Open },
            note: id.is_multiple_of(5).then(|| "gift wrap".to_owned()),
        };
        Self(Mutex::new((1..=25).map(order).collect()))
    }

    pub fn all(&self) -> Vec<Order> {
        self.lock().clone()
    }

    pub fn get(&self, id: u32) -> Result<Order, String> {
        self.lock()
            .iter()
            .find(|order| order.id == id)
            .cloned()
            .ok_or_else(|| format!("there is no order {id}"))
    }

    /// The newest order of a customer.
    pub fn find(&self, customer: &str, status: Option<Status>) -> Result<Order, String> {
        let fits =
            |order: &&Order| order.customer == customer && status.is_none_or(|status| order.status == status);
        self.lock().iter().rev().find(fits).cloned().ok_or_else(|| format!("no such order of {customer}"))
    }

    pub fn page(&self, offset: usize, limit: usize) -> Page {
        let orders = self.lock();
        let end = orders.len().min(offset.saturating_add(limit));
        Page {
            orders: orders.iter().skip(offset).take(limit).cloned().collect(),
            total: orders.len(),
            next_offset: (end < orders.len()).then_some(end),
        }
    }

    pub fn cancel(&self, id: u32, reason: String) {
        if let Some(order) = self.lock().iter_mut().find(|order| order.id == id) {
            order.status = Status::Cancelled;
            order.note = Some(reason);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Order>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Order {
    pub fn csv_row(&self) -> String {
        format!("{},{},{}\n", self.id, self.customer, self.cents)
    }
}
