//! Reads and writes notifications.
//!
//! A notification that a version does not have is not written, and one that cannot be read is ignored, since a notification
//! has no response.

use super::call::read_filter;
use super::fields::ObjectReader;
use super::meta_writer::{ResultMeta, read_subscription_id};
use super::object::{ObjectWriter, WriteJson};
use super::params_view::read_log_level;
use super::task::{add_task_details, add_task_fields, read_task};
use crate::ProtocolVersion::{self, V2025_03_26, V2025_11_25};
use crate::json::RawJson;
use crate::model::Notification;
use crate::protocol_version::{ChangeDelivery, ElicitationSupport, Lifecycle, TasksMode};
use crate::{ProgressToken, ProtocolError, RequestId};

/// Appends a notification, tagged with its subscription in versions that have one. Writes nothing and returns false if the
/// version has no such notification.
pub fn write_notification(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    notification: &Notification,
    subscription_id: Option<&RequestId>,
) -> bool {
    let Some(method) = method(version, notification) else {
        return false;
    };
    let subscription_id =
        subscription_id.filter(|_| version.behavior().change_delivery == ChangeDelivery::Listen);
    let meta = ResultMeta { subscription_id, ..ResultMeta::default() };
    let params = NotificationParams { notification, meta };
    ObjectWriter::open(out, version)
        .field("jsonrpc", "2.0")
        .field("method", method)
        .optional("params", &params)
        .close();
    true
}

/// Appends a notification for a client that sends no protocol version and expects names without the `notifications/` prefix.
/// Params are always present.
pub(super) fn write_short_notification(out: &mut Vec<u8>, notification: &Notification) -> bool {
    let version = ProtocolVersion::FALLBACK;
    let Some(method) = method(version, notification) else {
        return false;
    };
    ObjectWriter::open(out, version)
        .field("jsonrpc", "2.0")
        .field("method", method.trim_start_matches("notifications/"))
        .field("params", &NotificationParams { notification, meta: ResultMeta::default() })
        .close();
    true
}

/// Returns the method name, if the version has the notification and can represent it.
fn method(version: ProtocolVersion, notification: &Notification) -> Option<&'static str> {
    let behavior = version.behavior();
    let has_handshake = behavior.lifecycle == Lifecycle::Handshake;
    match notification {
        Notification::Initialized => has_handshake.then_some("notifications/initialized"),
        Notification::Cancelled { request, .. } => {
            let is_representable = request.is_some() || version == V2025_11_25;
            is_representable.then_some("notifications/cancelled")
        }
        Notification::Progress { progress, .. } => progress.is_finite().then_some("notifications/progress"),
        Notification::LogMessage { .. } => Some("notifications/message"),
        Notification::ToolsChanged => Some("notifications/tools/list_changed"),
        Notification::PromptsChanged => Some("notifications/prompts/list_changed"),
        Notification::ResourcesChanged => Some("notifications/resources/list_changed"),
        Notification::ResourceUpdated { .. } => Some("notifications/resources/updated"),
        Notification::RootsChanged => has_handshake.then_some("notifications/roots/list_changed"),
        Notification::ElicitationComplete { .. } => {
            let has_urls = has_handshake && behavior.elicitation == ElicitationSupport::FormAndUrl;
            has_urls.then_some("notifications/elicitation/complete")
        }
        Notification::TaskStatus(_) => match behavior.tasks {
            TasksMode::Never => None,
            TasksMode::Core => Some("notifications/tasks/status"),
            TasksMode::Extension => Some("notifications/tasks"),
        },
        Notification::SubscriptionAcknowledged(_) => {
            let has_listen = behavior.change_delivery == ChangeDelivery::Listen;
            has_listen.then_some("notifications/subscriptions/acknowledged")
        }
    }
}

struct NotificationParams<'a> {
    notification: &'a Notification,
    meta: ResultMeta<'a>,
}

