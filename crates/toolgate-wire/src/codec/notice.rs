//! Messages that want no answer, both ways.
//!
//! A notice that an edition does not have is not written, and one that cannot
//! be read is ignored: nobody could be told.

use super::call::read_filter;
use super::fields::Part;
use super::greeting::{ResultMeta, read_level, read_subscription};
use super::object::{Object, Put};
use super::task::{put_task, put_task_details, read_task};
use crate::Edition::{self, E2025_03_26, E2025_11_25};
use crate::edition::{Elicitation, Feeding, Greeting, Tasks};
use crate::json::Raw;
use crate::model::Notice;
use crate::{Fault, ProgressToken, RequestId};

/// Appends a whole notification, tagged with the listening it belongs to where
/// editions have that. Writes nothing and returns false if the edition has no
/// such notice.
pub fn write_notice(
    out: &mut Vec<u8>,
    edition: Edition,
    notice: &Notice,
    subscription: Option<&RequestId>,
) -> bool {
    let Some(method) = method(edition, notice) else {
        return false;
    };
    let subscription = subscription.filter(|_| edition.facts().feeding == Feeding::Listen);
    let meta = ResultMeta { subscription, ..ResultMeta::default() };
    let params = Params { notice, meta };
    Object::open(out, edition)
        .field("jsonrpc", "2.0")
        .field("method", method)
        .some("params", &params)
        .close();
    true
}

/// The same for who names no edition and wants the name alone, without
/// `notifications/` before it, and always parameters.
pub(super) fn write_short_notice(out: &mut Vec<u8>, notice: &Notice) -> bool {
    let edition = Edition::UNNAMED;
    let Some(method) = method(edition, notice) else {
        return false;
    };
    Object::open(out, edition)
        .field("jsonrpc", "2.0")
        .field("method", method.trim_start_matches("notifications/"))
        .field("params", &Params { notice, meta: ResultMeta::default() })
        .close();
    true
}

/// What a notice is called, if the edition has it and it can be said.
fn method(edition: Edition, notice: &Notice) -> Option<&'static str> {
    let facts = edition.facts();
    let handshake = facts.greeting == Greeting::Handshake;
    match notice {
        Notice::Initialized => handshake.then_some("notifications/initialized"),
        Notice::Cancelled { request, .. } => {
            let said = request.is_some() || edition == E2025_11_25;
            said.then_some("notifications/cancelled")
        }
        Notice::Progress { progress, .. } => progress.is_finite().then_some("notifications/progress"),
        Notice::Log { .. } => Some("notifications/message"),
        Notice::ToolsChanged => Some("notifications/tools/list_changed"),
        Notice::PromptsChanged => Some("notifications/prompts/list_changed"),
        Notice::ResourcesChanged => Some("notifications/resources/list_changed"),
        Notice::ResourceUpdated { .. } => Some("notifications/resources/updated"),
        Notice::RootsChanged => handshake.then_some("notifications/roots/list_changed"),
        Notice::ElicitationDone { .. } => {
            let links = handshake && facts.elicitation == Elicitation::FormAndUrl;
            links.then_some("notifications/elicitation/complete")
        }
        Notice::Task(_) => match facts.tasks {
            Tasks::Never => None,
            Tasks::Core => Some("notifications/tasks/status"),
            Tasks::Extension => Some("notifications/tasks"),
        },
        Notice::Acknowledged(_) => {
            let listens = facts.feeding == Feeding::Listen;
            listens.then_some("notifications/subscriptions/acknowledged")
        }
    }
}

struct Params<'a> {
    notice: &'a Notice,
    meta: ResultMeta<'a>,
}

impl Put for Params<'_> {
    fn put(&self, out: &mut Vec<u8>, edition: Edition) {
        let object = Object::open(out, edition).some("_meta", &self.meta);
        match self.notice {
            Notice::Initialized
            | Notice::ToolsChanged
            | Notice::PromptsChanged
            | Notice::ResourcesChanged
            | Notice::RootsChanged => object,
            Notice::Cancelled { request, reason } => object.some("requestId", request).some("reason", reason),
            Notice::Progress { token, progress, total, message } => object
                .field("progressToken", token)
                .field("progress", progress)
                .some("total", total)
                .since(E2025_03_26, "message", message),
            Notice::Log { level, logger, data } => {
                object.field("level", level).some("logger", logger).field("data", data)
            }
            Notice::ResourceUpdated { uri } => object.field("uri", uri),
            Notice::ElicitationDone { id } => object.field("elicitationId", id),
            Notice::Task(task) => put_task_details(put_task(object, edition, task), task),
            Notice::Acknowledged(filter) => object.field("notifications", filter),
        }
        .close();
    }

    fn is_absent(&self) -> bool {
        let bare = matches!(
            self.notice,
            Notice::Initialized
                | Notice::ToolsChanged
                | Notice::PromptsChanged
                | Notice::ResourcesChanged
                | Notice::RootsChanged
        );
        bare && self.meta.is_absent()
    }
}

/// Reads a notification and the listening it is tagged with. None if the
/// edition has no such notice, or if it cannot be read.
pub fn read_notice(
    edition: Edition,
    method: &str,
    params: Option<&Raw>,
) -> Option<(Notice, Option<RequestId>)> {
    let params = Part::params(params).ok()?;
    let notice = read(edition, method, &params).ok()??;
    // What is not said in this edition means nothing in it.
    self::method(edition, &notice).filter(|known| *known == method)?;
    let tag = match edition.facts().feeding {
        Feeding::Listen => read_subscription(&params),
        Feeding::Session => None,
    };
    Some((notice, tag))
}

fn read(edition: Edition, method: &str, params: &Part<'_>) -> Result<Option<Notice>, Fault> {
    Ok(Some(match method {
        "notifications/initialized" => Notice::Initialized,
        "notifications/cancelled" => {
            let [request, reason] = &params.pick(["requestId", "reason"]);
            Notice::Cancelled {
                request: request.value().and_then(RequestId::read),
                reason: reason.maybe_text()?,
            }
        }
        "notifications/progress" => {
            let [token, progress, total, message] =
                &params.pick(["progressToken", "progress", "total", "message"]);
            let Some(read) = token.value().and_then(ProgressToken::read) else {
                return Ok(None);
            };
            Notice::Progress {
                token: read,
                progress: progress.number()?,
                total: total.maybe_number()?,
                message: message.maybe_text()?,
            }
        }
        "notifications/message" => {
            let [level, logger, data] = &params.pick(["level", "logger", "data"]);
            Notice::Log { level: read_level(level)?, logger: logger.maybe_text()?, data: data.json()? }
        }
        "notifications/tools/list_changed" => Notice::ToolsChanged,
        "notifications/prompts/list_changed" => Notice::PromptsChanged,
        "notifications/resources/list_changed" => Notice::ResourcesChanged,
        "notifications/resources/updated" => Notice::ResourceUpdated { uri: params.field("uri").text()? },
        "notifications/roots/list_changed" => Notice::RootsChanged,
        "notifications/elicitation/complete" => {
            Notice::ElicitationDone { id: params.field("elicitationId").text()? }
        }
        "notifications/tasks/status" | "notifications/tasks" => {
            Notice::Task(Box::new(read_task(edition, params)?))
        }
        "notifications/subscriptions/acknowledged" => {
            Notice::Acknowledged(read_filter(&params.field("notifications"))?)
        }
        _ => return Ok(None),
    }))
}
