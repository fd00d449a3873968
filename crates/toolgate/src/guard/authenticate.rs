//! Authenticates callers: passwords, bearer tokens and API keys.

use std::net::IpAddr;

use http::HeaderValue;

use super::api_keys::KeyCheck;
use super::authorization::{Authorization, PresentedKey};
use super::basic::{self, HashedLogin, PasswordCheckError};
use super::basic_auth_provider::{LoginCheck, ProviderLogin};
use super::login_cache::CredentialLookup;
use super::rate::LimitKey;
use super::rejection::{
    CredentialProblem, bearer_challenge, busy, credentials_rejected, too_many_failures, unavailable,
};
use super::{
    CallerIdentity, CredentialKind, CredentialMode, GuardRejection, GuardRequest, Guards, HeadDecision,
    KeyRequest, RejectReason, ResponsePolicy,
};
use crate::request::Principal;

/// A request whose credentials still have to be checked.
pub(crate) struct PendingAuth {
    caller: CallerIdentity,
    password: Option<PendingPassword>,
    api_key: PresentedKey,
    /// Some of the credentials are wrong. With [`CredentialMode::Any`] others may still be valid.
    has_wrong_credentials: bool,
    challenges: Vec<HeaderValue>,
}

/// A user and a password that still have to be checked.
enum PendingPassword {
    /// Against a hash.
    Hash(HashedLogin),
    /// By the [`BasicAuthProvider`](super::BasicAuthProvider).
    Provider(ProviderLogin),
}

impl PendingAuth {
    /// For responses that are sent before the credentials are checked.
    pub(crate) fn response_policy(&self) -> &ResponsePolicy {
        &self.caller.response_policy
    }

    pub(crate) fn client(&self) -> Option<IpAddr> {
        self.caller.client
    }
}

impl std::fmt::Debug for PendingAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingAuth").field("client", &self.caller.client).finish_non_exhaustive()
    }
}

impl Guards {
    /// Whether credentials of any kind are required.
    pub(crate) fn requires_credentials(&self) -> bool {
        self.has_users() || !self.tokens.is_empty() || self.api_keys.is_some()
    }

    /// Checks the credentials in the head of a request, as far as that takes no waiting.
    pub(super) fn authenticate(
        &self,
        head: &GuardRequest<'_>,
        caller: CallerIdentity,
    ) -> Result<HeadDecision, Box<GuardRejection>> {
        let authorization = Authorization::from_headers(head.headers);
        match self.mode {
            // A proxy in front of us may have checked the other one.
            _ if authorization == Authorization::Repeated => {
                let challenges = self.challenges(head, CredentialProblem::Wrong);
                Err(self.reject_wrong_credentials(self.credential_kind(), challenges, &caller))
            }
            CredentialMode::All => self.authenticate_by_all(head, authorization, caller),
            CredentialMode::Any => self.authenticate_by_any(head, authorization, caller),
        }
    }

