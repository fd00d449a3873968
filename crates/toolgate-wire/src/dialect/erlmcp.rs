//! The error codes of erlmcp. The preset sends only the few that apply to this crate; applications may use the others.

use crate::model::LogLevel;

macro_rules! define_errors {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $message:literal;)*) => {
        /// An error code of erlmcp.
        ///
        /// A request listener that rejects a request may use one of these codes.
        ///
        /// ```
        /// # use toolgate_wire::ErlmcpError;
        /// let error = ErlmcpError::RateLimited;
        /// assert_eq!((error.code(), error.family()), (-32010, "core"));
        /// assert!(error.is_transient());
        /// assert_eq!(ErlmcpError::from_code(-32010), Some(error));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErlmcpError {
            $($(#[$doc])* #[doc = $message] $name,)*
        }

        impl ErlmcpError {
            /// All error codes, in the order of the manual.
            pub const ALL: &'static [ErlmcpError] = &[$(ErlmcpError::$name),*];

            /// Returns the error code.
            #[must_use]
            pub const fn code(self) -> i64 {
                match self { $(ErlmcpError::$name => $code,)* }
            }

            /// Returns the default message.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self { $(ErlmcpError::$name => $message,)* }
            }
        }
    };
}

define_errors! {
    ResourceNotFound = -32001, "Resource not found";
    ToolNotFound = -32002, "Tool not found";
    PromptNotFound = -32003, "Prompt not found";
    CapabilityNotSupported = -32004, "Capability not supported";
    NotInitialized = -32005, "Server not initialized";
    SubscriptionFailed = -32006, "Subscription failed";
    ValidationFailed = -32007, "Validation failed";
    TransportError = -32008, "Transport error";
    Timeout = -32009, "Request timeout";
    RateLimited = -32010, "Rate limit exceeded";
    ToolDescriptionTooLong = -32011, "Tool description exceeds maximum length";
    MessageTooLarge = -32012, "Message size exceeds maximum allowed";
    InvalidContentType = -32013, "Invalid content type";
    ContentTooLarge = -32014, "Content too large";
    InvalidEncoding = -32015, "Invalid encoding";
    ResourceTemplateNotFound = -32021, "Resource template not found";
    InvalidUri = -32022, "Invalid URI";
    UriSyntaxError = -32023, "URI syntax error";
    ResourceAccessDenied = -32025, "Resource access denied";
    DuplicateRoot = -32026, "Root already exists";
    TemplateRenderFailed = -32029, "Template render failed";
    ToolExecutionFailed = -32031, "Tool execution failed";
    ToolTimeout = -32032, "Tool execution timeout";
    ToolCancelled = -32033, "Tool execution cancelled";
    InvalidToolArguments = -32034, "Invalid tool arguments";
    PromptArgumentMissing = -32043, "Prompt argument missing";
    PromptRenderFailed = -32044, "Prompt render failed";
    SamplingFailed = -32046, "Sampling failed";
    AuthenticationFailed = -32051, "Authentication failed";
    AuthorizationFailed = -32052, "Authorization failed";
    InvalidCredentials = -32053, "Invalid credentials";
    TokenExpired = -32054, "Token expired";
    AccessDenied = -32056, "Access denied";
    UnsupportedProtocolVersion = -32061, "Unsupported protocol version";
    ProtocolVersionMismatch = -32062, "Protocol version mismatch";
    CapabilityNegotiationFailed = -32063, "Capability negotiation failed";
    InvalidCursor = -32071, "Invalid cursor";
    CursorExpired = -32072, "Cursor expired";
    TaskNotFound = -32081, "Task not found";
    TaskFailed = -32083, "Task failed";
    TaskCancelled = -32084, "Task cancelled";
    TaskTimeout = -32085, "Task timeout";
    InvalidProgressToken = -32091, "Invalid progress token";
    ProgressTokenExpired = -32092, "Progress token expired";
    NotificationFailed = -32094, "Notification failed";
    CompletionNotFound = -32110, "Completion not found";
    InvalidCompletionReference = -32111, "Invalid completion reference";
    InvalidCompletionArgument = -32112, "Invalid completion argument";
    CompletionFailed = -32113, "Completion failed";
}

impl ErlmcpError {
    /// Returns the error with this code.
    #[must_use]
    pub fn from_code(code: i64) -> Option<ErlmcpError> {
        ErlmcpError::ALL.iter().copied().find(|error| error.code() == code)
    }

    /// Returns the group of the error in the manual.
    #[must_use]
    pub const fn family(self) -> &'static str {
        match -self.code() {
            ..=32010 => "core",
            32011..=32020 => "content",
            32021..=32030 => "resource",
            32031..=32040 => "tool",
            32041..=32050 => "prompt",
            32051..=32060 => "auth",
            32061..=32070 => "protocol",
            32071..=32080 => "pagination",
            32081..=32090 => "task",
            32091..=32100 => "progress",
            _ => "completion",
        }
    }

    /// Returns whether the same request may succeed later.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        use ErlmcpError as E;
        matches!(
            self,
            E::TransportError
                | E::Timeout
                | E::RateLimited
                | E::ToolTimeout
                | E::TaskTimeout
                | E::SamplingFailed
        )
    }

    /// Returns the log level for the operator. Most errors are mistakes of clients.
    #[must_use]
    pub const fn severity(self) -> LogLevel {
        use ErlmcpError as E;
        match self {
            E::TransportError
            | E::TemplateRenderFailed
            | E::ToolExecutionFailed
            | E::PromptRenderFailed
            | E::TaskFailed
            | E::NotificationFailed
            | E::CompletionFailed => LogLevel::Error,
            E::ToolCancelled | E::TaskCancelled => LogLevel::Info,
            E::AuthenticationFailed | E::AuthorizationFailed | E::InvalidCredentials | E::AccessDenied => {
                LogLevel::Notice
            }
            _ => LogLevel::Warning,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_have_a_family() {
        for error in ErlmcpError::ALL {
            assert_eq!(ErlmcpError::from_code(error.code()), Some(*error));
            assert!(!error.message().is_empty());
        }
        assert_eq!(ErlmcpError::from_code(-32000), None);
        assert!(ErlmcpError::ALL.windows(2).all(|pair| pair[0].code() > pair[1].code()), "in order");
        for (error, family) in [
            (ErlmcpError::ContentTooLarge, "content"),
            (ErlmcpError::DuplicateRoot, "resource"),
            (ErlmcpError::InvalidToolArguments, "tool"),
            (ErlmcpError::TokenExpired, "auth"),
            (ErlmcpError::InvalidCursor, "pagination"),
            (ErlmcpError::TaskNotFound, "task"),
            (ErlmcpError::CompletionFailed, "completion"),
        ] {
            assert_eq!(error.family(), family);
        }
        assert_eq!(ErlmcpError::ToolExecutionFailed.severity(), LogLevel::Error);
        assert!(ErlmcpError::Timeout.is_transient() && !ErlmcpError::ToolNotFound.is_transient());
    }
}
