//! Clients that send no protocol version, and what a dialect changes for them only.

use crate::transcript_player;

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("dialect").await;
}
