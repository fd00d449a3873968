//! The tools of the tracker.

use std::time::Duration;

use toolgate::ProtocolError;
use toolgate::prelude::*;

use crate::Team;
use crate::model::{Change, Comment, Issue, Page, Priority, Status, Totals, Tracker};

#[server(
    instructions = "An issue tracker. `list_issues` and `search_issues` find the id that most tools need."
)]
impl Tracker {
    /// Open an issue
    #[tool]
    async fn open_issue(
        &self,
        /// One line
        #[arg(min_len = 1, max_len = 200)]
        title: String,
        body: Option<String>,
        #[arg(default)] priority: Priority,
        #[arg(default)] labels: Vec<String>,
        /// A date such as 2026-12-31
        #[arg(pattern = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
        due_date: Option<String>,
    ) -> Issue {
        let mut data = self.lock();
        let issue = data.open(title);
        (issue.body, issue.priority, issue.labels, issue.due_date) = (body, priority, labels, due_date);
        issue.clone()
    }

    /// Get one issue
    #[tool(read_only)]
    async fn get_issue(&self, id: u64) -> Result<Issue, HandlerError> {
        self.find(id)
    }

    /// List issues
    #[tool(read_only)]
    async fn list_issues(
        &self,
        /// Only issues in this state
        status: Option<Status>,
        /// Only issues of this person
        assigned_to: Option<String>,
        #[arg(default)] offset: u64,
        #[arg(default = 20, range = 1..=100)] limit: u64,
    ) -> Page<Issue> {
        let data = self.lock();
        let matches = |issue: &&Issue| {
            status.is_none_or(|status| issue.status == status)
                && (assigned_to.is_none() || issue.assigned_to == assigned_to)
        };
        let total = data.issues.values().filter(matches).count() as u64;
        let page = data.issues.values().filter(matches).skip(offset as usize).take(limit as usize);
        let next = Some(offset + limit).filter(|next| *next < total);
        Page { items: page.cloned().collect(), total, next }
    }

    /// Find issues whose title or body contains a text
    #[tool(read_only)]
    async fn search_issues(&self, #[arg(min_len = 2)] text: String) -> Vec<Issue> {
        let text = text.to_lowercase();
        let contains = |part: &str| part.to_lowercase().contains(&text);
        let data = self.lock();
        let found = data
            .issues
            .values()
            .filter(|issue| contains(&issue.title) || issue.body.as_deref().is_some_and(contains));
        found.cloned().collect()
    }

    /// Change the title, text, priority or due date of an issue
    #[tool(idempotent)]
    async fn update_issue(
        &self,
        id: u64,
        title: Option<String>,
        body: Option<String>,
        priority: Option<Priority>,
        due_date: Option<String>,
    ) -> Result<Issue, HandlerError> {
        self.update(id, |issue| {
            issue.title = title.unwrap_or_else(|| issue.title.clone());
            issue.body = body.or_else(|| issue.body.take());
            issue.priority = priority.unwrap_or(issue.priority);
            issue.due_date = due_date.or_else(|| issue.due_date.take());
            issue.clone()
        })
    }

    /// Assign an issue; asks the user for the name if it is missing
    #[tool]
    async fn assign_issue(&self, id: u64, to: Option<String>, cx: Context) -> Result<Issue, HandlerError> {
        self.find(id)?;
        let to = match to {
            Some(to) => Some(to),
            None => {
                let form = Form::new(format!("Who works on issue {id}?")).field("name", Field::text());
                let answer = cx.elicit("assignee", form).await?.accepted();
                answer.and_then(|answer| answer["name"].as_str().map(str::to_owned))
            }
        };
        self.update(id, |issue| {
            let from = std::mem::replace(&mut issue.assigned_to, to.clone());
            issue.history.push(Change::Assigned { from, to });
            issue.clone()
        })
    }

    /// Start the work on an issue
    #[tool(idempotent)]
    async fn start_issue(&self, id: u64) -> Result<Issue, HandlerError> {
        self.update(id, |issue| {
            issue.status = Status::InProgress;
            issue.clone()
        })
    }

    /// Close an issue
    #[tool(idempotent)]
    async fn close_issue(&self, id: u64, resolution: Option<String>) -> Result<Issue, HandlerError> {
        self.update(id, |issue| {
            issue.status = Status::Closed;
            issue.history.push(Change::Closed { resolution });
            issue.clone()
        })
    }

