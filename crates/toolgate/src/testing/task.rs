//! Tasks of a test client: a call that continues after its response.
//!
//! The protocol versions with tasks differ: in one the client requests a task and waits for its result, in the other the
//! server decides, and the client polls. [`TestTask`] hides that.

use std::sync::Arc;
use std::time::Duration;

use toolgate_wire::model::{Call, Outcome, Task, TaskOutcome, TaskStatus, ToolOutput};
use toolgate_wire::{TasksMode, meta_key};

use super::client::TestClient;
use super::connection::TestConnection;
use super::request::TestCall;
use super::response::{TestError, TestResponse, ToolResponse};

/// Time between two polls of a status. A server suggests a longer interval, which would slow down tests.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A task that a [`TestClient`] has started.
///
/// ```
/// use serde_json::json;
/// use toolgate::model::TaskSupport;
/// use toolgate::testing::{TestClient, TestVersion};
/// use toolgate::{Context, Field, Form, Server, ToolError};
///
/// async fn publish(cx: Context) -> Result<String, ToolError> {
///     let form = Form::new("To whom?").field("readers", Field::text());
///     let answer = cx.elicit("readers", form).await?.accepted().unwrap_or_default();
///     Ok(format!("published for {}", answer["readers"]))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), toolgate::Error> {
/// let server = Server::new("press", "1.0.0").tool("publish", publish).task(TaskSupport::Optional).build()?;
/// for version in TestVersion::all().filter(|version| version.has_tasks()) {
///     let client = TestClient::new(&server, version).on_elicit(|_| json!({ "readers": "all" }));
///     let task = client.call("publish", json!({})).task().await;
///     assert_eq!(task.result().await.text(), "published for \"all\"");
///     assert!(task.status().await.is_terminal());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TestTask {
    client: TestClient,
    id: String,
}

impl TestCall<ToolOutput> {
    /// Runs the call as a task: sends it, and returns the task that the server has started.
    ///
    /// # Panics
    /// If the protocol version has no tasks ([`TestVersion::has_tasks`](super::TestVersion::has_tasks)), or the server
    /// does not start a task: then the panic shows its response.
    pub async fn task(self) -> TestTask {
        let client = self.client.clone();
        let version = client.protocol_version();
        assert!(version.has_tasks(), "protocol version {version} has no tasks");
        let TestCall { client: _, mut call, meta, extra_meta, headers, .. } = self;
        if let Call::CallTool { task, .. } = &mut call {
            *task = Some(None);
        }
        let parse_outcome = |outcome| match outcome {
            Outcome::TaskStarted(task) => Some(Some(task)),
            _ => Some(None),
        };
        let call = TestCall { client: client.clone(), call, meta, extra_meta, headers, parse_outcome };
        let response = call.await;
        match response.outcome {
            Ok(Some(task)) => TestTask { client, id: task.id },
            Ok(None) => panic!(
                "the server did not start a task, but replied {}; does the tool support tasks, for example with \
                 `.task(TaskSupport::Optional)`?",
                response.message
            ),
            Err(error) => panic!("the task could not be started: {error}"),
        }
    }
}

impl TestTask {
    /// Returns the id of the task.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Requests the status of the task.
    ///
    /// # Panics
    /// If the server responds with an error.
    pub async fn status(&self) -> TaskStatus {
        self.get().await.status
    }

    /// Requests the status message of the task: its last progress message, or why it failed.
    ///
    /// # Panics
    /// If the server responds with an error.
    pub async fn status_message(&self) -> Option<String> {
        self.get().await.status_message
    }