impl WriteJson for NotificationParams<'_> {
    fn write_json(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let object = ObjectWriter::open(out, version).optional("_meta", &self.meta);
        match self.notification {
            Notification::Initialized
            | Notification::ToolsChanged
            | Notification::PromptsChanged
            | Notification::ResourcesChanged
            | Notification::RootsChanged => object,
            Notification::Cancelled { request, reason } => {
                object.optional("requestId", request).optional("reason", reason)
            }
            Notification::Progress { token, progress, total, message } => object
                .field("progressToken", token)
                .field("progress", progress)
                .optional("total", total)
                .since(V2025_03_26, "message", message),
            Notification::LogMessage { level, logger, data } => {
                object.field("level", level).optional("logger", logger).field("data", data)
            }
            Notification::ResourceUpdated { uri } => object.field("uri", uri),
            Notification::ElicitationComplete { id } => object.field("elicitationId", id),
            Notification::TaskStatus(task) => add_task_details(add_task_fields(object, version, task), task),
            Notification::SubscriptionAcknowledged(filter) => object.field("notifications", filter),
        }
        .close();
    }

    fn is_absent(&self) -> bool {
        let has_no_params = matches!(
            self.notification,
            Notification::Initialized
                | Notification::ToolsChanged
                | Notification::PromptsChanged
                | Notification::ResourcesChanged
                | Notification::RootsChanged
        );
        has_no_params && self.meta.is_absent()
    }
}

/// Reads a notification and the subscription it is tagged with. Returns `None` if the version has no such notification, or
/// if it cannot be read.
pub fn read_notification(
    version: ProtocolVersion,
    method: &str,
    params: Option<&RawJson>,
) -> Option<(Notification, Option<RequestId>)> {
    let params = ObjectReader::params(params).ok()?;
    let notification = read_params(version, method, &params).ok()??;
    // A notification that the version does not have is ignored.
    self::method(version, &notification).filter(|known| *known == method)?;
    let subscription_id = match version.behavior().change_delivery {
        ChangeDelivery::Listen => read_subscription_id(&params),
        ChangeDelivery::Session => None,
    };
    Some((notification, subscription_id))
}

fn read_params(
    version: ProtocolVersion,
    method: &str,
    params: &ObjectReader<'_>,
) -> Result<Option<Notification>, ProtocolError> {
    Ok(Some(match method {
        "notifications/initialized" => Notification::Initialized,
        "notifications/cancelled" => {
            let [request, reason] = &params.pick(["requestId", "reason"]);
            Notification::Cancelled {
                request: request.value().and_then(RequestId::read),
                reason: reason.maybe_string()?,
            }
        }
        "notifications/progress" => {
            let [token, progress, total, message] =
                &params.pick(["progressToken", "progress", "total", "message"]);
            let Some(read) = token.value().and_then(ProgressToken::read) else {
                return Ok(None);
            };
            Notification::Progress {
                token: read,
                progress: progress.number()?,
                total: total.maybe_number()?,
                message: message.maybe_string()?,
            }
        }
        "notifications/message" => {
            let [level, logger, data] = &params.pick(["level", "logger", "data"]);
            Notification::LogMessage {
                level: read_log_level(level)?,
                logger: logger.maybe_string()?,
                data: data.json()?,
            }
        }
        "notifications/tools/list_changed" => Notification::ToolsChanged,
        "notifications/prompts/list_changed" => Notification::PromptsChanged,
        "notifications/resources/list_changed" => Notification::ResourcesChanged,
        "notifications/resources/updated" => {
            Notification::ResourceUpdated { uri: params.field("uri").string()? }
        }
        "notifications/roots/list_changed" => Notification::RootsChanged,
        "notifications/elicitation/complete" => {
            Notification::ElicitationComplete { id: params.field("elicitationId").string()? }
        }
        "notifications/tasks/status" | "notifications/tasks" => {
            Notification::TaskStatus(Box::new(read_task(version, params)?))
        }
        "notifications/subscriptions/acknowledged" => {
            Notification::SubscriptionAcknowledged(read_filter(&params.field("notifications"))?)
        }
        _ => return Ok(None),
    }))
}