    fn authenticate_by_all(
        &self,
        head: &GuardRequest<'_>,
        authorization: Authorization<'_>,
        mut caller: CallerIdentity,
    ) -> Result<HeadDecision, Box<GuardRejection>> {
        let basic_challenge = || vec![basic::challenge(head.server_name)];
        let mut password = None;
        for lookup in self.look_up_password(head, authorization, caller.client) {
            match lookup {
                CredentialLookup::Valid(principal) => caller.merge_principal(&principal),
                CredentialLookup::Unverified(login) => password = Some(login),
                CredentialLookup::Invalid => {
                    let challenges = basic_challenge();
                    return Err(self.reject_wrong_credentials(CredentialKind::Basic, challenges, &caller));
                }
                CredentialLookup::Missing => {
                    let (missing, kind) = (CredentialProblem::Missing, CredentialKind::Basic);
                    return Err(credentials_rejected(missing, kind, basic_challenge(), &caller));
                }
            }
        }
        if !self.tokens.is_empty() {
            let holder = match authorization {
                Authorization::Missing => {
                    let (missing, kind) = (CredentialProblem::Missing, CredentialKind::Bearer);
                    let challenges = vec![bearer_challenge(missing)];
                    return Err(credentials_rejected(missing, kind, challenges, &caller));
                }
                Authorization::Bearer(secret) => self.tokens.principal_for(secret),
                _ => None,
            };
            let Some(holder) = holder else {
                let challenges = vec![bearer_challenge(CredentialProblem::Wrong)];
                return Err(self.reject_wrong_credentials(CredentialKind::Bearer, challenges, &caller));
            };
            caller.merge_principal(holder);
        }
        let api_key = match (&self.api_keys, self.tokens.is_empty()) {
            (None, _) => PresentedKey::Missing,
            (Some(_), true) => PresentedKey::from_headers(head.headers, authorization),
            // The bearer is the token, so it is not the key.
            (Some(_), false) => PresentedKey::from_headers(head.headers, Authorization::Missing),
        };
        let challenges = if password.is_some() { basic_challenge() } else { Vec::new() };
        let pending = PendingAuth { caller, password, api_key, has_wrong_credentials: false, challenges };
        if pending.password.is_some() {
            return Ok(HeadDecision::PasswordPending(Box::new(pending)));
        }
        if self.api_keys.is_none() {
            return self.limit_principal(pending.caller).map(HeadDecision::Granted);
        }
        self.require_key(Box::new(pending))
    }

    fn authenticate_by_any(
        &self,
        head: &GuardRequest<'_>,
        authorization: Authorization<'_>,
        mut caller: CallerIdentity,
    ) -> Result<HeadDecision, Box<GuardRejection>> {
        let (mut password, mut has_wrong_credentials) = (None, false);
        let lookup = match authorization {
            Authorization::Basic(_) => self.look_up_password(head, authorization, caller.client).next(),
            Authorization::Bearer(secret) if !self.tokens.is_empty() => {
                let holder = self.tokens.principal_for(secret).cloned();
                Some(holder.map_or(CredentialLookup::Invalid, CredentialLookup::Valid))
            }
            Authorization::Missing => Some(CredentialLookup::Missing),
            _ => None,
        };
        match lookup {
            Some(CredentialLookup::Valid(principal)) => {
                caller.merge_principal(&principal);
                return self.limit_principal(caller).map(HeadDecision::Granted);
            }
            Some(CredentialLookup::Unverified(login)) => password = Some(login),
            Some(CredentialLookup::Missing) => {}
            Some(CredentialLookup::Invalid) | None => has_wrong_credentials = true,
        }
        let api_key = match &self.api_keys {
            Some(_) => PresentedKey::from_headers(head.headers, authorization),
            None => PresentedKey::Missing,
        };
        let problem =
            if has_wrong_credentials { CredentialProblem::Wrong } else { CredentialProblem::Missing };
        let challenges = self.challenges(head, problem);
        let pending = PendingAuth { caller, password, api_key, has_wrong_credentials, challenges };
        match &pending.password {
            Some(_) => Ok(HeadDecision::PasswordPending(Box::new(pending))),
            None => self.require_key(Box::new(pending)),
        }
    }

    /// Looks up the user and the password, among the configured users or with the provider.
    fn look_up_password(
        &self,
        head: &GuardRequest<'_>,
        authorization: Authorization<'_>,
        client: Option<IpAddr>,
    ) -> impl Iterator<Item = CredentialLookup<PendingPassword>> {
        let by_users =
            (!self.users.is_empty()).then(|| self.users.lookup(authorization).map(PendingPassword::Hash));
        let by_provider = self.basic_auth_provider.as_ref().map(|provider| {
            let request = || provider_request(head, client);
            provider.lookup(authorization, request).map(PendingPassword::Provider)
        });
        by_users.into_iter().chain(by_provider)
    }

    /// Continues after a password that is valid, or not required.
    fn after_login(&self, pending: Box<PendingAuth>) -> Result<HeadDecision, Box<GuardRejection>> {
        if self.api_keys.is_none() && self.mode == CredentialMode::All {
            return self.limit_principal(pending.caller).map(HeadDecision::Granted);
        }
        self.require_key(pending)
    }