    /// Delete an issue, after the user has confirmed it
    #[tool(destructive)]
    async fn delete_issue(&self, id: u64, cx: Context) -> Result<bool, HandlerError> {
        let issue = self.find(id)?;
        let form = Form::new(format!("Delete “{}”?", issue.title)).field("sure", Field::flag());
        let answer = cx.elicit("confirm", form).await?.accepted();
        if !answer.is_some_and(|answer| answer["sure"] == true) {
            return Ok(false);
        }
        Ok(self.lock().issues.remove(&id).is_some())
    }

    /// Add and remove labels
    #[tool(idempotent)]
    async fn label_issue(
        &self,
        id: u64,
        #[arg(default)] add: Vec<String>,
        #[arg(default)] remove: Vec<String>,
    ) -> Result<Issue, HandlerError> {
        self.update(id, |issue| {
            issue.labels.retain(|label| !remove.contains(label) && !add.contains(label));
            issue.labels.extend(add.iter().cloned());
            issue.history.push(Change::Labelled { added: add, removed: remove });
            issue.clone()
        })
    }

    /// Comment on an issue
    #[tool]
    async fn add_comment(&self, id: u64, text: String, who: Principal) -> Result<Comment, HandlerError> {
        self.find(id)?;
        let mut data = self.lock();
        let comments = data.comments.entry(id).or_default();
        let number = comments.len() as u32 + 1;
        comments.push(Comment { number, author: who.id().map(str::to_owned), text });
        Ok(comments[comments.len() - 1].clone())
    }

    /// List the comments on an issue
    // An unknown id is an error of the protocol here, with its own code, because programs rely on it.
    #[tool(read_only)]
    async fn list_comments(&self, id: u64) -> Result<Vec<Comment>, ProtocolError> {
        self.find(id).map_err(|_| ProtocolError::invalid_params(format!("there is no issue {id}")))?;
        Ok(self.lock().comments.get(&id).cloned().unwrap_or_default())
    }

    /// Summarize an issue with the client's model
    #[tool(read_only)]
    async fn summarize_issue(&self, id: u64, cx: Context) -> Result<String, HandlerError> {
        let issue = self.find(id)?;
        let prompt =
            format!("Summarize in one sentence: {}. {}", issue.title, issue.body.unwrap_or_default());
        Ok(cx.sample(prompt).max_tokens(200).await?.text())
    }

    /// Count the issues
    #[tool(read_only)]
    async fn count_issues(&self) -> Totals {
        let data = self.lock();
        let mut totals = Totals { by_status: [].into(), ids: None };
        for issue in data.issues.values() {
            *totals.by_status.entry(issue.status).or_default() += 1;
        }
        totals.ids = data.issues.keys().min().copied().zip(data.issues.keys().max().copied());
        totals
    }

    /// Import issues, one title per line
    // A plain function: it runs on a thread for blocking work.
    #[tool]
    fn import_issues(&self, titles: String) -> u64 {
        let mut data = self.lock();
        let titles = titles.lines().map(str::trim).filter(|title| !title.is_empty());
        titles.map(|title| data.open(title.to_owned()).id).count() as u64
    }

    /// Write a report about all issues, which takes a while
    #[tool(read_only, task = "optional")]
    async fn write_report(&self, cx: Context) -> Result<String, HandlerError> {
        let team = cx.extension::<Team>().map_or("default", |team| &team.0).to_owned();
        let issues: Vec<Issue> = self.lock().issues.values().cloned().collect();
        let mut report = format!("Issues of the team {team}\n");
        for (done, issue) in issues.iter().enumerate() {
            cx.progress_of(done as f64 + 1.0, issues.len() as f64, &*issue.title).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            report.push_str(&format!("{}. {}\n", issue.id, issue.title));
        }
        Ok(report)
    }

    /// One issue
    #[template("issue://{id}")]
    async fn issue(&self, id: u64) -> Option<Json<Issue>> {
        self.find(id).ok().map(Json)
    }

    /// Sort the open issues by importance
    #[prompt]
    async fn triage(&self, #[arg(default = "team")] audience: String) -> String {
        let data = self.lock();
        let open = data.issues.values().filter(|issue| issue.status == Status::Open);
        let titles: Vec<_> = open.map(|issue| format!("- {}", issue.title)).collect();
        format!("Sort these issues by importance for the {audience}:\n{}", titles.join("\n"))
    }
}
