//! The bare lane: clients that name no revision, and what a dialect changes for them and for nobody else.

use crate::transcript_player;

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("dialect").await;
}