    /// Waits until the task has this status.
    ///
    /// # Panics
    /// If the task ends with another status, or does not have this one within the client's timeout.
    pub async fn wait_for(&self, status: TaskStatus) {
        let reached = async {
            loop {
                let current = self.status().await;
                if current == status {
                    return;
                }
                assert!(
                    !current.is_terminal(),
                    "expected the task to be `{}`, but it is `{}`",
                    status.name(),
                    current.name()
                );
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        self.within_timeout(&format!("was not `{}`", status.name()), reached).await;
    }

    /// Cancels the task. Returns whether the server accepted that: one that has ended cannot be cancelled, which not all
    /// protocol versions report.
    pub async fn cancel(&self) -> bool {
        let call = Call::CancelTask { id: self.id.clone() };
        TestCall::new(&self.client, call, |_| Some(())).await.outcome.is_ok()
    }

    /// Waits until the task has ended, and returns the result of its call. Requests of the task (elicitation, sampling,
    /// roots) are answered by the client's callbacks meanwhile, and only then.
    ///
    /// The result of a cancelled task is an error.
    ///
    /// # Panics
    /// If the task does not end within the client's timeout, or sends a request without a callback.
    pub async fn result(&self) -> ToolResponse {
        match self.client.setup.version.behavior().tasks {
            // The server sends its requests while the client waits for the result.
            TasksMode::Core => {
                let call = Call::TaskResult { id: self.id.clone() };
                TestCall::new(&self.client, call, parse_payload).await
            }
            _ => self.within_timeout("did not end", self.poll_result()).await,
        }
    }

    /// Polls until the task has ended, and answers the requests in its status.
    async fn poll_result(&self) -> ToolResponse {
        loop {
            let response = self.request_status().await;
            let task = match response.outcome {
                Ok(task) => task,
                Err(error) => {
                    return TestResponse {
                        outcome: Err(error),
                        message: response.message,
                        http_response: response.http_response,
                    };
                }
            };
            if task.status.is_terminal() {
                let (message, http_response) = (response.message, response.http_response);
                return TestResponse { outcome: self.outcome_of(*task), message, http_response };
            }
            if !task.input_requests.is_empty() {
                self.answer(&task).await;
                continue;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn answer(&self, task: &Task) {
        let version = self.client.setup.version;
        let respond = |request| self.client.setup.callbacks.respond(version, request);
        let responses = task.input_requests.iter().map(|(key, request)| (key.clone(), respond(request)));
        let call = Call::UpdateTask { id: self.id.clone(), input_responses: responses.collect() };
        if let Err(error) = TestCall::new(&self.client, call, |_| Some(())).await.outcome {
            panic!("the server rejected the answers to the task's requests: {error}");
        }
    }

    fn outcome_of(&self, task: Task) -> Result<ToolOutput, TestError> {
        let status = task.status.name();
        match task.outcome {
            Some(TaskOutcome::Result(outcome)) => match Arc::unwrap_or_clone(outcome) {
                Outcome::Tool(output) => Ok(output),
                other => panic!("the result of the task is of another kind: {other:?}"),
            },
            Some(TaskOutcome::Error(error)) => {
                let code = error.code(self.client.setup.version);
                let data = error.data().map(toolgate_wire::RawJson::to_value);
                Err(TestError { code, message: error.message().to_owned(), data, status: None })
            }
            None => Err(TestError::without_code(format!("the task is {status}"), None)),
        }
    }

    async fn get(&self) -> Task {
        match self.request_status().await.outcome {
            Ok(task) => *task,
            Err(error) => panic!("`tasks/get` failed: {error}"),
        }
    }

    async fn request_status(&self) -> TestResponse<Box<Task>> {
        let call = Call::GetTask { id: self.id.clone() };
        TestCall::new(&self.client, call, |outcome| match outcome {
            Outcome::TaskStatus(task) => Some(task),
            _ => None,
        })
        .await
    }

    async fn within_timeout<T>(&self, failure: &str, future: impl Future<Output = T>) -> T {
        let timeout = self.client.setup.timeout;
        match tokio::time::timeout(timeout, future).await {
            Ok(value) => value,
            Err(_) => {
                panic!("the task {failure} within {timeout:?}; `TestClient::timeout` sets a longer timeout")
            }
        }
    }
}

fn parse_payload(outcome: Outcome) -> Option<ToolOutput> {
    let Outcome::TaskPayload { output, .. } = outcome else { return None };
    match Arc::unwrap_or_clone(output) {
        Outcome::Tool(output) => Some(output),
        _ => None,
    }
}

impl TestConnection {
    /// Returns the client that sends this call, if it is not the usual one: requests about tasks declare the extension, in
    /// the protocol version in which tasks are one.
    pub(super) fn task_client(&self, call: &Call) -> Option<toolgate_wire::Client> {
        let is_about_tasks = matches!(
            call,
            Call::CallTool { task: Some(_), .. }
                | Call::GetTask { .. }
                | Call::UpdateTask { .. }
                | Call::CancelTask { .. }
        );
        if !is_about_tasks || self.version.behavior().tasks != TasksMode::Extension {
            return None;
        }
        let mut client = self.client.clone();
        let extensions = &mut client.capabilities.extensions;
        extensions.insert(meta_key::TASKS_EXTENSION.to_owned(), toolgate_wire::RawJson::empty_object());
        Some(client)
    }
}
