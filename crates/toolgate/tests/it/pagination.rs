//! Pages of lists, and cache hints.

use crate::transcript_player;

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("page").await;
}
