//! The bare lane: clients that name no revision, and what a dialect changes for them and for nobody else.

use crate::play;

#[tokio::test]
async fn transcripts() {
    play::play_all("dialect").await;
}