    /// Requires an API key. Without one, the request is rejected before its body is read.
    fn require_key(&self, mut pending: Box<PendingAuth>) -> Result<HeadDecision, Box<GuardRejection>> {
        let is_any = self.mode == CredentialMode::Any;
        if !is_any {
            let problem = match pending.api_key {
                PresentedKey::Missing => CredentialProblem::Missing,
                PresentedKey::Malformed | PresentedKey::Key(_) => CredentialProblem::Wrong,
            };
            pending.challenges = vec![bearer_challenge(problem)];
        }
        let kind = match &pending.api_key {
            PresentedKey::Key(_) => return Ok(HeadDecision::KeyPending(pending)),
            PresentedKey::Malformed => CredentialKind::ApiKey,
            PresentedKey::Missing if pending.has_wrong_credentials => self.credential_kind(),
            PresentedKey::Missing => {
                let kind = if is_any { self.credential_kind() } else { CredentialKind::ApiKey };
                let missing = CredentialProblem::Missing;
                let mut rejection = credentials_rejected(missing, kind, pending.challenges, &pending.caller);
                if is_any {
                    rejection.message =
                        "credentials are required; `WWW-Authenticate` lists the accepted kinds".into();
                }
                return Err(rejection);
            }
        };
        Err(self.reject_wrong_credentials(kind, pending.challenges, &pending.caller))
    }

    /// Checks a password against its hash, or with the provider.
    ///
    /// Cancel safe: yes, because nothing is changed here after the await.
    pub(crate) async fn check_password(
        &self,
        mut pending: Box<PendingAuth>,
    ) -> Result<HeadDecision, Box<GuardRejection>> {
        let login = match pending.password.take() {
            Some(PendingPassword::Hash(login)) => login,
            Some(PendingPassword::Provider(login)) => return self.check_with_provider(pending, login).await,
            None => return self.after_login(pending),
        };
        // Counted as a failure before the hash is computed, so that guesses cannot use up the permits that users need to
        // log in. A valid login is cached, and its hash is not computed again.
        self.count_failure(&pending.caller)?;
        match self.users.verify_hash(login).await {
            Ok(Some(principal)) => self.accept_password(pending, &principal),
            Ok(None) => self.reject_password(pending),
            Err(PasswordCheckError::TooMany) => Err(busy(pending.response_policy())),
            Err(PasswordCheckError::Failed) => Err(unavailable(pending.response_policy())),
        }
    }

    /// Checks a password with the provider.
    ///
    /// Cancel safe: yes, because nothing is changed here after the await.
    async fn check_with_provider(
        &self,
        pending: Box<PendingAuth>,
        login: ProviderLogin,
    ) -> Result<HeadDecision, Box<GuardRejection>> {
        let Some(provider) = &self.basic_auth_provider else {
            return Err(unavailable(pending.response_policy()));
        };
        // As with hashes, every check is counted as a failure, except for a login that was valid recently.
        let was_valid = login.was_valid;
        if !was_valid {
            self.count_failure(&pending.caller)?;
        }
        match provider.check_login(login).await {
            LoginCheck::Valid(principal) => self.accept_password(pending, &principal),
            LoginCheck::Invalid => {
                if was_valid {
                    self.count_failure(&pending.caller)?;
                }
                self.reject_password(pending)
            }
            LoginCheck::Forbidden(message) => {
                Err(GuardRejection::new(RejectReason::Forbidden, message, pending.response_policy()))
            }
            LoginCheck::TooMany => Err(busy(pending.response_policy())),
            LoginCheck::Unavailable => Err(unavailable(pending.response_policy())),
        }
    }

    /// Counts a failed password, and rejects the request if its address has sent too many.
    fn count_failure(&self, caller: &CallerIdentity) -> Result<(), Box<GuardRejection>> {
        self.failure_limiter
            .take(LimitKey::from_address(caller.client))
            .map_err(|seconds| too_many_failures(CredentialKind::Basic, caller, seconds))
    }

