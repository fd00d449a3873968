//! Cancellation and disconnects.

use crate::transcript_player;

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("cancel").await;
}