    fn accept_password(
        &self,
        mut pending: Box<PendingAuth>,
        principal: &Principal,
    ) -> Result<HeadDecision, Box<GuardRejection>> {
        pending.caller.merge_principal(principal);
        match self.mode {
            CredentialMode::All => self.after_login(pending),
            CredentialMode::Any => self.limit_principal(pending.caller).map(HeadDecision::Granted),
        }
    }

    /// Continues after a wrong password, which is already counted.
    fn reject_password(&self, mut pending: Box<PendingAuth>) -> Result<HeadDecision, Box<GuardRejection>> {
        if self.mode == CredentialMode::Any && pending.api_key != PresentedKey::Missing {
            pending.has_wrong_credentials = true;
            return self.after_login(pending);
        }
        let (wrong, kind) = (CredentialProblem::Wrong, CredentialKind::Basic);
        Err(credentials_rejected(wrong, kind, pending.challenges, &pending.caller))
    }

    /// Checks an API key.
    ///
    /// Cancel safe: yes, because nothing is changed here after the await.
    pub(crate) async fn check_key(
        &self,
        pending: Box<PendingAuth>,
        request: KeyRequest,
    ) -> Result<CallerIdentity, Box<GuardRejection>> {
        let PendingAuth { mut caller, api_key, challenges, .. } = *pending;
        let (Some(api_keys), PresentedKey::Key(key)) = (&self.api_keys, api_key) else {
            return Err(unavailable(&caller.response_policy));
        };
        match api_keys.check_key(key, &request).await {
            KeyCheck::Valid(principal) => {
                caller.merge_principal(&principal);
                self.limit_principal(caller)
            }
            KeyCheck::Invalid => {
                Err(self.reject_wrong_credentials(CredentialKind::ApiKey, challenges, &caller))
            }
            KeyCheck::Rejected(message) => {
                let mut rejection =
                    self.reject_wrong_credentials(CredentialKind::ApiKey, challenges, &caller);
                if matches!(rejection.reason, RejectReason::Credentials(_)) {
                    rejection.message = message.into();
                }
                Err(rejection)
            }
            KeyCheck::Unavailable => Err(unavailable(&caller.response_policy)),
        }
    }

    /// The challenges of every kind of credentials that is configured.
    fn challenges(&self, head: &GuardRequest<'_>, problem: CredentialProblem) -> Vec<HeaderValue> {
        let mut challenges = Vec::new();
        if self.has_users() {
            challenges.push(basic::challenge(head.server_name));
        }
        if !self.tokens.is_empty() || self.api_keys.is_some() {
            challenges.push(bearer_challenge(problem));
        }
        challenges
    }

    /// The first kind of credentials that is configured: rejections report it if any kind would be accepted.
    fn credential_kind(&self) -> CredentialKind {
        match (self.has_users(), self.tokens.is_empty()) {
            (true, _) => CredentialKind::Basic,
            (false, false) => CredentialKind::Bearer,
            (false, true) => CredentialKind::ApiKey,
        }
    }

    /// Rejects wrong credentials, and counts them. An address that sends too many has to wait.
    fn reject_wrong_credentials(
        &self,
        kind: CredentialKind,
        challenges: Vec<HeaderValue>,
        caller: &CallerIdentity,
    ) -> Box<GuardRejection> {
        match self.failure_limiter.take(LimitKey::from_address(caller.client)) {
            Ok(()) => credentials_rejected(CredentialProblem::Wrong, kind, challenges, caller),
            Err(seconds) => too_many_failures(kind, caller, seconds),
        }
    }
}

/// The request for the provider: without the body, which is not read yet.
fn provider_request(head: &GuardRequest<'_>, client: Option<IpAddr>) -> KeyRequest {
    KeyRequest::new(head.server_name)
        .with_headers(head.headers.clone())
        .with_http_method(head.method.clone())
        .with_remote_addr(client)
}
